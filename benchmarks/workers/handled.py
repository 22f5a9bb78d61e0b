"""The settings given to a peer's handler at its start, and the whole work of a task: nothing, or
BENCH_BUSY µs of CPU.

Nothing here needs Interlock: it runs in the peer's environment.
"""

from __future__ import annotations

import itertools
import json
import os
import time

BROKER = os.environ.get("BENCH_BROKER", "redis://127.0.0.1:6379/0")
COUNT = int(os.environ.get("BENCH_COUNT", "0"))
DONE = os.environ.get("BENCH_DONE", "")
BUSY = int(os.environ.get("BENCH_BUSY", "0"))


def note(number: int) -> None:
    """Do the work of a task, and note that it was handled."""
    global _first, _used
    if BUSY:
        until = time.thread_time_ns() + BUSY * 1_000
        while time.thread_time_ns() < until:
            pass
    place = next(_places)
    if place == 0:
        _first = time.monotonic_ns()
        _used = time.process_time()
    _seen[number] = 1
    if place == COUNT - 1:
        last = time.monotonic_ns()
        used = time.process_time() - _used
        work = BUSY / 1e6 * (COUNT - 1)
        line = {"seconds": (last - _first) / 1e9, "cpu": used, "handled": _seen.count(1)}
        line["beyond"] = used - work
        with open(DONE, "w") as pipe:
            print(json.dumps(line), file=pipe)


_places = itertools.count()
_seen = bytearray(COUNT)
_first = 0
_used = 0.0
