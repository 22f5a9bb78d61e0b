"""One queue that a worker leases from: its calls to the engine, and its pending settlements.

Two threads make the calls, because one of them may wait for work. The state belongs to the owner,
or to a ``BatchRunner`` to which the owner lends the source.
"""

from __future__ import annotations

import enum
import logging
import queue as _queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from interlock.client.faces import batch as batches
from interlock.client.faces.batch import LeasedBatch
from interlock.client.wire import messages as wire
from interlock.errors import EngineUnavailable, InterlockError, ShutDown
from interlock.failure import text_of
from interlock.message import Kind
from interlock.worker.message.execution import (
    ACKED,
    Execution,
    Outcome,
    RunProgress,
    TaskLease,
    details,
)

if TYPE_CHECKING:
    from interlock.client.requests.lease_renewal import LeaseRenewer
    from interlock.worker.message.meter import Meter

__all__ = [
    "Call",
    "CallThread",
    "Pending",
    "Replies",
    "Source",
    "SourceState",
    "Tally",
    "count_outcome",
]

_log = logging.getLogger("interlock.worker")


class SourceState(enum.Enum):
    """The present use of a source."""

    IDLE = "idle"
    CALLING = "calling"
    """A call is in flight that does not wait."""
    WAITING = "waiting"
    """A call waits for work."""
    PAUSED = "paused"
    """Paused until a time: the engine was unreachable, or the queue is sealed."""
    BATCHES = "batches"
    """A ``BatchRunner`` leases and settles."""


class Pending(NamedTuple):
    """A message that is to be settled with the next call."""

    held: TaskLease | Execution
    """The second has the lease, and makes it on request."""
    outcome: Outcome
    settlement: wire.Settlement


@dataclass(slots=True)
class Tally:
    """Counters of one thread."""

    leased: int = 0
    handled: int = 0
    failed: int = 0
    lost: int = 0


@dataclass(slots=True)
class Call:
    """A call to the engine, and its outcome."""

    pending: list[Pending]
    places: int
    """Number of places taken for the messages that it leases; 0: it only settles."""
    state: SourceState = SourceState.CALLING
    """State of the source while the call is in flight; IDLE if it only settles alongside another
    call, BATCHES if a runner has left it."""
    began: float = 0.0
    answers: Sequence[bytes] = ()
    batch: LeasedBatch | None = None
    error: BaseException | None = None


class Replies(Protocol):
    """Receives the outcomes of calls, from the threads that made them."""

    def replied(self, source: Source, call: Call) -> None:
        """Note that a call is over."""

    def turn_came(self, kept: bool) -> None:
        """Note that a message that waited to run alone may begin, unless its lease was lost."""

    def source_broke(self, error: BaseException) -> None:
        """Note that a queue can no longer be served. Called by the owner's thread."""


