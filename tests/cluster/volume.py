"""Many changes through two data centres that are cut apart again and again.

    python -m tests.cluster.volume --changes 1000000

Writers in both raise sums and set columns of the same rows; at the end both have the same rows, and
each sum is exact. It prints how long it took, and how far behind the data centres were.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from redis import Redis

from interlock.cluster.transfer import scan
from tests.cluster.test_links import Two
from tests.cluster.test_node import status

KEYS = 5_000
BATCH = 200


def main() -> int:
    """Run it, and return 0 where all is well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--cuts", type=float, default=5.0, help="seconds between two changes of it")
    given = parser.parse_args()
    chance = random.Random(given.seed)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        two = Two(stack, folder, keep=1_000_000)
        sums: Counter[str] = Counter()
        ends = threading.Event()
        lags: list[float] = []
        began = time.monotonic()
        writers = [
            threading.Thread(target=write, args=(node.address, given.changes // 2, seed, sums))
            for seed, node in enumerate(two.nodes.values())
        ]
        watcher = threading.Thread(target=watch, args=(two, lags, ends))
        for thread in (*writers, watcher):
            thread.start()
        cuts = 0
        while any(thread.is_alive() for thread in writers):
            writers[0].join(chance.uniform(0.5, 1.5) * given.cuts)
            two.cut()
            cuts += 1
            writers[1].join(chance.uniform(0.2, 1.0) * given.cuts)
            two.heal()
            done = sum(status(node)["seq"] for node in two.nodes.values())
            print(f"{done:,} changes applied, {cuts} cuts", file=sys.stderr, flush=True)
        written = time.monotonic() - began
        found = converged(two, sums)
        took = time.monotonic() - began
        ends.set()
        watcher.join()
    told = {
        "seed": given.seed, "changes": given.changes, "cuts": cuts, "equal": found,
        "seconds written": round(written, 1), "seconds until equal": round(took, 1),
        "link lag ms, median": round(statistics.median(lags), 1), "longest": round(max(lags), 1),
    }  # fmt: skip
    print(json.dumps(told))
    return 0 if found else 1


def write(address: str, changes: int, seed: int, sums: Counter[str]) -> None:
    """Raise sums, by so many changes, over sixteen connections in turn."""
    chance, host, port = random.Random(seed), *address.rsplit(":", 1)
    lock = threading.Lock()

    def some(count: int, number: int) -> None:
        own, mine = random.Random(chance.random() + number), Counter[str]()
        with Redis(host, int(port)) as client:
            for _ in range(count):
                key = f"k{own.randrange(KEYS)}"
                client.hincrby(f"presence:{key}", "unread", 1)
                mine[key] += 1
        with lock:
            sums.update(mine)

    threads = [threading.Thread(target=some, args=(changes // 16, n)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def watch(two: Two, lags: list[float], ends: threading.Event) -> None:
    """Note every second how far behind each data centre is of what the other has written."""
    while not ends.wait(1.0):
        for node in two.nodes.values():
            for link in status(node)["links"]:
                lags.append(max(link["lag_ms"], link["silent_ms"]))


def converged(two: Two, sums: Counter[str]) -> bool:
    """Wait until both have the same rows, and see that the sums are those that were written."""
    until = time.monotonic() + 600
    while time.monotonic() < until:
        states = [rows(node.address) for node in two.nodes.values()]
        if states[0] == states[1]:
            break
        time.sleep(0.5)
    else:
        return False
    node = next(iter(two.nodes.values()))
    host, port = node.address.rsplit(":", 1)
    with Redis(host, int(port), decode_responses=True) as client:
        found: Any = {key: int(client.hget(f"presence:{key}", "unread") or 0) for key in sums}
    return bool(found == dict(sums))


def rows(address: str) -> dict[bytes, bytes]:
    """Return the states of all rows of a node."""
    return {key: state for _, page in scan(address) for key, state in page}


if __name__ == "__main__":
    sys.exit(main())
