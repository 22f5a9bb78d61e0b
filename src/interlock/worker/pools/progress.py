"""The messages that a process of a pool has, as it and its worker see them at any time."""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
import time
from collections.abc import Sequence

__all__ = ["Progress"]


class Progress:
    """The numbers of the messages that have not begun, and the times at which the last ones began
    and ended.

    The numbers are in a pipe, from which each is read once: by the process before it begins the
    message, or by the worker that takes it back, which therefore needs no answer from a process
    that hangs or was stopped. The times are in shared memory, with how many messages of a run are
    done. Only the process writes them for the messages that it has, each at once, so the worker
    reads them although the process may be killed at any moment.
    """

    def __init__(self, descriptors: Sequence[int] = ()) -> None:
        """``descriptors``: those of the worker; without them everything is new."""
        self._ends: list[int] = []
        if descriptors:
            memory, self._unbegun = descriptors
        else:
            memory = _memory()
            self._ends.append(memory)
            try:
                self._unbegun, self._sent = os.pipe()
            except OSError:
                self.close()
                raise
            self._ends += [self._unbegun, self._sent]
            # In both processes: that belongs to the pipe.
            os.set_blocking(self._unbegun, False)
            self.descriptors = (memory, self._unbegun)
        self._times = memoryview(mmap.mmap(memory, SIZE)).cast("d")
        if descriptors:
            os.close(memory)

    def close(self) -> None:
        """Close the descriptors of the worker; the memory remains."""
        ends, self._ends = self._ends, []
        for descriptor in ends:
            os.close(descriptor)

    def send(self, first: int, count: int) -> None:
        """Let the process begin the messages with these numbers. It is sent the messages then."""
        for number in range(first, first + count):
            place = number % SLOTS * WORDS
            self._times[place] = self._times[place + 1] = self._times[place + 2] = 0.0
        numbers = range(first, first + count)
        os.write(self._sent, b"".join(number.to_bytes(WIDTH, sys.byteorder) for number in numbers))

    def take(self) -> int | None:
        """Take the number of the first message that has not begun; None: there is none."""
        try:
            data = os.read(self._unbegun, WIDTH)
        except BlockingIOError:
            return None
        # Nothing: the worker is gone.
        return int.from_bytes(data, sys.byteorder) if data else None

    def rest(self) -> list[int]:
        """Take the numbers of all messages that have not begun."""
        found: list[int] = []
        while (number := self.take()) is not None:
            found.append(number)
        return found

    def begin(self, number: int, now: float) -> None:
        """Note that a message begins, at this time.monotonic()."""
        self._times[number % SLOTS * WORDS] = now

    def end(self, number: int) -> float:
        """Note that a handler has returned, and keeps no result; return the time."""
        self._times[number % SLOTS * WORDS + 1] = now = time.monotonic()
        return now

    def report(self, number: int, done: int) -> None:
        """Note how many messages of a run are done."""
        self._times[number % SLOTS * WORDS + 2] = done

    def reported(self, number: int) -> int:
        """Return how many messages of a run are done."""
        return int(self._times[number % SLOTS * WORDS + 2])

    def times(self, number: int) -> tuple[float, float]:
        """Return the times.monotonic() at which a message began and ended so; 0: it has not."""
        place = number % SLOTS * WORDS
        return self._times[place], self._times[place + 1]


def _memory() -> int:
    """Return the descriptor of new memory of this size."""
    if hasattr(os, "memfd_create"):
        # No file: none may be writable here, and on a full disk a write to the memory of a file
        # kills the process.
        descriptor = os.memfd_create("interlock-progress")
        os.truncate(descriptor, SIZE)
        return descriptor
    with tempfile.TemporaryFile() as file:
        file.write(bytes(SIZE))
        file.flush()
        return os.dup(file.fileno())


WIDTH = 8
"""Bytes of a number in the pipe."""
SLOTS = 64
"""At least the messages that a process has, from the first to the last."""
WORDS = 3
"""Numbers of a message in the shared memory: begin, end, and messages of its run that are done."""
SIZE = SLOTS * WORDS * 8
