"""A crawler that is polite to each host: one request at a time, and twenty a second at most.

All workers share both limits, on all machines. A host that answers 429 is left alone for as long as
it asks, by all of them; the pages of other hosts go on. The three hosts here are small servers of
this program, one of which refuses its fourth request.

    python examples/polite_crawler.py                                  in this process
    python examples/polite_crawler.py --url redis://127.0.0.1:6379     the same on Redis
"""

import argparse
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

from interlock import App, Rate, RetryAfter

PAGES, PAUSE = 8, 1

app = App(audit=True, queues={"crawl": {"limits": {"host:*": 1, "pace:*": Rate(20, burst=2)}}})
fetch = build_opener(ProxyHandler({})).open


def limits_of(url: str) -> list[str]:
    host = urlsplit(url).netloc
    return [f"host:{host}", f"pace:{host}"]


@app.task(queue="crawl", limit=limits_of, result_ttl=60)
def visit(url: str) -> list[str]:
    try:
        with fetch(url, timeout=30) as page:
            return list(page.read().decode().split())
    except HTTPError as answer:
        answer.close()
        if answer.code != 429:
            raise
        # The page has not failed: no attempt counts. Nobody visits its host until then.
        pause, (host, _) = float(answer.headers["Retry-After"]), limits_of(url)
        raise RetryAfter(pause, attempt=False, limit=host) from answer


class Site(ThreadingHTTPServer):
    """A host of a few pages, which notes when each request came, and whether two came at once."""

    def __init__(self, refuses: int) -> None:
        super().__init__(("127.0.0.1", 0), Page)
        self.url = f"http://127.0.0.1:{self.server_port}/"
        self.refuses, self.visit, self.was_crowded = refuses, threading.Lock(), False
        self.times: list[float] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        site = self.server
        assert isinstance(site, Site)
        site.was_crowded |= site.visit.locked()
        with site.visit:
            site.times.append(time.monotonic())
            refused = len(site.times) == site.refuses
            time.sleep(0.005)  # a slow page
        self.send_response(429 if refused else 200)
        if refused:
            self.send_header("Retry-After", str(PAUSE))
        self.end_headers()
        first = 2 * int(self.path[1:])
        links = [f"{site.url}{link}" for link in (first, first + 1) if link <= PAGES]
        self.wfile.write(" ".join(links).encode())

    def log_message(self, format: str, *args: object) -> None: ...


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", help="the engine (memory://)")
    app.url = parser.parse_args().url
    sites = [Site(refuses=0), Site(refuses=4), Site(refuses=0)]
    started = time.monotonic()
    with app, app.worker(threads=8, queues=["crawl"]) as worker:
        jobs = [visit.send(f"{site.url}1") for site in sites]
        for job in jobs:  # grows meanwhile
            jobs += [visit.send(link) for link in job.result(timeout=30)]

    assert len(jobs) == PAGES * len(sites) and worker.figures().violations == 0
    for site in sites:
        seconds = site.times[-1] - started
        # Two at once, then one each twentieth of a second.
        assert not site.was_crowded and seconds >= 0.99 * (len(site.times) - 2) / 20
        print(f"{site.url}: {PAGES} pages in {seconds:.1f} s, one at a time")
    pause = sites[1].times[4] - sites[1].times[3]
    assert pause >= 0.99 * PAUSE
    print(f"the second host refused a request, and none came for {pause:.1f} s")


if __name__ == "__main__":
    main()
