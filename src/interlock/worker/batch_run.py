"""A batch of a worker while it runs: what became of its messages so far. See ``BatchProgress``."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from interlock.engine import wire
from interlock.engine.batch import LeasedBatch
from interlock.engine.batch_progress import BatchProgress
from interlock.worker.outcome import ACKED, Outcome
from interlock.worker.source import Pending, pending
from interlock.worker.tasks import TaskLease, Tasks, head

if TYPE_CHECKING:
    from interlock.worker.source import Source

__all__ = ["BatchRun", "lease_at"]

ALL = slice(None)


class BatchRun(BatchProgress):
    """A batch that a ``BatchRunner`` runs."""

    __slots__ = ("_leases", "_tasks", "began", "done", "others", "source")

    def __init__(self, source: Source, tasks: Tasks, batch: LeasedBatch, began: float) -> None:
        super().__init__(batch)
        self.source = source
        self._tasks = tasks
        self.began = began
        self.done: list[int] = []
        """Those whose handlers returned, and that keep no result."""
        self.others: list[tuple[int, Outcome]] = []
        """Those that ended otherwise."""
        self._leases: dict[int, TaskLease] = {}

    def lease(self, at: int) -> TaskLease:
        """Return the lease of a message as its handler sees it; the same each time."""
        found = self._leases.get(at)
        if found is None:
            made = lease_at(self.source.name, self.batch, at)
            call = self._tasks.plain.get(head(made.payload))
            if call is not None:
                made.task = call.task
            found = self._leases.setdefault(at, made)
        return found

    def settlements(self) -> list[wire.Settlement]:
        """Return how its messages are settled, in the order of ``pending``; they are renewed no
        more."""
        batch, done = self.batch, self.done
        if len(done) == len(batch.places):
            batch.all_settled()
            return batch.acking(done)
        for at in done:
            batch.settled(int(batch.reply[at]))
        return batch.acking(done) + [one.settlement for one in self._pending_others()]

    def pending(self, done: slice = ALL, others: slice = ALL) -> list[Pending]:
        """Return how its messages are settled, each by itself; or of ``done`` and ``others`` these
        alone."""
        batch = self.batch
        found = [pending(batch, self.lease(at), ACKED) for at in self.done[done]]
        return found + self._pending_others(others)

    def outcome(self, at: int) -> Outcome | None:
        """Return what the message came to that was handled last; None: it has not ended."""
        if self.done and self.done[-1] == at:
            return ACKED
        if self.others and self.others[-1][0] == at:
            return self.others[-1][1]
        return None

    def _pending_others(self, others: slice = ALL) -> list[Pending]:
        return [pending(self.batch, self.lease(at), outcome) for at, outcome in self.others[others]]


def lease_at(queue: str, batch: LeasedBatch, at: int) -> TaskLease:
    """Return the lease of the message at this place of a batch."""
    one = batch.message(at)
    held = TaskLease(
        queue, one.id, one.sequence, one.attempt, batch.token, one.keys, one.shared, one.payload
    )
    held._is_lost = functools.partial(batch.is_lost, one.id)
    return held
