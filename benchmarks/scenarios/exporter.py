"""`interlock exporter`: one scrape of 1,000 queues, from the request to the last byte of the page.

Between two scrapes a message is put into each queue, so that no reply is as it was before.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import urlopen

from benchmarks.interpreters import environment
from benchmarks.row import Pair, Row, Sample
from benchmarks.servers import Kind, started
from interlock.client.faces.client import Client, connect

QUEUES = 1_000
SCRAPES = 5


def scraped(kind: Kind) -> Pair:
    """Measure the median ms of a scrape."""
    with started(kind) as server:
        scheme = "interlock" if kind == "hub" else "redis"
        url = f"{scheme}://127.0.0.1:{server.port}"
        with connect(url) as client, served("exporter", url) as (_, page):
            fill(client)
            fetched(page)
            took = []
            for _ in range(SCRAPES):
                fill(client)
                # The names of queues are listed anew when a second has passed.
                time.sleep(1.1)
                began = time.perf_counter()
                text = fetched(page)
                took.append((time.perf_counter() - began) * 1e3)
    lost = QUEUES - text.count(b"\ninterlock_queue_puts_total{")
    return Pair(Sample(sorted(took)[SCRAPES // 2], QUEUES, lost))


def fill(client: Client) -> None:
    """Put a message into each queue."""
    for number in range(QUEUES):
        client.queue(f"queue-{number}", bytes).put(b"x", keys=b"k")


@contextmanager
def served(subcommand: str, url: str) -> Iterator[tuple[int, str]]:
    """Run a subcommand that serves a page, and yield the pid and the URL of the page."""
    command = [sys.executable, "-m", "interlock", subcommand, "--url", url, "--port", "0"]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.pid, process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def fetched(page: str) -> bytes:
    """Return a page."""
    with urlopen(page) as answer:
        body: bytes = answer.read()
    return body


def _row(kind: Kind, name: str) -> Row:
    return Row(
        name=f"exporter/{kind}",
        title=f"a scrape of 1,000 queues on {name}",
        table="Seeing",
        peer="",
        bar=100,
        unit="ms",
        unseen=False,
        pairs=3,
        pair=lambda _: scraped(kind),
    )


ROWS = (_row("redis", "Redis"), _row("hub", "the hub"))