class Source:
    """One queue, and the kind of its messages."""

    def __init__(
        self, name: str, queue: Any, kind: Kind, lease: float, replies: Replies, runs: bool = False
    ) -> None:
        self.name = name
        self.queue = queue
        self.kind: Kind = kind
        self.runs = runs and kind != "unkeyed"
        """It takes messages with those that follow them in their runs."""
        self.lease = lease
        """Seconds that a lease lasts."""
        self.state = SourceState.IDLE
        self.resumes = 0.0
        """The time until which it is paused."""
        self.pending: list[Pending] = []
        self.settling = False
        """The second thread is settling."""
        self.receiving = 0
        """Calls of a batch runner whose answers are not processed yet."""
        self.dry = False
        """The last lease call returned nothing."""
        self.more = False
        """The last lease call returned as many messages as requested."""
        self.failures = 0
        """Calls in a row that did not reach the engine."""
        self.connected = threading.Event()
        """The engine has answered, or waiting for it makes no sense any longer."""
        self._answered = False
        self.tally = Tally()
        """Counters of the owner."""
        self.batch_tally = Tally()
        """Counters of the runner of batches."""
        self.meter: Meter | None = None
        """Meter; None if metrics are off."""
        self._replies = replies
        suffix = name if kind == "any" else f"{name}-{kind}"
        self._leaser = CallThread(f"interlock-lease-{suffix}")
        self._settler = CallThread(f"interlock-settle-{suffix}")

    # -- Calls, made by the threads ---------------------------------------------------------------

    def exchange(self, places: int) -> None:
        """Settle the pending messages, and lease for this many places, without waiting."""
        self._begin(SourceState.CALLING, places)

    def wait(self, places: int, seconds: float) -> None:
        """Lease for this many places; wait up to ``seconds`` for work."""
        self.state = SourceState.WAITING
        call = Call([], places, SourceState.WAITING)
        self._submit(self._leaser, call, lambda: self._make(call, time.monotonic() + seconds))

    def settle(self) -> None:
        """Settle the pending messages, on the second thread if the first one waits."""
        if self.state is SourceState.IDLE:
            self._begin(SourceState.CALLING, 0)
            return
        self.settling = True
        call = Call(self.taken(), 0, SourceState.IDLE)
        self._submit(self._settler, call, lambda: self._make(call))

    def begin_alone(self, batch: LeasedBatch) -> None:
        """Report to the engine that the handler of a message that waited to run alone begins."""

        def begin() -> None:
            handle = self.queue._handle
            batch.grant.begins()
            started = time.monotonic()
            try:
                kept = self.queue._run(None, handle.extend, batch.token, self.lease)
                batch.grant.extended(self.lease, started)
            except Exception as error:
                _log.warning("queue %r: %s", self.name, error)
                kept = False
            self._replies.turn_came(kept)

        self._settler.submit(begin)

    def receive(self, call: Call, answer: Callable[[], batches.Answer]) -> None:
        """Process the answer to a call whose sender no longer takes it."""
        self.receiving += 1
        self._submit(self._leaser, call, lambda: self._make(call, answer=answer))

    @property
    def is_quiet(self) -> bool:
        """Return whether no call is in flight and nothing is pending."""
        busy = self.settling or self.receiving or self.pending
        return not busy and self.state in (SourceState.IDLE, SourceState.PAUSED)

    @property
    def is_busy(self) -> bool:
        """Return whether a call is in flight, other than one that waits for work, or is due."""
        calls = self.settling or self.receiving or self.state is SourceState.CALLING
        return bool(calls or self.pending)

    @property
    def waits(self) -> bool:
        """Return whether a call waits for work; it may lease something at any time."""
        return self.state is SourceState.WAITING

    def interrupt(self) -> None:
        """End the call that waits for work, and lease nothing further."""
        self.queue.close()

    def close(self) -> None:
        """End the threads."""
        self._leaser.end()
        self._settler.end()

    def taken(self) -> list[Pending]:
        """Take as many pending settlements as fit in one call, and not a part of a lease's: those
        of a run are in order, and two calls may overtake each other."""
        most = MOST_SETTLED
        if self.runs and len(self.pending) > most:
            token = self.pending[most].settlement[1]
            while most and self.pending[most - 1].settlement[1] == token:
                most -= 1
        most = most or MOST_SETTLED
        taken, self.pending = self.pending[:most], self.pending[most:]
        return taken

    def _begin(self, state: SourceState, places: int) -> None:
        self.state = state
        call = Call(self.taken(), places, state)
        self._submit(self._leaser, call, lambda: self._make(call, 0.0))

    def _submit(self, thread: CallThread, call: Call, job: Callable[[], None]) -> None:
        try:
            thread.submit(job)
        except RuntimeError as error:
            # The system cannot start a thread: the owner would wait for a call that is never made.
            call.error = error
            self._replies.replied(self, call)

    def _make(
        self,
        call: Call,
        until: float = 0.0,
        answer: Callable[[], batches.Answer] | None = None,
    ) -> None:
        call.began = call.began or time.monotonic()
        settlements = [settlement for _, _, settlement in call.pending]
        try:
            if answer is not None:
                call.answers, call.batch = answer()
            elif call.places:
                call.answers, call.batch = batches.exchange(
                    self.queue, settlements, call.places, until, self.kind + "+" * self.runs
                )
            elif settlements:
                call.answers = batches.settle(self.queue, settlements)
        except BaseException as error:
            call.error = error
        self._replies.replied(self, call)

    # -- Settlements ------------------------------------------------------------------------------

    def add(self, batch: LeasedBatch, held: TaskLease, outcome: Outcome) -> None:
        """Add a message to be settled: it is sent with the next call. The messages of a run that
        are done are settled before it, and the others return with it."""
        if held.run is not None:
            self._add_run(batch, held, held.run, outcome)
            return
        if outcome.how == "release":
            # No handler had it; it is counted when it is redelivered.
            self.tally.leased -= 1
            if self.meter is not None:
                self.meter.released(self.name)
        self.pending.append(pending(batch, held, outcome))

    def _add_run(
        self, batch: LeasedBatch, held: TaskLease, run: RunProgress, outcome: Outcome
    ) -> None:
        behind = [*run.riders, *run.more]
        held.run = None
        for one, how in run.outcomes(held, outcome):
            self.add(batch, one, how)
        for one in behind:
            if not one._over:
                # It was leased and is not handled.
                one._over = True
                batch.settled(one.id)
                self.tally.leased -= 1

    def acked(self, execution: Execution, settlement: wire.Settlement) -> None:
        """Add a message whose handler in a process has returned to those to be settled."""
        self.pending.append(Pending(execution, ACKED, settlement))

    def told(self, pending: Sequence[Pending], answers: Sequence[bytes], tally: Tally) -> None:
        """Log the outcomes of settlements that differ from what was expected."""
        for (one, outcome, _), said in zip(pending, answers, strict=True):
            if outcome is ACKED and said == wire.ACKED:
                continue
            answer = wire.answer(said)
            if answer == outcome.expected:
                continue
            held = one if isinstance(one, TaskLease) else one.held
            if answer == "lost":
                tally.lost += 1
                if self.meter is not None:
                    self.meter.lost(held)
                _log.warning(
                    "the lease of message %d in queue %r was lost before it was settled; "
                    "another worker handles it, or has handled it",
                    held.id, held.queue, extra=details(held),
                )  # fmt: skip
            elif answer in ("dead", "held"):
                _log.error(
                    "message %d in queue %r is %s: its attempts are used up, by the policy it was "
                    "sent with",
                    held.id, held.queue, answer, extra=details(held),
                )  # fmt: skip

    @property
    def is_connected(self) -> bool:
        """Return whether the engine has answered the last call."""
        return self._answered and not self.failures

    @property
    def renewer(self) -> LeaseRenewer:
        """Return the object that renews its leases; other queues may share it."""
        renewer: LeaseRenewer = self.queue._sessions.renewer
        return renewer

    def reached(self) -> None:
        """Process the engine's answer."""
        if self.failures:
            _log.warning("queue %r: engine reachable again", self.name)
            self.failures = 0
        if not self._answered:
            self._answered = True
            self.connected.set()

    def failed(self, call: Call, error: BaseException) -> None:
        """Handle a failed call, and pause calls to the engine for a while."""
        if isinstance(error, EngineUnavailable):
            self.pending[:0] = call.pending
            self.failures += 1
            pause: float = min(0.1 * 2 ** min(self.failures, 10), LONGEST_PAUSE)
            _log.warning("queue %r: %s; trying again in %.3g s", self.name, error, pause)
        elif isinstance(error, ShutDown):
            # Sealed and drained; it may be reopened. Or closed, at the end.
            pause = SEALED_PAUSE
        else:
            # A refusal by the engine explains itself; anything else is a fault of this code.
            known = isinstance(error, InterlockError)
            _log.error(
                "queue %r can no longer be served: %s", self.name, error,
                exc_info=None if known else error,
            )  # fmt: skip
            pause = BROKEN_PAUSE
            self._replies.source_broke(error)
        self.resumes = time.monotonic() + pause
        if self.state is SourceState.IDLE:
            self.state = SourceState.PAUSED


