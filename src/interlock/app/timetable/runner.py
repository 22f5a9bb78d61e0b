"""The threads by which a worker keeps its app's timetable, one for each queue with entries."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from interlock.app.timetable.entry import Entry
from interlock.app.timetable.keeper import Keeper
from interlock.errors import EngineUnavailable, Full, InterlockError, ShutDown

__all__ = ["Runner", "by_queue"]

_log = logging.getLogger("interlock.timetable")


class Runner:
    """A worker's part in the timetable: from ``start`` until ``stop``."""

    def __init__(
        self,
        entries: Iterable[Entry],
        queues: Iterable[str],
        open_queue: Callable[..., Any],
        lease: float,
    ) -> None:
        """Note the entries to keep.

        Args:
            queues: the worker's queues: it fires the calls that it could handle.
            lease: seconds after which a killed worker's timer is leased by another.
        """
        self._lease = lease
        wanted = set(queues)
        self._entries = {name: found for name, found in by_queue(entries).items() if name in wanted}
        self._open_queue = open_queue
        self._keepers: list[Keeper] = []
        self._threads: list[threading.Thread] = []
        self._stopped = threading.Event()

    @property
    def names(self) -> list[str]:
        """The names of the entries whose ticks it sends."""
        return [name for entries in self._entries.values() for name in entries]

    def start(self) -> None:
        """Begin."""
        for name, entries in self._entries.items():
            keeper = Keeper(name, entries, self._open_queue, self._lease)
            self._keepers.append(keeper)
            thread = threading.Thread(
                target=self._run, args=(keeper,), name=f"interlock-timetable-{name}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Fire nothing further."""
        self._stopped.set()
        for keeper in self._keepers:
            keeper.waiting.close()

    def join(self, timeout: float) -> None:
        """Wait up to ``seconds`` until the work that has begun is done."""
        until = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0.0))

    def _run(self, keeper: Keeper) -> None:
        failures, looked = 0, -LOOK
        while not self._stopped.is_set():
            try:
                while keeper.step(0.0):
                    pass
                if time.monotonic() - looked >= LOOK:
                    keeper.plan()
                    looked = time.monotonic()
                if failures:
                    _log.warning("the timetable of queue %r continues", keeper.queue.name)
                failures = 0
                keeper.step(looked + LOOK)
            except Exception as error:
                if self._stopped.is_set():
                    return
                failures += 1
                self._pause(keeper, error, failures)

    def _pause(self, keeper: Keeper, error: Exception, failures: int) -> None:
        pause: float = min(0.1 * 2 ** min(failures, 10), LONGEST_PAUSE)
        expected = isinstance(error, EngineUnavailable | Full | ShutDown)
        if expected:
            _log.warning(
                "the timetable of queue %r waits: %s; trying again in %.3g s",
                keeper.queue.name, error, pause,
            )  # fmt: skip
        else:
            known = isinstance(error, InterlockError)
            _log.error(
                "the timetable of queue %r cannot be served: %s", keeper.queue.name, error,
                exc_info=None if known else error,
            )  # fmt: skip
            pause = BROKEN_PAUSE
        self._stopped.wait(pause)


def by_queue(entries: Iterable[Entry]) -> Mapping[str, dict[str, Entry]]:
    """Return the entries by their queues and names."""
    found: dict[str, dict[str, Entry]] = {}
    for entry in entries:
        found.setdefault(entry.queue, {})[entry.name] = entry
    return found


LOOK = 60.0
"""Seconds between checks that each entry has its timer."""
LONGEST_PAUSE = 5.0
BROKEN_PAUSE = 10.0
