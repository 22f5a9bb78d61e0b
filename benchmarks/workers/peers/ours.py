"""Ours: tasks with a key each, so that each message has its place in a lane.

The worker leases for as many handlers as are idle: BENCH_HANDLERS of them, so many messages at most
come with one call.
"""

import os

from benchmarks.workers.handled import BROKER, note
from interlock.app import App

app = App(BROKER)


@app.task(name="noop", keys="account:{number}")
def noop(number: int) -> None:
    note(number)


def enqueue(numbers: range) -> None:
    for number in numbers:
        noop.send(number)


WORKER = ("interlock", "worker", f"{__package__}.ours:app", "--concurrency",
          os.environ.get("BENCH_HANDLERS", "1"), "--log-level", "error")  # fmt: skip
