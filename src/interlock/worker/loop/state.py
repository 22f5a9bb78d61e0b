"""The state of a worker: the messages that it holds, from their lease to their settlement.

Only the owner's thread changes it; other threads may read the attributes that say so.
"""

from __future__ import annotations

import collections
import enum
import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from interlock.client.faces.handler_time import HandlerTime
from interlock.client.wire import messages as wire
from interlock.message import Kind
from interlock.retry import Retry
from interlock.worker.message.execution import (
    ACKED,
    RELEASED,
    Execution,
    Invocation,
    Outcome,
    RunProgress,
    TaskLease,
    details,
    judge,
    lease_at,
    tell_ended,
)
from interlock.worker.message.plain_execution import PlainExecution
from interlock.worker.message.source import Source, count_outcome
from interlock.worker.message.tasks import NotHere, PlainCall, Tasks, head
from interlock.worker.pools.loop_pool import LoopPool
from interlock.worker.pools.pool import Pool
from interlock.worker.pools.thread_pool import COUNTS_WAITS, ThreadPool

if TYPE_CHECKING:
    from interlock.client.faces.batch import LeasedBatch
    from interlock.worker.loop.batch_run import BatchRun
    from interlock.worker.loop.batch_runner import BatchRunner
    from interlock.worker.reports.audit import Audit
    from interlock.worker.reports.recorder import Recorder
    from interlock.worker.settings import WorkerSettings

__all__ = ["Deferrals", "Phase", "Places", "WorkerState"]

_log = logging.getLogger("interlock.worker")


class Phase(enum.Enum):
    """The progress of a worker."""

    NEW = "new"
    RUNNING = "running"
    STOPPING = "stopping"
    """No further messages are taken; running handlers continue."""
    ENDING = "ending"
    """Everything that is to be settled is settled; nothing else counts."""
    ENDED = "ended"


