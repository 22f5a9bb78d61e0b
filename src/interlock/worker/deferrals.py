"""Messages that this worker does not know: leased for a while, until they go back.

In that time their lanes stay closed, as in a backoff; then they go back with their attempt
unchanged, and another worker, perhaps a newer one, may have them.
"""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import TYPE_CHECKING

from interlock.worker.tasks import TaskLease

if TYPE_CHECKING:
    from interlock.engine.batch import LeasedBatch
    from interlock.worker.source import Source

__all__ = ["Deferral", "Deferrals"]


@dataclass(slots=True)
class Deferral:
    """A message of an unknown task."""

    until: float
    batch: LeasedBatch
    lease: TaskLease
    source: Source


class Deferrals:
    """All that a worker has deferred. The owner's alone."""

    def __init__(self) -> None:
        self._waiting: list[Deferral] = []
        self._seen: collections.OrderedDict[tuple[str, int], int] = collections.OrderedDict()

    def seconds(self, lease: TaskLease) -> float:
        """Return for how long this message is to be kept: not at all the first time, so that a
        worker that knows the task may have it at once, then 1, 2, 4 seconds and so on."""
        number = (lease.queue, lease.id)
        times = self._seen.pop(number, 0)
        self._seen[number] = times + 1
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return 0.0 if times == 0 else min(2.0 ** min(times - 1, 10), LONGEST)

    def add(self, deferral: Deferral) -> None:
        """Keep it until its time."""
        self._waiting.append(deferral)

    @property
    def full(self) -> bool:
        """Return whether so much is deferred that nothing more should be leased for now."""
        return len(self._waiting) >= MOST

    def due(self, now: float) -> list[Deferral]:
        """Take those whose time is over."""
        if not self._waiting:
            return []
        found = [one for one in self._waiting if one.until <= now]
        if found:
            self._waiting = [one for one in self._waiting if one.until > now]
        return found

    def __bool__(self) -> bool:
        return bool(self._waiting)


LONGEST = 30.0
MOST = 256
REMEMBERED = 10_000
