"""The progress of a process of a pool, in memory that it shares with its worker."""

from __future__ import annotations

import mmap
import os
import tempfile
import time

__all__ = ["Progress"]


class Progress:
    """The times at which a process began and ended its last messages, by their numbers.

    Only the process writes there while it has messages. Each time is written at once, so the worker
    reads it although the process may be killed at any moment.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        """``descriptor``: that of the worker's memory; it is closed. None: the memory is new."""
        if descriptor is None:
            self.descriptor = _memory()
        else:
            self.descriptor = descriptor
        try:
            self._times = memoryview(mmap.mmap(self.descriptor, SIZE)).cast("d")
        finally:
            if descriptor is not None:
                self.close()

    def close(self) -> None:
        """Close the descriptor; the memory remains."""
        os.close(self.descriptor)

    def clear(self, first: int, count: int) -> None:
        """Note that messages with these numbers have not begun. Called before they are sent."""
        for number in range(first, first + count):
            place = number % SLOTS * 2
            self._times[place] = self._times[place + 1] = 0.0

    def begin(self, number: int) -> None:
        """Note that a message begins."""
        self._times[number % SLOTS * 2] = time.monotonic()

    def end(self, number: int) -> float:
        """Note that a handler has returned, and keeps no result; return the time."""
        self._times[number % SLOTS * 2 + 1] = now = time.monotonic()
        return now

    def times(self, number: int) -> tuple[float, float]:
        """Return the times.monotonic() at which a message began and ended so; 0: it has not."""
        place = number % SLOTS * 2
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


SLOTS = 64
"""At least the messages that a process is sent at once."""
SIZE = SLOTS * 16
