"""The program of every peer in Python: it enqueues, or it becomes the worker.

    python -m benchmarks.workers.program NAME enqueue|work

with the broker's URL in BENCH_BROKER, how many tasks in BENCH_COUNT, and in BENCH_DONE the named
pipe into which the handler writes a line when all are handled. The file `peers/NAME.py` has
`enqueue`, which sends a task for each number, one by one; WORKER, the command of one worker
process, by the name it has in the environment; and `prepare`, where something comes before.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
import time
from collections.abc import Awaitable
from importlib import import_module
from pathlib import Path

from benchmarks.workers.handled import COUNT


def main(name: str, what: str) -> None:
    peer = import_module(f"benchmarks.workers.peers.{name}")
    if what == "work":
        program = Path(sys.executable).parent / peer.WORKER[0]
        os.execv(program, [str(program), *peer.WORKER[1:]])
    if hasattr(peer, "prepare"):
        peer.prepare()
    start = time.perf_counter()
    going = peer.enqueue(range(COUNT))
    if inspect.isawaitable(going):
        asyncio.run(_through(going))
    print(json.dumps({"seconds": time.perf_counter() - start}))


async def _through(going: Awaitable[None]) -> None:
    await going


if __name__ == "__main__":
    main(*sys.argv[1:])
