"""A batch that is being handled: which of its messages have ended, and how."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from interlock.client.faces.batch import BatchProgress, LeasedBatch
from interlock.client.wire import messages as wire
from interlock.worker.message.execution import ACKED, Outcome, TaskLease, lease_at
from interlock.worker.message.source import Pending, Source, pending
from interlock.worker.message.tasks import Tasks, head

if TYPE_CHECKING:
    from interlock.worker.pools.suspended_call import SuspendedCall

__all__ = ["BatchRun"]

_ALL = slice(None)


class BatchRun(BatchProgress):
    """A running batch, with the outcomes of its messages so far. See ``BatchProgress``."""

    __slots__ = (
        "_leases", "_tasks", "began", "begun", "done", "others", "since", "slow", "source",
        "suspended", "task", "turns",
    )  # fmt: skip

    def __init__(self, source: Source, tasks: Tasks, batch: LeasedBatch, began: float) -> None:
        super().__init__(batch)
        self.source = source
        self._tasks = tasks
        self.began = began
        self.done: list[int] = []
        """Messages whose handlers returned and that keep no result."""
        self.others: list[tuple[int, Outcome]] = []
        """Messages with any other outcome."""
        self.turns: list[tuple[int, float, str]] = []
        """For a meter: the number of the first message of a new task, the time it began, and the
        task."""
        self.slow: list[tuple[int, float]] = []
        """For a meter: the numbers of the slow messages, and their seconds."""
        self.since = 0.0
        """The time at which the present message began, once one has."""
        self.begun = 0.0
        """For a meter, once the batch is no longer handled here: the time at which the last message
        began."""
        self.task: asyncio.Task[None] | None = None
        """The task of the present message, on the loop of an asyncio pool."""
        self.suspended: SuspendedCall | None = None
        """The present message, if it waits there."""
        self._leases: dict[int, TaskLease] = {}

    def lease(self, at: int) -> TaskLease:
        """Return the lease of a message as its handler sees it; the same object each time."""
        found = self._leases.get(at)
        if found is None:
            made = lease_at(self.source.name, self.batch, at)
            call = self._tasks.plain.get(head(made.payload))
            if call is not None:
                made.task = call.task
            found = self._leases.setdefault(at, made)
        return found

    @property
    def ended(self) -> int:
        """Return how many of its messages have ended."""
        return len(self.done) + len(self.others)

    def turn(self, began: float, task: str) -> None:
        """Note the task of the message that has just begun."""
        if not self.turns or self.turns[-1][2] != task:
            self.turns.append((self.ended, began, task))

    def settlements(self) -> list[wire.Settlement]:
        """Return the settlements of its messages, in the order of ``pending``; the messages are no
        longer renewed."""
        batch, done = self.batch, self.done
        if len(done) == len(batch.places):
            batch.all_settled()
            return batch.acking(done)
        for at in done:
            batch.settled(int(batch.reply[at]))
        return batch.acking(done) + [one.settlement for one in self._pending_others()]

    def pending(self, done: slice = _ALL, others: slice = _ALL) -> list[Pending]:
        """Return the settlements of its messages, one each; or only those of ``done`` and
        ``others``."""
        batch = self.batch
        found = [pending(batch, self.lease(at), ACKED) for at in self.done[done]]
        return found + self._pending_others(others)

    def outcome(self, at: int) -> Outcome | None:
        """Return the outcome of the message that was handled last; None: it has not ended."""
        if self.done and self.done[-1] == at:
            return ACKED
        if self.others and self.others[-1][0] == at:
            return self.others[-1][1]
        return None

    def _pending_others(self, others: slice = _ALL) -> list[Pending]:
        return [pending(self.batch, self.lease(at), outcome) for at, outcome in self.others[others]]
