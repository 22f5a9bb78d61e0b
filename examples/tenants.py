"""Jobs of many tenants on the same workers: two at a time of each, four of one that pays for it.

acme sends first, sends most, and its jobs hang. It occupies two threads and no more: everybody
else's jobs are done while acme's first two still run.

    python examples/tenants.py                                  in this process
    python examples/tenants.py --url redis://127.0.0.1:6379     the same on Redis
"""

import argparse
import threading
import time
from collections import Counter

from interlock import App

JOBS = {"acme": 20, "gold": 12, "bakery": 4, "florist": 4, "school": 4}
LIMITS = {"tenant:*": 2, "tenant:gold": 4}

app = App(audit=True, queues={"jobs": {"limits": LIMITS}})
lock = threading.Lock()
running, most, done = Counter[str](), Counter[str](), Counter[str]()
others_are_done = threading.Event()


@app.task(queue="jobs", limit="tenant:{tenant}", result_ttl=60)
def run(tenant: str, number: int) -> int:
    with lock:
        running[tenant] += 1
        most[tenant] = max(most[tenant], running[tenant])
    if tenant == "acme":
        others_are_done.wait(30)
    else:
        time.sleep(0.01)
    with lock:
        running[tenant] -= 1
        done[tenant] += 1
    return number


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", help="the engine (memory://)")
    app.url = parser.parse_args().url
    with app, app.worker(threads=8, queues=["jobs"]) as worker:
        jobs = {
            tenant: [run.send(tenant, number) for number in range(count)]
            for tenant, count in JOBS.items()
        }
        stuck = jobs.pop("acme")
        for some in jobs.values():
            assert [job.result(timeout=25) for job in some] == list(range(len(some)))
        assert done["acme"] == 0, "its jobs hang, and hold up nobody else"
        others_are_done.set()
        assert [job.result(timeout=25) for job in stuck] == list(range(len(stuck)))

    assert done == JOBS and worker.figures().violations == 0
    for tenant in JOBS:
        assert most[tenant] <= LIMITS.get(f"tenant:{tenant}", LIMITS["tenant:*"])
        print(f"{tenant}: {done[tenant]} jobs, at most {most[tenant]} at once")


if __name__ == "__main__":
    main()
