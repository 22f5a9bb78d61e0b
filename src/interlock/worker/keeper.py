"""A thread that looks after held messages: what becomes of them by time alone.

- A message that no handler has begun within 100 ms goes back, for it holds its lanes closed.
- A handler that keeps the thread which leases has another take its place.
- A handler that runs longer than it may loses its lease, and its stack is logged.
- A message of an unknown task is set aside for a while and then goes back.
"""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from interlock.worker.pace import LATE, LOOK, Pace
from interlock.worker.running import Running
from interlock.worker.work import TaskLease

__all__ = ["Aside", "Keeper"]

_log = logging.getLogger("interlock.worker")


@dataclass(slots=True)
class Aside:
    """A message that this worker cannot handle, leased until it goes back."""

    until: float
    lease: Any
    held: TaskLease
    feeder: Any


class Keeper:
    """Looks after what a worker holds."""

    def __init__(
        self,
        running: Callable[[], list[Running]],
        give_back: Callable[[Running], None],
        revoke: Callable[[Running, float], None],
        put_back: Callable[[Aside], None],
        tell_lost: Callable[[Running], None],
        relieve: Callable[[Running], None],
        pace: Pace,
    ) -> None:
        self._relieve, self._pace = relieve, pace
        self._running = running
        self._give_back, self._revoke, self._put_back = give_back, revoke, put_back
        self._tell_lost = tell_lost
        self._bell = threading.Condition()
        self._asleep = False
        self._used = False
        """There was something since the last look."""
        self._stopped = False
        self._aside: list[Aside] = []
        self._seen: collections.OrderedDict[tuple[str, int], int] = collections.OrderedDict()
        self._thread = threading.Thread(target=self._run, name="interlock-keeper", daemon=True)

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def stop(self) -> None:
        """Looks no more."""
        with self._bell:
            self._stopped = True
            self._bell.notify()

    def wake(self) -> None:
        """There is something to look at; while there was, it looks by itself."""
        # Handlers that take no time are over before a look: to be woken for each is dear.
        self._used = True
        if self._asleep:
            with self._bell:
                self._bell.notify()

    def set_aside(self, lease: Any, held: TaskLease, feeder: Any) -> float:
        """Keeps a message of an unknown task for a while, in which its lanes stay closed as in a
        backoff; then it goes back with its attempt unchanged. Answers for how many seconds: none
        the first time, so that a worker that knows the task may have it at once, then 1, 2, 4 and
        so on."""
        number = (held.queue, held.id)
        times = self._seen.pop(number, 0)
        self._seen[number] = times + 1
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        seconds = 0.0 if times == 0 else min(2.0 ** min(times - 1, 10), LONGEST_ASIDE)
        aside = Aside(time.monotonic() + seconds, lease, held, feeder)
        if not seconds:
            self._put_back(aside)
            return seconds
        with self._bell:
            self._aside.append(aside)
        self.wake()
        return seconds

    def full(self) -> bool:
        """So much is set aside that the worker should lease no more for now."""
        return len(self._aside) >= MOST_ASIDE

    def all_aside(self) -> list[Aside]:
        """Takes all that is set aside; they are the caller's to put back."""
        with self._bell:
            taken, self._aside = self._aside, []
            return taken

    def _run(self) -> None:
        while not self._stopped:
            try:
                found = self._look()
            except Exception:
                _log.exception("the worker's keeper failed; it goes on")
                found = True
            with self._bell:
                if self._stopped:
                    return
                # Looked at again: what came since the look found this awake and did not ring.
                self._asleep = not found and not self._aside and not self._used
                self._used = False
                if self._asleep and (self._running() or self._used):
                    self._asleep = False
                tick = LOOK if self._pace.quick else TICK
                self._bell.wait(None if self._asleep else tick)
                self._asleep = False

    def _look(self) -> bool:
        now = time.monotonic()
        running = self._running()
        for each in running:
            if each.over:
                continue
            if each.started is None:
                if now - each.offered > LONGEST_UNSTARTED:
                    self._give_back(each)
                continue
            if each.at == each.feeder.taker and now - each.started > LATE:
                self._relieve(each)
            if each.held.lost:
                self._tell_lost(each)
            if (limit := each.invocation.timeout) is not None and now - each.started >= limit:
                self._revoke(each, limit)
        with self._bell:
            due = [aside for aside in self._aside if aside.until <= now]
            self._aside = [aside for aside in self._aside if aside.until > now]
        for aside in due:
            self._put_back(aside)
        return bool(running)


TICK = 0.05
LONGEST_UNSTARTED = 0.1
LONGEST_ASIDE = 30.0
MOST_ASIDE = 256
REMEMBERED = 10_000
