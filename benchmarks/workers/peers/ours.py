"""Ours: tasks with a key each, so that each message has its place in a lane.

BENCH_HANDLERS is the concurrency, where it is not the default; with BENCH_POOL=asyncio the task is
a coroutine, and runs on the loop of the asyncio pool.
"""

import os

from benchmarks.workers.handled import BROKER, note
from interlock.app import App

HANDLERS = os.environ.get("BENCH_HANDLERS")
POOL = os.environ.get("BENCH_POOL", "thread")

app = App(BROKER)

if POOL == "asyncio":

    @app.task(name="noop", keys="account:{number}")
    async def noop(number: int) -> None:
        note(number)

else:

    @app.task(name="noop", keys="account:{number}")
    def noop(number: int) -> None:
        note(number)


def enqueue(numbers: range) -> None:
    for number in numbers:
        noop.send(number)


WORKER = ("interlock", "worker", f"{__package__}.ours:app", "--pool", POOL,
          *(("--concurrency", HANDLERS) if HANDLERS else ()), "--log-level", "error")  # fmt: skip
