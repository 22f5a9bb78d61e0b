"""A thread for what can be done after a handler has ended, and is not to hold up the next."""

from __future__ import annotations

import atexit
import logging
import os
import queue as _queue
import threading
from collections.abc import Callable

__all__ = ["Afterwards"]

_log = logging.getLogger("interlock.worker")


class Afterwards:
    """Runs jobs one after the other, on a thread that is started with the first.

    None is left out: what is there when the interpreter ends is done then, and while more is there
    than the thread gets done, who has the next does it himself.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: _queue.SimpleQueue[Callable[[], object]] = _queue.SimpleQueue()
        self._process = 0
        self._starting = threading.Lock()

    def do(self, job: Callable[[], object]) -> None:
        """Have it done; at once, on this thread, if too much is to be done already."""
        if self._process != os.getpid():
            self._start()
        if self._jobs.qsize() < MOST_WAITING:
            self._jobs.put(job)
        else:
            _done(job)

    def drain(self) -> None:
        """Wait until all is done that was there when this was called, for at most 3 seconds."""
        if self._process == os.getpid():
            done = threading.Event()
            self._jobs.put(done.set)
            done.wait(LONGEST_DRAIN)

    def _start(self) -> None:
        with self._starting:
            if self._process == os.getpid():
                return
            # At first, and in the child of a fork, where no thread is: what was to be done there
            # is the parent's.
            self._jobs = _queue.SimpleQueue()
            self._process = os.getpid()
            atexit.register(self.drain)
            threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def _run(self) -> None:
        jobs = self._jobs
        while True:
            _done(jobs.get())


def _done(job: Callable[[], object]) -> None:
    try:
        job()
    except Exception:
        _log.exception("what was to be done after a message was handled raised")


MOST_WAITING = 1000
LONGEST_DRAIN = 3.0
