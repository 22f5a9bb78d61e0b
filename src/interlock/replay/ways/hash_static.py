"""A queue for each of N threads; the hash of a message's first key chooses the queue.

The usual solution. With one key a message it keeps order, and keys that share a queue wait for each
other. A message of several keys has no queue that would be right for all of them: it goes to its
first key's queue, and the auditor counts the violations for the others. The other usual solution,
one queue for all messages of several keys, does not keep order either. There are no readers here: a
shared key counts as any other. Unkeyed messages go round robin.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import count
from queue import SimpleQueue

from interlock.replay.trace import Message
from interlock.replay.ways.base import Job, Pool, Shape, Way, lane_of, run_threads, with_processes


def run(job: Job) -> None:
    """Handle every message on the thread that its first key is hashed to."""
    lines: list[SimpleQueue[int | None]] = [SimpleQueue() for _ in range(job.workers)]
    unkeyed = count()

    def work(worker: int) -> None:
        line = lines[worker]
        while (index := line.get()) is not None:
            job.handle(index, worker)

    def feed() -> None:
        for index, message in enumerate(job.messages):
            keys = message.keys or message.shared
            lane = lane_of(keys[0], len(lines)) if keys else next(unkeyed) % len(lines)
            job.watch.put(index)
            lines[lane].put(index)
        stop()

    def stop() -> None:
        for line in lines:
            line.put(None)

    run_threads([partial(work, worker) for worker in range(job.workers)], feed, stop)


def shape(messages: Sequence[Message], workers: int, pool: Pool) -> Shape:
    """Return the shape: a lane a thread."""
    return with_processes(workers, workers, workers, pool)


WAY = Way("hash", "static hash of the first key", ("thread", "process"), run, shape)
