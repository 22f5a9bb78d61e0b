"""The state of a worker. Its owner's thread alone changes it; others may read what says so."""

from __future__ import annotations

import enum
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from interlock.engine.handler_time import HandlerTime
from interlock.worker.deferrals import Deferrals
from interlock.worker.execution import Execution
from interlock.worker.outcome import RELEASED, Outcome
from interlock.worker.places import Places
from interlock.worker.pool import Pool
from interlock.worker.source import Source, count_outcome
from interlock.worker.tasks import Tasks, details
from interlock.worker.thread_pool import ThreadPool

if TYPE_CHECKING:
    from interlock.worker.audit import Audit
    from interlock.worker.settings import WorkerSettings

__all__ = ["Phase", "WorkerState"]

_log = logging.getLogger("interlock.worker")


class Phase(enum.Enum):
    """The progress of a worker."""

    NEW = "new"
    RUNNING = "running"
    STOPPING = "stopping"
    """It takes no more; what has begun goes on."""
    ENDING = "ending"
    """All that is to be settled is settled; nothing else counts."""
    ENDED = "ended"


class WorkerState:
    """The messages that are held, the places that are free, and how far the worker is."""

    def __init__(self, settings: WorkerSettings, tasks: Tasks, pool: Pool) -> None:
        self.phase = Phase.NEW
        """Others may read it."""
        self.sources: Sequence[Source] = ()
        """Others may read it once it has started."""
        self.audit: Audit | None = None
        self.tasks = tasks
        self.pool = pool
        self.executions: dict[int, Execution] = {}
        """The messages that are held, by the execution's own number. Others may read it."""
        self.places = Places(settings.concurrency, settings.unkeyed)
        self.places.moved(pool.places)
        self.times = HandlerTime(settings.concurrency)
        """A runner of batches has it while there is one."""
        self.batches_run = False
        """There is a runner of batches."""
        alone = len(settings.queues) == 1 and not settings.unkeyed
        self.lends = alone and isinstance(pool, ThreadPool)
        """Quick handlers may be run in batches."""
        self.alone = settings.concurrency == 1
        self.deferrals = Deferrals()

    def ended(self, execution: Execution, outcome: Outcome) -> None:
        """Note that a handler has ended."""
        held, source = execution.held, execution.source
        if self.audit is not None:
            self.audit.ended(held)
        took = (execution.ended or 0.0) - (execution.started or execution.offered)
        if not execution.over:
            if outcome.how == "ack" and execution.batch.told_from is not None:
                message = execution.batch.message_of(held.id)
                execution.batch.log_handled(message, took, held.task)
            source.add(execution.batch, held, outcome)
        else:
            _log.warning(
                "the handler of message %d in queue %r ended after its lease was revoked",
                held.id, held.queue, extra=details(held),
            )  # fmt: skip
        count_outcome(source.tally, outcome)
        if not self.batches_run:
            if execution.invocation.is_async and self.lends:
                # That is for a thread of its own, where it may wait.
                self.times.slow()
            else:
                self.times.ended(took)
        self.forget(execution)

    def forget(self, execution: Execution) -> None:
        """Hold it no more: its place is free."""
        if self.executions.pop(id(execution), None) is not None:
            self.places.give(execution.source.kind, 1)

    def give_back(self, execution: Execution) -> None:
        """No handler has begun it: it goes back to the same place, at the same attempt."""
        if self.pool.withdraw(execution):
            if self.audit is not None:
                self.audit.withdrawn(execution.held)
            execution.source.add(execution.batch, execution.held, RELEASED)
            self.forget(execution)

    def release_deferred(self, now: float) -> None:
        """Give back the messages of unknown tasks whose time is over."""
        for deferral in self.deferrals.due(now):
            deferral.source.add(deferral.batch, deferral.lease, RELEASED)
