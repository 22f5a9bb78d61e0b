"""A thread for work after a handler's end that must not delay the next handler."""

from __future__ import annotations

import atexit
import logging
import queue as _queue
import threading
from collections.abc import Callable

from interlock.runtime import forks

__all__ = ["Afterwards"]

_log = logging.getLogger("interlock.worker")


class Afterwards:
    """Runs jobs one after the other, on a thread that is started with the first.

    Nothing is dropped: the rest is done when the interpreter ends, and if the thread falls behind,
    the caller with the next job runs it itself.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: _queue.SimpleQueue[Callable[[], object]] = _queue.SimpleQueue()
        self._forks = -1
        self._starting = threading.Lock()

    def do(self, job: Callable[[], object]) -> None:
        """Queue a job; run it immediately, on this thread, if too many wait already."""
        if self._forks != forks.count:
            self._start()
        if self._jobs.qsize() < MOST_WAITING:
            self._jobs.put(job)
        else:
            _done(job)

    def drain(self) -> None:
        """Wait until the jobs queued before this call are done, for at most 3 seconds."""
        if self._forks == forks.count:
            done = threading.Event()
            self._jobs.put(done.set)
            done.wait(LONGEST_DRAIN)

    def _start(self) -> None:
        with self._starting:
            if self._forks == forks.count:
                return
            # At first, and in the child of a fork, which has no thread: the remaining jobs belong
            # to the parent.
            self._jobs = _queue.SimpleQueue()
            self._forks = forks.count
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
        _log.exception("a call scheduled for after a message was handled raised")


MOST_WAITING = 1000
LONGEST_DRAIN = 3.0
