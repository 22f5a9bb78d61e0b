"""Jobs of five tenants on the same workers. One of them sends a hundred times as much as others.

First all wait in line: everybody waits for acme's thousand jobs. Then each tenant is a group, and
groups take turns: only acme waits for acme. gold pays for two jobs a turn.

At last acme's jobs hang. Each tenant may have two jobs at once, and gold four, so acme occupies two
threads and no more: everybody else's jobs are done while acme's first two still run.

    python examples/tenants.py                                  in this process
    python examples/tenants.py --url redis://127.0.0.1:6379     the same on Redis
"""

import argparse
import threading
import time
from collections import Counter

from interlock import App, Job

BACKLOG = {"acme": 1_000, "gold": 20, "bakery": 10, "florist": 10, "school": 10}
WEIGHTS = {"gold": 2}
JOBS = {"acme": 20, "gold": 12, "bakery": 4, "florist": 4, "school": 4}
LIMITS = {"tenant:*": 2, "tenant:gold": 4}

app = App(
    audit=True,
    queues={"turns": {"weights": WEIGHTS}, "jobs": {"weights": WEIGHTS, "limits": LIMITS}},
)
begun: list[tuple[str, float]] = []
lock = threading.Lock()
running, most, done = Counter[str](), Counter[str](), Counter[str]()
others_are_done = threading.Event()


@app.task(queue="line", result_ttl=60)
def wait_in_line(tenant: str) -> None:
    begun.append((tenant, time.monotonic()))
    time.sleep(0.001)


@app.task(queue="turns", group="{tenant}", result_ttl=60)
def take_turns(tenant: str) -> None:
    begun.append((tenant, time.monotonic()))
    time.sleep(0.001)


@app.task(queue="jobs", group="{tenant}", limit="tenant:{tenant}", result_ttl=60)
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
    app.url = parser.parse_args().url or "memory://"
    with app:
        compare()
        hang()


def compare() -> None:
    """Print how long each tenant waited for its last job, in line and with turns."""
    in_line, in_turns = waits("line"), waits("turns")
    rounds = sum(WEIGHTS.get(tenant, 1) for tenant in BACKLOG)
    print("tenant    jobs   the last begins in line     with turns")
    for tenant, count in BACKLOG.items():
        (place, wait), (turn, less) = in_line[tenant], in_turns[tenant]
        print(f"{tenant:8}{count:6} {place:8}th, {wait:6.2f} s {turn:9}th, {less:6.2f} s")
        assert place >= BACKLOG["acme"]
        # Ten rounds, in which each group has its turn.
        assert tenant == "acme" or turn <= 10 * rounds


def waits(queue: str) -> dict[str, tuple[int, float]]:
    """Send the backlog, acme's first; return when each tenant's last job began: place, seconds."""
    begun.clear()
    task = take_turns if queue == "turns" else wait_in_line
    jobs: list[Job[None]] = []
    for tenant, count in BACKLOG.items():
        jobs += [task.send(tenant) for _ in range(count)]
    started = time.monotonic()
    # One thread, which begins the jobs in the order in which they are leased.
    with app.worker(threads=1, queues=[queue]):
        for job in jobs:
            job.result(timeout=30)
    return {tenant: (place, at - started) for place, (tenant, at) in enumerate(begun, 1)}


def hang() -> None:
    """Let acme's jobs hang."""
    with app.worker(threads=8, queues=["jobs"]) as worker:
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
