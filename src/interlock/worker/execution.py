"""A message between its lease and its settlement."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from interlock.worker.tasks import Invocation, TaskLease

if TYPE_CHECKING:
    from interlock.engine.batch import LeasedBatch
    from interlock.worker.source import Source

__all__ = ["Execution"]


@dataclass(slots=True, eq=False)
class Execution:
    """One message that this worker holds."""

    batch: LeasedBatch
    held: TaskLease
    """The lease as the handler sees it."""

    invocation: Invocation
    source: Source
    """Through which it is settled."""

    offered: float
    """The time at which it was leased, to be given to the pool at once; by time.monotonic()."""

    started: float | None = None
    """The time at which a handler began; None: not yet."""

    ended: float | None = None
    """The time at which the handler ended."""

    at: Any = None
    """The place where it is handled: a thread's number, a task, a process of the pool."""

    _unclaimed: list[None] = field(default_factory=lambda: [None])

    @property
    def over(self) -> bool:
        """Return whether it is settled: what its handler says counts no longer."""
        return self.held._over

    def claim(self) -> bool:
        """Decide who has it: the one place that begins it, or the owner who takes it back. True
        for whoever asks first, on any thread."""
        try:
            self._unclaimed.pop()
        except IndexError:
            return False
        return True

    def begin(self, at: object) -> None:
        """Note that a handler begins now."""
        self.at = at
        self.started = time.monotonic()

    def end(self) -> None:
        """Note that it has ended."""
        self.ended = time.monotonic()
