"""The timetable of an app in a test: fired by the test's clock, without threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.app.timetable.keeper import Keeper
from interlock.app.timetable.runner import by_queue

if TYPE_CHECKING:
    from interlock.app.app import App

__all__ = ["TestedTimetable"]


class TestedTimetable:
    """See ``interlock.worker.harness.calls.Timetable``."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._keepers: list[Keeper] = []

    def begin(self) -> None:
        """Put the timers of all entries, on the engine that the app uses now."""
        declared = by_queue(self._app.timetable.values())
        self._keepers = [
            Keeper(name, declared.get(name, {}), self._app._open, tasks=self._app.tasks)
            for name in {task.declared.queue for task in self._app.tasks.values()}
        ]
        for keeper in self._keepers:
            if keeper.entries:
                keeper.plan()

    def due(self) -> float | None:
        """Return the time of the next tick."""
        ticks = [timer.tick for keeper in self._keepers for timer in keeper.pending()]
        return min(ticks, default=None)

    def fire(self) -> int:
        """Send the calls that are due."""
        fired = 0
        for keeper in self._keepers:
            while keeper.step(0.0):
                fired += 1
        return fired