def pending(batch: LeasedBatch, held: TaskLease, outcome: Outcome) -> Pending:
    """Return the settlement of a message, which is no longer renewed."""
    held._over = True
    if outcome is ACKED:
        batch.settled(held.id)
        return Pending(held, outcome, wire.acking(held.token, held.id))
    try:
        settlement = outcome.settlement(held.token, held.id)
    except Exception as error:
        # For a settlement that cannot be sent: a message that is not settled is renewed, and its
        # lanes stay closed.
        text = (
            "message %d in queue %r cannot be settled with its handler's outcome; it counts as "
            "failed"
        )
        _log.exception(text, held.id, held.queue, extra=details(held))
        outcome = Outcome("nack", error=text_of(error), expected="retried")
        settlement = outcome.settlement(held.token, held.id)
    batch.settled(held.id)
    return Pending(held, outcome, settlement)


def count_outcome(tally: Tally, outcome: Outcome) -> None:
    """Count a handler that has ended."""
    if outcome.how == "ack":
        tally.handled += 1
    elif outcome.how not in ("release", "defer", "drop"):
        tally.failed += 1


class CallThread:
    """A thread that makes one call after another; started with the first."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: _queue.SimpleQueue[Callable[[], None] | None] = _queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, job: Callable[[], None]) -> None:
        """Queue the call. Raises RuntimeError if the system cannot start a thread."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            thread.start()
            self._thread = thread
        self._jobs.put(job)

    def end(self) -> None:
        """End the thread when it has finished its calls."""
        self._jobs.put(None)

    def _run(self) -> None:
        while self._step():
            pass

    def _step(self) -> bool:
        # A function of its own, so that no name holds the last answer while the next is awaited.
        job = self._jobs.get()
        if job is not None:
            job()
        return job is not None


MOST_SETTLED = 1024
LONGEST_PAUSE = 5.0
"""Seconds."""
SEALED_PAUSE = 1.0
BROKEN_PAUSE = 10.0
