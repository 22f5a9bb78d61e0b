"""N key threads; a message of several keys waits until all the threads of its keys have arrived.

After keysync, a C++ work queue of 2019. The keys of a message are hashed to threads, and the
message goes into the queue of each of them. A thread that reaches it decrements its count; the one
that brings the count to zero handles it, and the others sleep until it has, delaying the messages
behind it in their own queues. Messages without keys go round robin to threads of their own.

As there, one lock guards the count of all messages and every completion wakes all sleepers. Unlike
there, a single thread puts, so that two messages are in the same order in every queue: with two,
keysync can deadlock. A shared key counts as any other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from queue import SimpleQueue

from interlock.replay.trace import Message
from interlock.replay.ways.base import Job, Pool, Shape, Way, lane_of, run_threads, with_processes


def run(job: Job) -> None:
    """Handle every message when all threads of its keys have arrived."""
    key_lines: list[SimpleQueue[int | None]] = [SimpleQueue() for _ in range(job.workers)]
    other_lines: list[SimpleQueue[int | None]] = [
        SimpleQueue() for _ in range(_other_threads(job.messages))
    ]
    meetings = _Meetings()
    unkeyed = count()

    def work(worker: int) -> None:
        line = key_lines[worker]
        while (index := line.get()) is not None:
            if meetings.arrive(index):
                job.handle(index, worker)
                meetings.leave(index)

    def work_unkeyed(other: int) -> None:
        line = other_lines[other]
        while (index := line.get()) is not None:
            job.handle(index, job.workers + other)

    def feed() -> None:
        for index, message in enumerate(job.messages):
            lanes = {lane_of(key, job.workers) for key in (*message.keys, *message.shared)}
            job.watch.put(index)
            if not lanes:
                other_lines[next(unkeyed) % len(other_lines)].put(index)
                continue
            meetings.expect(index, len(lanes))
            for lane in lanes:
                key_lines[lane].put(index)
        for line in (*key_lines, *other_lines):
            line.put(None)

    def stop() -> None:
        meetings.cancel()
        for line in (*key_lines, *other_lines):
            line.put(None)

    loops: list[Callable[[], None]] = [partial(work, worker) for worker in range(job.workers)]
    loops += [partial(work_unkeyed, other) for other in range(len(other_lines))]
    run_threads(loops, feed, stop)


class _Meetings:
    """Counts the threads that have not yet arrived at each message of several threads."""

    def __init__(self) -> None:
        self._missing: dict[int, int] = {}
        self._done = threading.Condition()
        self._cancelled = False

    def expect(self, index: int, threads: int) -> None:
        if threads > 1:
            with self._done:
                self._missing[index] = threads

    def arrive(self, index: int) -> bool:
        """Return True for the last to arrive, which must handle it.

        For the others wait until it has been handled, and return False. A message of one thread
        never waits.
        """
        with self._done:
            if index not in self._missing:
                return True
            self._missing[index] -= 1
            if not self._missing[index]:
                return True
            while index in self._missing and not self._cancelled:
                self._done.wait()
            return False

    def leave(self, index: int) -> None:
        with self._done:
            if self._missing.pop(index, None) is not None:
                self._done.notify_all()

    def cancel(self) -> None:
        with self._done:
            self._cancelled = True
            self._done.notify_all()


def _other_threads(messages: Sequence[Message]) -> int:
    return 1 if any(not message.keys and not message.shared for message in messages) else 0


def shape(messages: Sequence[Message], workers: int, pool: Pool) -> Shape:
    """Return the shape: a lane a key thread, and one thread more if anything is unkeyed."""
    return with_processes(workers + _other_threads(messages), workers, workers, pool)


WAY = Way("rendezvous", "hash threads with a rendezvous", ("thread", "process"), run, shape)
