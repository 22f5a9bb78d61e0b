"""The state of a worker: the messages that it holds, from their lease to their settlement.

Its owner's thread alone changes it; others may read what says so.
"""

from __future__ import annotations

import collections
import enum
import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from interlock.engine.handler_time import HandlerTime
from interlock.message import Kind
from interlock.retry import Retry
from interlock.worker.execution import (
    RELEASED,
    Execution,
    Invocation,
    Outcome,
    TaskLease,
    details,
    judge,
    lease_at,
    tell_ended,
)
from interlock.worker.pool import Pool
from interlock.worker.source import Source, count_outcome
from interlock.worker.tasks import NotHere, Tasks
from interlock.worker.thread_pool import ThreadPool

if TYPE_CHECKING:
    from interlock.engine.batch import LeasedBatch
    from interlock.worker.audit import Audit
    from interlock.worker.batch_runner import BatchRun, BatchRunner
    from interlock.worker.recorder import Recorder
    from interlock.worker.settings import WorkerSettings

__all__ = ["Deferrals", "Phase", "Places", "WorkerState"]

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


class Places:
    """Counts how many handlers are idle, and what kind of messages they may take.

    Places are taken before messages are leased, so that nothing is leased that no handler is idle
    for; only while handlers are quick, see ``BatchRunner`` and ``Pool.queues``, is there more.
    """

    def __init__(self, size: int, unkeyed: int) -> None:
        self._size: dict[Kind, int] = {"any": size - unkeyed, "unkeyed": unkeyed}
        self._free: dict[Kind, int] = {"any": 0, "unkeyed": 0}
        self._there = 0

    def free(self, kind: Kind) -> int:
        """Return how many are free; below 0 where places went while handlers were in them."""
        return self._free[kind]

    def size(self, kind: Kind) -> int:
        """Return how many there are when all of the pool are there."""
        return self._size[kind]

    def take(self, kind: Kind, most: int) -> int:
        """Take up to so many; return how many were taken."""
        taken = max(0, min(self._free[kind], most))
        self._free[kind] -= taken
        return taken

    def overdraw(self, kind: Kind, count: int) -> None:
        """Take so many more than there are: of a pool that queues."""
        self._free[kind] -= count

    def give(self, kind: Kind, count: int) -> None:
        """Give places back."""
        self._free[kind] += count

    def moved(self, count: int) -> None:
        """So many have come, or are gone: those for messages without keys come first and go
        last."""
        unkeyed = self._size["unkeyed"]
        before = min(self._there, unkeyed)
        self._there += count
        kept = min(self._there, unkeyed) - before
        self._free["unkeyed"] += kept
        self._free["any"] += count - kept


@dataclass(slots=True)
class Deferral:
    """A message of an unknown task."""

    until: float
    batch: LeasedBatch
    lease: TaskLease
    source: Source


class Deferrals:
    """The messages that this worker does not know: leased for a while, until they go back.

    In that time their lanes stay closed, as in a backoff; then they go back with their attempt
    unchanged, and another worker, perhaps a newer one, may have them.
    """

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
        return 0.0 if times == 0 else min(2.0 ** min(times - 1, 10), LONGEST_DEFERRAL)

    def add(self, deferral: Deferral) -> None:
        """Keep it until its time."""
        self._waiting.append(deferral)

    @property
    def full(self) -> bool:
        """Return whether so much is deferred that nothing more should be leased for now."""
        return len(self._waiting) >= MOST_DEFERRED

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


class Straggler(NamedTuple):
    """A batch of which one message kept the thread."""

    runner: BatchRunner
    done: int
    others: int
    """So much of its ``done`` and ``others`` was settled by then."""
    execution: Execution | None
    """The message that is handled; None: it has not begun, or has ended."""


@dataclass(slots=True)
class Alone:
    """A message that is handled while nothing else is: a lease of it ran out while its handler may
    have run, so it may be what ends processes (clause 9)."""

    source: Source
    batch: LeasedBatch
    waits: bool = False
    """The engine is told that no handler has begun it."""
    asked: bool = False
    """The engine is told that its handler begins."""
    execution: Execution | None = None
    """None: it waits for what still runs."""
    done: bool = False
    """It is handled no more; nothing is leased before the engine knows that."""