class Places:
    """Counts idle handlers, and the kinds of messages they may take.

    Places are taken before messages are leased, so that a message is leased only if a handler is
    idle for it. More are leased only while handlers are quick, see ``BatchRunner``, or brief, see
    ``HandlerTime.leased_ahead``; then the number of free places is negative.
    """

    def __init__(self, size: int, unkeyed: int) -> None:
        self._size: dict[Kind, int] = {"any": size - unkeyed, "unkeyed": unkeyed}
        self._free: dict[Kind, int] = {"any": 0, "unkeyed": 0}
        self._there = 0

    def free(self, kind: Kind) -> int:
        """Return the number of free places; negative if places were removed while in use."""
        return self._free[kind]

    def size(self, kind: Kind) -> int:
        """Return the number of places when the whole pool is up."""
        return self._size[kind]

    def take(self, kind: Kind, most: int) -> int:
        """Take up to this many; return the number taken."""
        taken = max(0, min(self._free[kind], most))
        self._free[kind] -= taken
        return taken

    def overdraw(self, kind: Kind, count: int) -> None:
        """Take this many, even if fewer are free."""
        self._free[kind] -= count

    def give(self, kind: Kind, count: int) -> None:
        """Return places."""
        self._free[kind] += count

    def moved(self, count: int) -> None:
        """Add or remove places: those for messages without keys are added first and removed
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
    """The messages that this worker does not know: kept leased for a while, then returned.

    Meanwhile their lanes stay closed, as in a backoff. They are returned with their attempt
    unchanged, and another worker, perhaps a newer one, may lease them.
    """

    def __init__(self) -> None:
        self._waiting: list[Deferral] = []
        self._seen: collections.OrderedDict[tuple[str, int], int] = collections.OrderedDict()

    def seconds(self, lease: TaskLease) -> float:
        """Return how long this message is to be kept: 0 the first time, so that a worker that knows
        the task may have it immediately, then 1, 2, 4 seconds and so on."""
        number = (lease.queue, lease.id)
        times = self._seen.pop(number, 0)
        self._seen[number] = times + 1
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return 0.0 if times == 0 else min(2.0 ** min(times - 1, 10), LONGEST_DEFERRAL)

    def add(self, deferral: Deferral) -> None:
        """Keep the message until its time."""
        self._waiting.append(deferral)

    @property
    def full(self) -> bool:
        """Return whether too many messages are deferred for more to be leased for now."""
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
    """A batch in which one message held up the thread."""

    runner: BatchRunner
    done: int
    others: int
    """Lengths of its ``done`` and ``others`` that were settled by then."""
    execution: Execution | None
    """The message that is being handled; None: it has not begun, or has ended."""


@dataclass(slots=True)
class Alone:
    """A message that must be handled while no other is: its lease expired while its handler may
    have run, so it may be the cause of dying processes (clause 9)."""

    source: Source
    batch: LeasedBatch
    waits: bool = False
    """The engine is being notified that no handler has begun it."""
    asked: bool = False
    """The engine is being notified that its handler begins."""
    execution: Execution | None = None
    """None: it waits for the running handlers."""
    done: bool = False
    """It is no longer handled; nothing is leased before the engine knows that."""


class WorkerState:
    """The held messages, the free places, and the worker's progress."""

    def __init__(self, settings: WorkerSettings, tasks: Tasks, pool: Pool) -> None:
        self.phase = Phase.NEW
        """Other threads may read it."""
        self.sources: Sequence[Source] = ()
        """Other threads may read it once it has started."""
        self.audit: Audit | Recorder | None = None
        self.tasks = tasks
        self.pool = pool
        self.executions: dict[int, Execution] = {}
        """The held messages, by the number of their execution. Other threads may read it."""
        self.places = Places(settings.concurrency, settings.unkeyed)
        self.places.moved(pool.places)
        self._in_processes = settings.pool == "process"
        processes = settings.concurrency if self._in_processes else 1
        self.times = HandlerTime(settings.concurrency, processes)
        """Handler times; a runner of batches owns them while there is one."""
        self.runner: BatchRunner | None = None
        """The runner of batches, while there is one. Other threads may read it."""
        self.stragglers: dict[BatchRun, Straggler] = {}
        """Batches of which the owner has taken over the rest while one message was handled."""
        alone = len(settings.queues) == 1 and not settings.unkeyed
        # Batches are for single messages.
        alone = alone and not tasks.takes_runs(settings.queues[0])
        self.loop = pool if isinstance(pool, LoopPool) else None
        self.lends = alone and isinstance(pool, ThreadPool | LoopPool)
        """Quick handlers may be run in batches."""
        self.alone = settings.concurrency == 1
        self.deferrals = Deferrals()
        self.alone_one: Alone | None = None
        """While it is set, nothing else is leased, and messages leased all the same are
        returned."""
        self.alone_at = -math.inf
        """The time.monotonic() at which the last one arrived."""

    @property
    def holds(self) -> bool:
        """Return whether a held message is being handled, or may be."""
        return bool(self.executions or self.stragglers or self.runner is not None)

    def dispatch(
        self,
        source: Source,
        batch: LeasedBatch,
        places: Sequence[int],
        began: float,
        room: int,
    ) -> int:
        """Give the pool as many leased messages as it has room for, and return the others. Return
        the number of places they take."""
        now = time.monotonic()
        # No call waits this long: this process was frozen, so these leases may have expired.
        refused = self.phase is not Phase.RUNNING or now - began > source.lease
        refused = refused or self.alone_one is not None
        if batch.alone and not refused:
            self.alone_one, self.alone_at = Alone(source, batch), now
            return 0
        found: list[Execution] = []
        plain = self._plain_calls
        for at, riders in batch.runs(places):
            if refused or len(found) >= room:
                source.add(batch, lease_at(source.name, batch, at, riders), RELEASED)
                continue
            call = plain.get(head(batch.reply[at + wire.PAYLOAD])) if plain and not riders else None
            if call is not None:
                found.append(PlainExecution(batch, at, call, source, now))
                continue
            held = lease_at(source.name, batch, at, riders)
            invocation = self._prepared(source, batch, held)
            if invocation is not None:
                found.append(Execution(batch, held, invocation, source, now))
                if self._in_processes:
                    self.tasks.learn(invocation, held.payload)
        for execution in found:
            self.executions[id(execution)] = execution
        if found:
            self.pool.offer(found)
        return len(found)

    @property
    def _plain_calls(self) -> Mapping[bytes, PlainCall]:
        """The plain calls that processes get as the engine sent them; an auditor wants the lease of
        each message."""
        return self.tasks.plain if self._in_processes and self.audit is None else {}

    def next_alone(self) -> None:
        """Begin the message that must run alone, once nothing else is handled or leased."""
        one = self.alone_one
        if one is None:
            return
        if one.done:
            # A message leased before the end is reported may kill this process, and this one would
            # be charged.
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
        """Note the engine's answer to the report that the message begins; not kept: not
        accepted."""
        one = self.alone_one
        assert one is not None
        taken = 0
        if kept and self.phase is Phase.RUNNING:
            taken = self._begin_alone()
        else:
            self._release_alone(one)
        self.places.give(one.source.kind, 1 - taken)

    def _begin_alone(self) -> int:
        """Give the message to the pool; return the number of places it takes."""
        one = self.alone_one
        assert one is not None
        held = lease_at(one.source.name, one.batch, one.batch.places[0])
        invocation = self._prepared(one.source, one.batch, held)
        if invocation is None:
            self.alone_one = None
            return 0
        _log.warning(
            "message %d in queue %r: a lease of it expired, perhaps because its handler ended "
            "the process; it is handled alone now",
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
        """Give the messages that were leased ahead to free places, as far as there are any."""
        room = self.places.take(source.kind, self.places.size(source.kind))
        room -= self.dispatch(source, batch, places, began, room)
        self.places.give(source.kind, room)

    def _prepared(self, source: Source, batch: LeasedBatch, held: TaskLease) -> Invocation | None:
        try:
            invocation = self.tasks.prepare(held)
        except NotHere as unknown:
            seconds = self.deferrals.seconds(held)
            _log.warning(
                "message %d in queue %r %s; it is returned in %g s, its attempt unchanged",
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
            # A message may hold anything: it fails by itself, and holds up no other.
            outcome = judge(Retry(), held, error)
            source.add(batch, held, outcome)
            if source.meter is not None:
                source.meter.settled(held, outcome)
            return None
        if self.audit is not None:
            self.audit.begun(held)
        return invocation

    def ended(self, execution: Execution, outcome: Outcome, told: bool = False) -> None:
        """Note that a handler has ended, or, if the outcome is RELEASED, that none has begun.
        ``told``: the auditor and the log of handled messages know that already."""
        source = execution.source
        if outcome is RELEASED:
            self._return(execution)
            return
        took = (execution.ended or 0.0) - (execution.started or execution.offered)
        if (
            outcome is ACKED
            and type(execution) is PlainExecution
            and execution.batch.told_from is None
            and source.meter is None
            and not execution.over
        ):
            # The common case in a process: no lease is made.
            source.acked(execution, execution.acking())
            source.tally.handled += 1
            self.times.ended(took)
            self.forget(execution)
            return
        held = execution.held
        if held.run is not None or outcome.run is not None:
            if not held._over:
                outcome = self.run_ended(execution, outcome, took)
            elif held.run is not None and outcome.run is not None:
                # Its timeout is over, and its messages are about to be settled.
                held.run.takes(outcome.run)
        elif self.audit is not None and not told:
            tell_ended(self.audit, held, outcome)
        over = held._over
        if not over:
            if outcome.how == "ack" and execution.batch.told_from is not None and not told:
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
            on_loop = self.loop is not None
            if self.lends and execution.invocation.is_async is not on_loop:
                # This needs a thread of its own, where it may wait.
                self.times.slow()
            else:
                computes = self.pool.only_compute
                if self.lends:
                    self.times.computing = computes and (on_loop or COUNTS_WAITS)
                self.times.ended(took)
                if self.lends and on_loop and not computes:
                    # However briefly they wait, a batch would end there.
                    self.times.slow()
        self.forget(execution)

    def run_ended(self, execution: Execution, outcome: Outcome, took: float) -> Outcome:
        """Note the messages of a run that are done before the last one; return the outcome of
        that."""
        held, source, batch = execution.held, execution.source, execution.batch
        held.run = held.run or RunProgress()
        if outcome.run is not None:
            # It was handled in a process.
            held.run.takes(outcome.run)
        found = held.run.outcomes(held, outcome)
        last = min(held.run.end(), len(held.run.riders))
        for at, (one, how) in enumerate(found):
            if how is RELEASED:
                continue
            # If the first was revoked, those behind it have returned with it.
            if self.audit is not None and not (at and held._is_revoked):
                if at:
                    self.audit.begun(one)
                tell_ended(self.audit, one, how)
            if at == last:
                outcome = how
                continue
            count_outcome(source.tally, how)
            if source.meter is not None:
                source.meter.settled(one, how)
            if how is ACKED and batch.told_from is not None:
                batch.log_handled(batch.message_of(one.id), took, held.task)
        return outcome

    def forget(self, execution: Execution) -> None:
        """Stop holding the message: its place is free."""
        if self.executions.pop(id(execution), None) is not None:
            self.places.give(execution.source.kind, 1)
            if self.alone_one is not None and self.alone_one.execution is execution:
                self.alone_one.done = True

    def give_back(self, execution: Execution) -> None:
        """Return a message that no handler has begun, to the same position, at the same attempt."""
        if self.pool.withdraw(execution):
            self._return(execution)

    def _return(self, execution: Execution) -> None:
        if self.audit is not None:
            self.audit.withdrawn(execution.held)
        if not execution.over:
            execution.source.add(execution.batch, execution.held, RELEASED)
        self.forget(execution)

    def release_deferred(self, now: float) -> None:
        """Return the messages of unknown tasks whose time is over."""
        for deferral in self.deferrals.due(now):
            deferral.source.add(deferral.batch, deferral.lease, RELEASED)


LONGEST_DEFERRAL = 30.0
MOST_DEFERRED = 256
REMEMBERED = 10_000
