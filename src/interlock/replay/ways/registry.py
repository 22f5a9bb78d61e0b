"""One queue and a register of the keys in use: get scans for a message whose keys are free.

After SequentialQueue, a Java class from a blog post. Every get, put and completion scans from the
head of the queue for the first message that is not registered; that message is the next to be
taken. There a message has one key; here it is skipped while any of its keys is registered. So {b}
passes an {a, b} that waits for {a}: nothing keeps b for it. The auditor counts that. A shared key
counts as any other; a message without keys is always free.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

from interlock.replay.trace import Message
from interlock.replay.ways.base import Job, Way, one_lane_a_key, run_threads


def run(job: Job) -> None:
    """Handle every message when a scan finds its keys free."""
    queue = RegistryQueue(job.messages)

    def work(worker: int) -> None:
        while (index := queue.get()) is not None:
            job.handle(index, worker)
            queue.complete(index)

    def feed() -> None:
        for index in range(len(job.messages)):
            job.watch.put(index)
            queue.put(index)
        queue.close()

    loops = [partial(work, worker) for worker in range(job.workers)]
    run_threads(loops, feed, queue.cancel)


class RegistryQueue:
    """Waiting messages in order, keys in use, and the next message to be taken, if any."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._keys = [frozenset((*message.keys, *message.shared)) for message in messages]
        # A dict keeps its order and removes from the middle in constant time, as a linked list
        # does.
        self._waiting: dict[int, frozenset[str]] = {}
        self._registered: set[str] = set()
        self._next: int | None = None
        self._closed = False
        self._changed = threading.Condition()

    def put(self, index: int) -> None:
        """Add at the tail."""
        with self._changed:
            keys = self._waiting[index] = self._keys[index]
            if self._next is None and self._registered.isdisjoint(keys):
                self._next = index
                self._changed.notify()

    def get(self) -> int | None:
        """Wait for a message with free keys and register them; return None when all are done."""
        with self._changed:
            while self._next is None:
                if self._closed and not self._waiting:
                    return None
                self._changed.wait()
            index = self._next
            self._registered |= self._waiting.pop(index)
            self._scan()
            return index

    def complete(self, index: int) -> None:
        """Free the keys of a handled message."""
        with self._changed:
            self._registered -= self._keys[index]
            self._scan()

    def close(self) -> None:
        """Note that no more messages will be put."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def cancel(self) -> None:
        """Close, and drop the waiting messages."""
        with self._changed:
            self._waiting.clear()
            self._next = None
            self._closed = True
            self._changed.notify_all()

    def _scan(self) -> None:
        free = self._registered.isdisjoint
        self._next = next((index for index, keys in self._waiting.items() if free(keys)), None)
        if self._next is not None:
            self._changed.notify()
        elif self._closed and not self._waiting:
            self._changed.notify_all()


WAY = Way("registry", "one queue that scans a registry", ("thread", "process"), run, one_lane_a_key)
