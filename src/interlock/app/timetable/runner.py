"""The threads by which a worker keeps its app's timetable, one for each queue with entries.

One more looks for stored entries of the other queues.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from interlock.app.timetable.entry import Entry
from interlock.app.timetable.keeper import Keeper
from interlock.app.timetable.timer import queue_name
from interlock.app.timetable.timetable import Timetable
from interlock.errors import EngineUnavailable, Full, InterlockError, ShutDown

__all__ = ["Runner", "by_queue"]

_log = logging.getLogger("interlock.timetable")


class Runner:
    """A worker's part in the timetable: from ``start`` until ``stop``."""

    def __init__(
        self,
        timetable: Timetable,
        tasks: Mapping[str, Any],
        queues: Iterable[str],
        open_queue: Callable[..., Any],
        lease: float,
    ) -> None:
        """Note the entries to keep.

        Args:
            tasks: the app's tasks by their names, for stored entries.
            queues: the worker's queues: it fires the calls that it could handle.
            lease: seconds after which a killed worker's timer is leased by another.
        """
        self._lease = lease
        self._tasks = tasks
        declared = by_queue(timetable.values())
        self._entries = {name: declared.get(name, {}) for name in dict.fromkeys(queues)}
        """The declared entries of each of its queues; of most queues none."""
        self._open_queue = open_queue
        self._keepers: list[Keeper] = []
        self._threads: list[threading.Thread] = []
        self._stopped = threading.Event()
        self._bell = threading.Event()
        timetable.runners.add(self)

    @property
    def names(self) -> list[str]:
        """The names of the entries whose ticks it sends."""
        return [name for entries in self._entries.values() for name in entries]

    def start(self) -> None:
        """Begin."""
        others = []
        for name, entries in self._entries.items():
            if entries:
                self._keep(name)
            else:
                others.append(name)
        if others:
            self._begin(self._look_for, others, "interlock-timetables")

    def look(self) -> None:
        """Look now whether other queues have stored entries."""
        self._bell.set()

    def _keep(self, name: str) -> None:
        keeper = Keeper(name, self._entries[name], self._open_queue, self._lease, self._tasks)
        self._keepers.append(keeper)
        self._begin(self._run, keeper, f"interlock-timetable-{name}")

    def _begin(self, run: Callable[[Any], None], given: Any, name: str) -> None:
        thread = threading.Thread(target=run, args=(given,), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _look_for(self, names: list[str]) -> None:
        """Begin to keep the timetable of a queue when it has its first stored entry."""
        queues = {name: self._open_queue(queue_name(name)) for name in names}
        while queues and not self._stopped.is_set():
            self._bell.clear()
            for name, queue in list(queues.items()):
                try:
                    if not queue.messages(1):
                        continue
                    self._keep(name)
                except EngineUnavailable:
                    # The worker itself reports that.
                    break
                except InterlockError as error:
                    # Perhaps without the rights to read it.
                    _log.info(
                        "stored timetable entries of queue %r are not served: %s", name, error
                    )
                del queues[name]
            self._bell.wait(AGAIN)

    def stop(self) -> None:
        """Fire nothing further."""
        self._stopped.set()
        self._bell.set()
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
AGAIN = 10.0
"""Seconds between looks at a queue without entries."""
