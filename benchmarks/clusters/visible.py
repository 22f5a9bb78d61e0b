"""From a change at one node until a process beside another sees it in that node's table; and
from XADD until another process has the entry by XREAD, both by redis-py.

    python -m benchmarks.clusters.visible ours|peer PLACE COUNT

is the process that looks. It prints for each change how many ns it took; the next one is made a
moment later. PLACE is the file of the replica's table, or the port of the engine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import redis

from benchmarks.clusters.nodes import TABLE, Cluster, Presence
from benchmarks.interpreters import ROOT, environment
from benchmarks.row import Sample
from benchmarks.servers import prepare
from interlock import SharedTable

KEY = "300000000"
STREAM = "hop"
PACE = 0.002
"""Seconds until the next change: the waiting process sleeps again."""
LONGEST = 20.0
"""Seconds for which the process looks for one."""


def row_to_node(cluster: Cluster, changes: int) -> Sample:
    """Measure ours: the median, in µs, from HSET at one node."""
    first, second = cluster.nodes
    with first.client() as client:
        client.execute_command("HSET", f"{TABLE}:{KEY}", "app_id", 666, "token", "")
        with second.rows() as rows:
            while KEY not in rows:
                time.sleep(0.001)

        def change(stamp: str) -> None:
            client.execute_command("HSET", f"{TABLE}:{KEY}", "token", stamp)

        return _measure("ours", str(second.path), changes, change)


def entry_to_reader(cluster: Cluster, changes: int) -> Sample:
    """Measure one hop through a stream of the same engine."""
    with redis.Redis(port=cluster.engine.port, single_connection_client=True) as client:
        client.delete(STREAM)
        client.xadd(STREAM, {"e": ""})

        def change(stamp: str) -> None:
            # The bytes of the row's key and column.
            client.xadd(STREAM, {"e": f"{KEY}{stamp}"})

        return _measure("peer", str(cluster.engine.port), changes, change)


def _measure(side: str, place: str, changes: int, change: Callable[[str], None]) -> Sample:
    with subprocess.Popen(
        [sys.executable, "-m", __name__, side, place, str(changes)],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: prepare(None),
    ) as looking:
        assert looking.stdout is not None
        if looking.stdout.readline() != "ready\n":
            raise RuntimeError(f"{side} did not begin to look")
        took: list[float] = []
        answered: list[float] = []
        for _ in range(changes):
            time.sleep(PACE)
            began = time.monotonic_ns()
            change(f"{began:064d}")
            answered.append((time.monotonic_ns() - began) / 1e3)
            line = looking.stdout.readline()
            if not line:
                raise RuntimeError(f"{side}: {len(took)} of {changes} were seen")
            took.append(int(line) / 1e3)
    took.sort()
    answered.sort()
    part = {f"p{part}_us": took[len(took) * part // 100] for part in (90, 99)}
    part["answered_us"] = answered[len(answered) // 2]
    return Sample(took[len(took) // 2], changes, details=part)


def _main(side: str, place: str, count: str) -> None:
    seen = _rows(Path(place)) if side == "ours" else _entries(int(place))
    next(seen)
    print("ready", flush=True)
    for _ in range(int(count)):
        print(next(seen), flush=True)
    seen.close()


def _rows(path: Path) -> Generator[int]:
    """Look at one column again and again, and let others have the core between two looks."""
    # A reader must not delay those that have work to do.
    os.nice(10)
    get: Any = SharedTable.attach(path, Presence).get_column
    give_way, last = os.sched_yield, get(KEY, "token")
    yield 0
    while True:
        end = time.monotonic() + LONGEST
        while (found := get(KEY, "token")) == last:
            give_way()
            if time.monotonic() > end:
                return
        yield time.monotonic_ns() - int(found)
        last = found


def _entries(port: int) -> Generator[int]:
    with redis.Redis(port=port, single_connection_client=True) as client:
        found: Any = client.xrevrange(STREAM, count=1)
        after = found[0][0]
        yield 0
        while found := client.xread({STREAM: after}, block=round(LONGEST * 1000)):
            now = time.monotonic_ns()
            after, fields = found[0][1][0]
            yield now - int(fields[b"e"][len(KEY) :])


if __name__ == "__main__":
    _main(*sys.argv[1:])