class WorkerState:
    """The messages that are held, the places that are free, and how far the worker is."""

    def __init__(self, settings: WorkerSettings, tasks: Tasks, pool: Pool) -> None:
        self.phase = Phase.NEW
        """Others may read it."""
        self.sources: Sequence[Source] = ()
        """Others may read it once it has started."""
        self.audit: Audit | Recorder | None = None
        self.tasks = tasks
        self.pool = pool
        self.executions: dict[int, Execution] = {}
        """The messages that are held, by the execution's own number. Others may read it."""
        self.places = Places(settings.concurrency, settings.unkeyed)
        self.places.moved(pool.places)
        self.times = HandlerTime(settings.concurrency)
        """A runner of batches has it while there is one."""
        self.runner: BatchRunner | None = None
        """The runner of batches, while there is one. Others may read it."""
        self.stragglers: dict[BatchRun, Straggler] = {}
        """Batches of which the owner has taken the rest while one message was handled."""
        alone = len(settings.queues) == 1 and not settings.unkeyed
        self.lends = alone and isinstance(pool, ThreadPool)
        """Quick handlers may be run in batches."""
        self.alone = settings.concurrency == 1
        self.deferrals = Deferrals()
        self.alone_one: Alone | None = None
        """While there is one, nothing else is leased, and what is leased all the same goes back."""
        self.alone_at = -math.inf
        """The time at which the last one came, by time.monotonic()."""

    @property
    def holds(self) -> bool:
        """Return whether a message is held that is handled, or may be."""
        return bool(self.executions or self.stragglers or self.runner is not None)

    def dispatch(
        self,
        source: Source,
        batch: LeasedBatch,
        places: Sequence[int],
        began: float,
        room: int,
    ) -> int:
        """Give so many leased messages to the pool as there is room; the others go back. Return how
        many places they take."""
        now = time.monotonic()
        # No call waits so long: this process was frozen, and so are these leases perhaps over.
        refused = self.phase is not Phase.RUNNING or now - began > source.lease
        refused = refused or self.alone_one is not None
        if batch.alone and not refused:
            self.alone_one, self.alone_at = Alone(source, batch), now
            return 0
        found: list[Execution] = []
        for at in places:
            held = lease_at(source.name, batch, at)
            if refused or len(found) >= room:
                source.add(batch, held, RELEASED)
                continue
            invocation = self._prepared(source, batch, held)
            if invocation is not None:
                found.append(Execution(batch, held, invocation, source, now))
        for execution in found:
            self.executions[id(execution)] = execution
        if found:
            self.pool.offer(found)
        return len(found)

    def next_alone(self) -> None:
        """Have the message begin that is to be alone, once nothing else is handled or leased."""
        one = self.alone_one
        if one is None:
            return
        if one.done:
            # What is leased before its end is told may end this process, and it would be charged.
            if self.phase is not Phase.RUNNING or not any(each.is_busy for each in self.sources):
                self.alone_one = None
        elif one.asked or one.execution is not None:
            return
        elif self.phase is not Phase.RUNNING:
            self._release_alone(one)
        elif self.holds or any(source.is_busy or source.waits for source in self.sources):
            if not one.waits:
                one.waits = True
                one.batch.grant.wait_for_turn()
        elif self.places.take(one.source.kind, 1):
            one.asked = True
            one.source.begin_alone(one.batch)

    def turn_came(self, kept: bool) -> None:
        """Take it that the engine knows that the message begins; not kept: it does not."""
        one = self.alone_one
        assert one is not None
        taken = 0
        if kept and self.phase is Phase.RUNNING:
            taken = self._begin_alone()
        else:
            self._release_alone(one)
        self.places.give(one.source.kind, 1 - taken)

    def _begin_alone(self) -> int:
        """Give it to the pool; return how many places it takes."""
        one = self.alone_one
        assert one is not None
        held = lease_at(one.source.name, one.batch, one.batch.places[0])
        invocation = self._prepared(one.source, one.batch, held)
        if invocation is None:
            self.alone_one = None
            return 0
        _log.warning(
            "message %d in queue %r: a lease of it ran out, perhaps because its handler ended the "
            "process; it is handled alone now",
            held.id, held.queue, extra=details(held),
        )  # fmt: skip
        now = time.monotonic()
        one.execution = execution = Execution(one.batch, held, invocation, one.source, now)
        self.executions[id(execution)] = execution
        self.pool.offer([execution])
        return 1

    def _release_alone(self, one: Alone) -> None:
        self.alone_one = None
        held = lease_at(one.source.name, one.batch, one.batch.places[0])
        one.source.add(one.batch, held, RELEASED)

    def distribute(
        self, source: Source, batch: LeasedBatch, places: Sequence[int], began: float
    ) -> None:
        """Give what was leased ahead to places that are free, as far as there are any."""
        room = self.places.take(source.kind, self.places.size(source.kind))
        room -= self.dispatch(source, batch, places, began, room)
        self.places.give(source.kind, room)

    def _prepared(self, source: Source, batch: LeasedBatch, held: TaskLease) -> Invocation | None:
        try:
            invocation = self.tasks.prepare(held)
        except NotHere as unknown:
            seconds = self.deferrals.seconds(held)
            _log.warning(
                "message %d in queue %r %s; it goes back in %g s, its attempt unchanged",
                held.id, held.queue, unknown, seconds, extra=details(held),
            )  # fmt: skip
            if source.meter is not None:
                source.meter.unknown(source.name)
            if seconds:
                until = time.monotonic() + seconds
                self.deferrals.add(Deferral(until, batch, held, source))
            else:
                source.add(batch, held, RELEASED)
            return None
        except Exception as error:
            # What a message holds is anybody's: it fails by itself, and holds up no other.
            outcome = judge(Retry(), held, error)
            source.add(batch, held, outcome)
            if source.meter is not None:
                source.meter.settled(held, outcome)
            return None
        if self.audit is not None:
            self.audit.begun(held)
        return invocation

    def ended(self, execution: Execution, outcome: Outcome) -> None:
        """Note that a handler has ended."""
        held, source = execution.held, execution.source
        if self.audit is not None:
            tell_ended(self.audit, held, outcome)
        took = (execution.ended or 0.0) - (execution.started or execution.offered)
        over = execution.over
        if not over:
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
        if source.meter is not None:
            source.meter.ended(execution, outcome, settles=not over)
        if self.runner is None:
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
            if self.alone_one is not None and self.alone_one.execution is execution:
                self.alone_one.done = True

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


LONGEST_DEFERRAL = 30.0
MOST_DEFERRED = 256
REMEMBERED = 10_000
