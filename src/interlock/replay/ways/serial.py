"""One thread, one message after the other: exact order, no concurrency."""

from __future__ import annotations

from collections.abc import Sequence
from queue import SimpleQueue

from interlock.replay.trace import Message
from interlock.replay.ways.base import Job, Pool, Shape, Way, run_threads, with_processes


def run(job: Job) -> None:
    """Handle every message in the trace's order."""
    line: SimpleQueue[int | None] = SimpleQueue()

    def work() -> None:
        while (index := line.get()) is not None:
            job.handle(index, 0)

    def feed() -> None:
        for index in range(len(job.messages)):
            job.watch.put(index)
            line.put(index)
        line.put(None)

    run_threads([work], feed, lambda: line.put(None))


def shape(messages: Sequence[Message], workers: int, pool: Pool) -> Shape:
    """Return the shape: one of each."""
    return with_processes(1, 1, 1, pool)


WAY = Way("serial", "one thread", ("thread", "process"), run, shape)
