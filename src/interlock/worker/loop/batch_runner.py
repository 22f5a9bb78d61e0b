"""Runs quick handlers in batches: one thread leases, handles and settles, while the next calls are
in flight.

The owner lends it a source and watches it. If a handler takes long, this thread keeps that handler
alone and everything else returns to the owner; see ``BatchRun``. A runner lasts for one such
stretch.
"""

from __future__ import annotations

import asyncio
import collections
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from sys import getrefcount
from time import thread_time
from typing import TYPE_CHECKING, Protocol

from interlock.client.faces import batch as batches
from interlock.client.faces import handler_time
from interlock.client.faces.batch import END, LeasedBatch
from interlock.client.wire import messages as wire
from interlock.errors import EngineUnavailable, ShutDown
from interlock.message import _current
from interlock.retry import Retry
from interlock.runtime import forks
from interlock.worker.loop.batch_run import BatchRun
from interlock.worker.message.execution import (
    ACKED,
    Outcome,
    ahandle,
    judge,
    tell_ended,
)
from interlock.worker.message.meter import BOUNDS
from interlock.worker.message.source import CallThread, Pending, Source, count_outcome
from interlock.worker.message.tasks import HEAD, TASK_AT, NotHere, Tasks
from interlock.worker.pools.loop_pool import LoopPool
from interlock.worker.pools.suspended_call import SuspendedCall, first_step
from interlock.worker.pools.thread_pool import Runner, waits

if TYPE_CHECKING:
    from interlock.client.faces.handler_time import HandlerTime
    from interlock.worker.reports.audit import Audit
    from interlock.worker.reports.recorder import Recorder

__all__ = ["BatchEvents", "BatchRunner", "BatchThread", "Returned"]

_log = logging.getLogger("interlock.worker")


class BatchEvents(Protocol):
    """The events that a runner's thread reports."""

    def batches_ended(self, runner: BatchRunner, returned: Returned) -> None:
        """Note that the stretch is over: the source belongs to the owner again."""

    def batch_waits(self, runner: BatchRunner, run: BatchRun) -> None:
        """Note that a coroutine waits in the middle of a batch."""

    def straggler_ended(self, run: BatchRun) -> None:
        """Note the end of the message that was running when the owner took over the rest of its
        batch."""


@dataclass(slots=True)
class Returned:
    """The work that a runner leaves to the owner at the end of its stretch."""

    pending: list[Pending] = field(default_factory=list)
    leased: list[tuple[LeasedBatch, Sequence[int], float]] = field(default_factory=list)
    """Batches of which this many messages have not begun, and the time of their lease call."""
    dry: bool = False
    """The last lease call returned nothing."""
    error: BaseException | None = None
    """The engine was not reached, or refused the call."""


@dataclass(slots=True)
class Asked:
    """A call in flight that no thread is waiting for yet."""

    answer: Callable[[], batches.Answer]
    limit: int
    began: float
    runs: list[BatchRun]
    """Batches whose messages the call settles."""
    pending: list[Pending]
    """Other messages that the call settles."""

    def all_pending(self) -> list[Pending]:
        """Return what the call settles, in the order of its answers."""
        return [*self.pending, *(one for run in self.runs for one in run.pending())]


