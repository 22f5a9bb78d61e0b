"""The number of idle handlers, and the queue that may lease for them next."""

from __future__ import annotations

import collections
import threading

__all__ = ["Slots"]


class Slots:
    """The places of a pool, shared by the feeders of all queues.

    A feeder takes places before it leases, so that nothing is leased that no handler is idle for.
    While it only waits for work it keeps one place; of the others, all may be taken by those who
    find work. Where places are short, the feeders take turns.
    """

    def __init__(self, size: int, feeders: int, lock: threading.RLock | None = None) -> None:
        self.size = size
        self.free = size
        self.lock = lock or threading.RLock()
        """Guards all state of a worker that several threads change."""

        self.tight = feeders > 1 and size <= feeders
        """There may be fewer places than queues: nobody should wait long while holding one."""

        self._several = feeders > 1
        self._extra = 0
        self._line: collections.deque[threading.Condition] = collections.deque()

    def take(self, bell: threading.Condition, to_wait: bool = False) -> int:
        """Takes places for a call: all that are free, but one if the call is `to_wait`; 0: it is
        not this feeder's turn, and its bell rings when it is. With the lock held."""
        if self._line and self._line[0] is not bell and self.free <= len(self._line):
            if bell not in self._line:
                self._line.append(bell)
            return 0
        if self.free <= 0:
            if bell not in self._line:
                self._line.append(bell)
            return 0
        if bell in self._line:
            self._line.remove(bell)
        taken = 1 if to_wait and self._several else min(self.free, self.size)
        self.free -= taken
        if self.free and self._line:
            self._line[0].notify()
        return taken

    def take_ahead(self) -> int:
        """Takes places for a call that nobody waits for; 0: there are none. With the lock held."""
        taken = max(0, min(self.free, self.size))
        self.free -= taken
        return taken

    def widen(self, times: int) -> None:
        """Adds so many times the places there are, for what is leased ahead; 0: they are taken
        away again, those in use when they are given back. With the lock held."""
        extra = times * self.size
        self.free += extra - self._extra
        self._extra = extra

    def give(self, count: int) -> None:
        """Gives places back. With the lock held."""
        self.free += count
        if count and self._line:
            self._line[0].notify()
