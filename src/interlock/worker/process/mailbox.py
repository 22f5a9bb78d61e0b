"""Mailbox of a process's main thread: messages of other threads, and signals."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
import time
from collections.abc import Iterable
from typing import Generic, TypeVar, cast

Item = TypeVar("Item")


class Mailbox(Generic[Item]):
    """A queue that the main thread reads, and to which signal handlers write."""

    def __init__(self) -> None:
        # A signal handler may put into a SimpleQueue.
        self._queue: queue.SimpleQueue[Item | _Woken] = queue.SimpleQueue()
        self.put = cast("queue.SimpleQueue[Item]", self._queue).put

    def get(self, timeout: float | None = None) -> Item:
        """Return the next item, once there is one. Raises queue.Empty after `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if until is None else max(0.0, until - time.monotonic())
            if not isinstance(item := self._queue.get(timeout=left), _Woken):
                return item

    def tell_of(self, numbers: Iterable[int], item: Item) -> None:
        """Put the item whenever one of these signals arrives. Called once, by the main thread.

        Python runs a signal handler only on the main thread, between two instructions. The system
        may deliver the signal to any thread, and a main thread that waits for a lock does not
        notice it. So another thread reads the byte that the interpreter writes on a signal, and
        wakes the main thread.
        """
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        for number in numbers:
            signal.signal(number, lambda *_: self.put(item))
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        threading.Thread(
            target=self._wake, args=(reader,), name="interlock-signals", daemon=True
        ).start()

    def _wake(self, reader: int) -> None:
        with contextlib.suppress(OSError):
            while os.read(reader, 512):
                self._queue.put(_WOKEN)


class _Woken:
    """Item that only makes the main thread run a pending signal handler."""


_WOKEN = _Woken()