class BatchThread(CallThread):
    """A thread that runs batches, one stretch after another, and keeps a loop for coroutines."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"interlock-batches-{queue}")
        self.runner = Runner()

    def end(self) -> None:
        """End the thread and its loop once its current work is finished."""
        if self._thread is not None:
            self.submit(self.runner.close)
        super().end()


class BatchRunner:
    """One stretch of batches of one source."""

    def __init__(
        self,
        source: Source,
        tasks: Tasks,
        times: HandlerTime,
        audit: Audit | Recorder | None,
        events: BatchEvents,
        alone: bool,
        thread: BatchThread,
        loop: LoopPool | None = None,
    ) -> None:
        """``alone``: no other place exists, so coroutine functions run here too. ``loop``: handlers
        run there, and are coroutine functions."""
        self.run: BatchRun | None = None
        """The batch that is being handled."""
        self.thread = thread
        self.asked: collections.deque[Asked] = collections.deque()
        self.handled: list[BatchRun] = []
        """The last batches, which the next call settles."""
        self.ident = 0
        self._source, self._tasks, self._times, self._audit = source, tasks, times, audit
        self._events, self._alone, self._loop = events, alone, loop
        self._pending: list[Pending] = []
        self._stopping = False
        self._more = True
        """The last answer was full, so more messages may be ready."""
        self._retried = time.monotonic() + RETRIED
        """The time at which handlers that only compute return to the pool, which sees whether they
        still do."""
        self._hold_off = 0
        """Number of lease-ahead calls to skip, because the last one returned nothing."""

    def start(self, pending: list[Pending]) -> None:
        """Begin; the first call settles this."""
        self._pending = pending
        self.thread.submit(self._main)

    def give_up(self) -> tuple[list[Pending], list[Asked]]:
        """Return what is to be settled, and the calls in flight: they belong to the owner, which
        has taken END."""
        pending, asked = self._all_pending(), list(self.asked)
        self.asked.clear()
        return pending, asked

    def _all_pending(self) -> list[Pending]:
        pending = self._pending
        for run in self.handled:
            pending += run.pending()
        self.handled, self._pending = [], []
        return pending

    def stop(self) -> None:
        """Begin no further batches. Called by the owner, which then takes over the rest of the
        running one."""
        self._stopping = True

    # -- The stretch ------------------------------------------------------------------------------

    def _main(self) -> None:
        self.ident = threading.get_ident()
        returned: Returned | None
        try:
            returned = self._stretch()
        except BaseException as error:
            returned = self._salvaged(error)
        if returned is not None:
            self._events.batches_ended(self, returned)

    def _stretch(self) -> Returned | None:
        """Return the remainder; None: the owner has taken it."""
        returned = Returned()
        while not returned.leased:
            if not self.asked and not self._ask(returned):
                break
            run = self._receive(returned)
            if run is None:
                if returned.error is not None or (not self.asked and self._is_settled):
                    returned.dry = returned.error is None
                    break
                continue
            if run.batch.alone:
                returned.leased.append((run.batch, run.batch.places, run.began))
                break
            if not self._stopping:
                self._ask_ahead(returned)
            # From here until END is taken, the owner may take over everything.
            self.run = run
            # The owner first announces that it stops, and then looks for a batch.
            late = time.monotonic() - run.began > self._source.lease
            if self._stopping or late or not self._times.quick:
                places, mine = run.rest()
                if not mine:
                    return None
                returned.leased.append((run.batch, places, run.began))
                break
            if not self._handle(run, returned):
                return None
            self.run = None
            self.handled.append(run)
        self.run = None
        self._collect(returned)
        return returned

    def _collect(self, returned: Returned) -> None:
        """Leave to the owner the leases of the calls in flight and everything that is to be
        settled."""
        while self.asked:
            run = self._receive(returned)
            if run is not None:
                returned.leased.append((run.batch, run.batch.places, run.began))
        returned.pending += self._all_pending()

    def _salvaged(self, error: BaseException) -> Returned | None:
        """Return everything that a stretch had when it failed; None: the owner has taken it."""
        returned, run = Returned(error=error), self.run
        if run is not None:
            places, mine = run.rest()
            if not mine:
                self._events.straggler_ended(run)
                return None
            begun = [run.at] if run.at and run.outcome(run.at) is None else []
            returned.leased.append((run.batch, [*begun, *places], run.began))
            self.handled.append(run)
            self.run = None
        while True:
            try:
                self._collect(returned)
            except Exception:
                _log.exception("an answer of queue %r was lost", self._source.name)
                continue
            returned.error = error
            return returned

    @property
    def _is_settled(self) -> bool:
        return not self.handled and not self._pending

    def _ask_ahead(self, returned: Returned) -> None:
        # Calls in flight when handlers return to the pool would lease messages only to return them.
        while self._more and len(self.asked) < self._times.ahead and not self._is_to_retry:
            if self._hold_off:
                self._hold_off -= 1
                return
            if not self._ask(returned):
                return

    def _ask(self, returned: Returned) -> bool:
        """Send a call that settles the pending messages and leases more."""
        handled, pending = self.handled, self._pending
        settlements = [one.settlement for one in pending]
        for run in handled:
            settlements += run.settlements()
        limit, began = self._times.batch_size, time.monotonic()
        source = self._source
        try:
            answer = batches.begin_exchange(source.queue, settlements, limit, source.kind)
        except (ShutDown, EngineUnavailable) as error:
            if not self.asked:
                returned.error = error
            self._more = False
            return False
        self.handled, self._pending = [], []
        self.asked.append(Asked(answer, limit, began, handled, pending))
        return True

    def _receive(self, returned: Returned) -> BatchRun | None:
        """Take the oldest answer; None: it leased nothing."""
        asked = self.asked.popleft()
        ahead = bool(self.asked) or bool(self.handled)
        batch: LeasedBatch | None = None
        try:
            answers, batch = asked.answer()
        except ShutDown as error:
            returned.error = error
        except EngineUnavailable as error:
            returned.error = error
            returned.pending += asked.all_pending()
        else:
            self._told(asked, answers)
        if batch is None:
            self._more = False
            if ahead:
                # The remaining messages are probably all blocked by those being handled now.
                self._hold_off = HOLD_OFF
            return None
        self._more = len(batch.places) == asked.limit
        self._source.batch_tally.leased += len(batch.places)
        return BatchRun(self._source, self._tasks, batch, asked.began)

    def _told(self, asked: Asked, answers: Sequence[bytes]) -> None:
        source = self._source
        source.reached()
        if answers.count(wire.ACKED) == len(answers):
            return
        source.told(asked.all_pending(), answers, source.batch_tally)

    # -- A batch ----------------------------------------------------------------------------------

    def _handle(self, run: BatchRun, returned: Returned) -> bool:
        """Handle the messages of a batch. False: the owner has taken the rest, and their
        outcomes."""
        started, times = time.monotonic(), self._times
        until = min(started + handler_time.LONGEST_RUN, run.began + self._source.lease)
        run.began = started
        if self._loop is None:
            mine = bool(self._run(run, until, returned))
        else:
            mine = self._loop.run_slices(lambda: self._slice(run, until, returned))
        count = run.ended
        if not mine:
            self._events.straggler_ended(run)
            return False
        tally = self._source.batch_tally
        tally.handled += len(run.done)
        for _, outcome in run.others:
            count_outcome(tally, outcome)
        ended = time.monotonic()
        if self._source.meter is not None:
            self._source.meter.handled(run, 0, count, ended)
        times.batch_ended(ended - started, count)
        if not self.asked and self._is_to_retry:
            times.slow()
        return True

    @property
    def _is_to_retry(self) -> bool:
        """Return whether it is time to look whether handlers now compute without the
        interpreter."""
        return self._loop is None and self._times.computing and time.monotonic() > self._retried

    async def _slice(self, run: BatchRun, until: float, returned: Returned) -> bool | None:
        """Handle messages of a batch in one task, until one waits; see ``_run``."""
        run.task, began = asyncio.current_task(), forks.count
        mine = self._run(run, until, returned)
        if run.suspended is not None:
            if forks.count == began:
                # In a child that it has forked there is no owner.
                self._events.batch_waits(self, run)
            await self._end_suspended(run, run.suspended, began)
        return mine

    async def _end_suspended(self, run: BatchRun, call: SuspendedCall, began: int) -> None:
        """``began``: number of forks before the call began."""
        at = run.at
        try:
            result = await call
        except BaseException as error:
            forks.end_if_forked(began, error)
            what = "was cancelled" if issubclass(type(error), asyncio.CancelledError) else "raised"
            held = run.lease(at)
            held._began = call.began
            outcome = judge(call.retry or Retry(), held, error, what)
        else:
            if forks.count != began:
                forks.end_if_forked(began)
            outcome = ACKED if call.retry is not None else result
        self._ended_other(run, at, outcome, call.began)
        run.suspended = None

    def _run(self, run: BatchRun, until: float, returned: Returned) -> bool | None:
        """Handle messages of a batch. True: END was taken; False: the owner has it; None: on a
        loop, what has not begun needs another task."""
        # As little work per message as possible: everything common is done before the loop.
        reply, take, done = run.batch.reply, run.waiting.popleft, run.done.append
        payload_at, handling, audit = wire.PAYLOAD, _current.set, self._audit
        clock, began = time.monotonic, forks.count
        measured, of, moment = self._source.meter is not None, None, clock() + MOMENT
        # Log lines carry their own time, so they are logged message by message.
        plain = {} if run.batch.told_from is not None else self._tasks.plain
        task, here, now = run.task, run.task is not None, 0.0
        pause, references = clock() + LONGEST_SLICE, getrefcount(task)
        computing, waited = self._loop is None and self._times.computing, 0
        computed, counted = thread_time(), waits() if computing else 0
        token = handling(None)
        try:
            while True:
                if task is not None and (
                    # A handler may have left a reference to its task: a timer that cancels it later
                    # must not reach another message.
                    now > pause or task.cancelling() or getrefcount(task) > references
                ):
                    if measured and (now := clock()) > moment:
                        run.slow.append((run.ended - 1, now - moment + MOMENT))
                    return None
                if computing and now:
                    before, computed = computed, thread_time()
                    if computed - before > (clock() - now) / 2:
                        waited = 0
                    elif counted != (counted := waits()):
                        # Otherwise this thread was only kept from the processor.
                        waited += 1
                        if waited == MOST_WAITED:
                            self._leave(run, [], returned)
                            return bool(returned.leased)
                try:
                    at = take()
                except IndexError:
                    return False
                if at == END:
                    return True
                # These come first: if the owner takes over now, it lacks exactly this. The owner
                # reads them in the other order, and must not find the time of the one before.
                run.since = now = clock()
                run.at = at
                if now > until:
                    self._leave(run, [at], returned)
                    return bool(returned.leased)
                if measured:
                    if now > moment:
                        run.slow.append((run.ended - 1, now - moment + MOMENT))
                    moment = now + MOMENT
                payload = reply[at + payload_at]
                # Like head(), without a function call per message.
                name = payload[TASK_AT] if len(payload) > TASK_AT else 0
                call = plain.get(payload[: name - HEAD])
                arguments = None
                if call is not None and call.is_async is here:
                    try:
                        arguments = call.decode(payload[call.arguments :])
                    except Exception:
                        # The general path reports what is wrong with them.
                        arguments = None
                if call is None or arguments is None:
                    if self._handle_other(run, at, returned, now if measured else None):
                        of = None
                        continue
                    return None if run.suspended is not None else bool(returned.leased)
                if measured and call is not of:
                    of = call
                    run.turns.append((len(run.done) + len(run.others), now, call.task))
                if audit is not None:
                    audit.begun(run.lease(at))
                handling((run, at))
                try:
                    if here:
                        context = copy_context()
                        coroutine, awaited = context.run(first_step, call.function, *arguments)
                        if coroutine is not None:
                            run.suspended = SuspendedCall(
                                context, coroutine, awaited, now, call.retry
                            )
                            return None
                    else:
                        copy_context().run(call.function, *arguments)
                except BaseException as error:
                    forks.end_if_forked(began, error)
                    held = run.lease(at)
                    held._began = now
                    run.others.append((at, judge(call.retry, held, error)))
                else:
                    if forks.count != began:
                        forks.end_if_forked(began)
                    done(at)
                if audit is not None:
                    tell_ended(audit, run.lease(at), run.outcome(at))
        finally:
            run.begun = moment - MOMENT
            _current.reset(token)

    def _handle_other(
        self, run: BatchRun, at: int, returned: Returned, measured: float | None
    ) -> bool:
        """Handle a message that is not a plain call, and that began at `measured`, if it is
        measured. False: the batch ends before it."""
        held, audit, tasks = run.lease(at), self._audit, self._tasks
        try:
            invocation = tasks.prepare(held)
        except NotHere:
            return self._leave(run, [at], returned)
        except Exception as error:
            if measured is not None:
                run.turn(measured, held.task)
            run.others.append((at, judge(Retry(), held, error)))
            return True
        on_loop = self._loop is not None
        if invocation.is_async is not on_loop and (on_loop or not self._alone):
            # This needs a thread of its own, where it may wait.
            return self._leave(run, [at], returned)
        tasks.learn(invocation, held.payload)
        if measured is not None:
            run.turn(measured, held.task)
        if audit is not None:
            audit.begun(held)
        started = time.monotonic()
        if invocation.timeout is not None:
            run.batch.grant.bound(held.id, started + invocation.timeout)
        if on_loop:
            context = copy_context()
            coroutine, found = context.run(first_step, ahandle, invocation, held)
            if coroutine is not None:
                run.suspended = SuspendedCall(context, coroutine, found, started, None)
                return False
            outcome: Outcome = found
        else:
            outcome = self.thread.runner.handled(invocation, held)
        self._ended_other(run, at, outcome, started)
        return True

    def _ended_other(self, run: BatchRun, at: int, outcome: Outcome, began: float) -> None:
        """Note the outcome of a message that is not a plain call, or that has waited."""
        held = run.lease(at)
        if run.batch.grant.bounds:
            run.batch.grant.bound(held.id, None)
        if self._audit is not None:
            tell_ended(self._audit, held, outcome)
        if outcome.how == "ack" and run.batch.told_from is not None and not held._over:
            run.batch.log_handled(run.batch.message(at), time.monotonic() - began, held.task)
        run.others.append((at, outcome))

    def _leave(self, run: BatchRun, begun: list[int], returned: Returned) -> bool:
        """Leave the rest of a batch to the owner, after this message, if any."""
        places, mine = run.rest()
        if mine:
            self._times.slow()
            returned.leased.append((run.batch, [*begun, *places], run.began))
        return False


HOLD_OFF = 64
RETRIED = 1.0
MOST_WAITED = 2
"""Messages in a row whose handlers mostly waited, after which a batch is abandoned: others could
have run meanwhile."""
LONGEST_SLICE = 0.005
"""Seconds after which the loop of an asyncio pool gets a turn between two messages of a batch."""
MOMENT = BOUNDS[0]
"""Seconds; shorter handlers are counted without an entry for each message."""
