"""One message that a worker holds: its lease, the run of its handler, and the outcome.

The code is the same for all pools and for batches.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol

from interlock import consumer
from interlock.client.wire import messages as wire
from interlock.errors import PayloadError
from interlock.explanation import key_names
from interlock.failure import EXPIRED, Expired, text_of
from interlock.message import _current
from interlock.retry import Retry
from interlock.runtime import forks

if TYPE_CHECKING:
    from interlock.client.faces.batch import LeasedBatch
    from interlock.worker.message.source import Source

__all__ = [
    "ACKED",
    "RELEASED",
    "Execution",
    "Invocation",
    "Outcome",
    "RunProgress",
    "TaskLease",
    "ahandle",
    "details",
    "failure",
    "handle",
    "judge",
    "lease_at",
    "stopped",
    "tell_ended",
]

_log = logging.getLogger("interlock.worker")


class TaskLease:
    """The lease under which a task's handler runs, as ``current_lease()`` gives it, in any pool.

    The worker settles it when the handler has ended, so it has no ``ack``. A handler returns, or
    raises, for instance, ``RetryAfter`` or ``Reject``.
    """

    __slots__ = (
        "_began", "_is_lost", "_leased_at", "_over", "_received", "attempt", "id", "keys",
        "payload", "queue", "rides", "run", "sequence", "shared", "task", "token",
    )  # fmt: skip

    def __init__(
        self,
        queue: str,
        id: int,
        sequence: int,
        attempt: int,
        token: int,
        keys: frozenset[bytes],
        shared: frozenset[bytes],
        payload: bytes,
        task: str = "",
        is_lost: Callable[[int], bool] | None = None,
        leased_at: int | None = None,
    ) -> None:
        self.queue = queue
        self.id = id
        self.sequence = sequence
        """Its position in the queue; equal to the id, unless it was delayed."""
        self.attempt = attempt
        """Attempt number; the first is 1."""
        self.token = token
        """Rises with every lease of the queue: a fence for the handler's writes. Messages that were
        leased together, of which no two conflict, share a token."""
        self.keys = keys
        self.shared = shared
        self.payload = payload
        """The call as encoded on the wire."""
        self.task = task
        """The task's name."""
        self._is_lost = is_lost
        self._leased_at = token if leased_at is None else leased_at
        """Engine time of the lease, in µs."""
        self._received: float | None = None
        """The time.monotonic() at which the worker received it; None: no time passes here, as in
        tests."""
        self._over = False
        """The worker has settled it, or is about to."""
        self._began: float | None = None
        """The time.monotonic() at which its handler began; None: not yet."""
        self.rides = False
        """It was leased with the message before it in its run."""
        self.run: RunProgress | None = None
        """The messages that follow it in its run; None: it was leased by itself."""

    @property
    def waited(self) -> float:
        """Seconds from taking its position in the queue until the lease; on a later attempt this
        includes all earlier attempts."""
        # A sequence is the server's time at which the message took its position.
        return max(self._leased_at - self.sequence, 0) / 1e6

    @property
    def lost(self) -> bool:
        """The lease expired or was revoked, as far as the worker knows: another worker may repeat
        whatever the handler still does."""
        return self._over or self._is_revoked

    @property
    def _is_revoked(self) -> bool:
        """The lease expired or was revoked: not settled by the worker."""
        return self._is_lost is not None and self._is_lost(self.id)

    def ack(self, *_: object) -> NoReturn:
        """Not supported here."""
        self._settled_by_the_worker("ack")

    def nack(self, *_: object, **__: object) -> NoReturn:
        """Not supported here."""
        self._settled_by_the_worker("nack")

    def reject(self, *_: object) -> NoReturn:
        """Not supported here."""
        self._settled_by_the_worker("reject")

    def release(self) -> NoReturn:
        """Not supported here."""
        self._settled_by_the_worker("release")

    def extend(self, *_: object) -> NoReturn:
        """Not supported here."""
        raise TypeError("extend(): the worker extends the lease while the handler runs")

    def _settled_by_the_worker(self, call: str) -> NoReturn:
        raise TypeError(
            f"{call}(): the worker settles when the handler has ended: return for ack, raise for "
            "nack; raise RetryAfter(seconds) or Reject(reason) for another outcome"
        )

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of message {self.id} in queue {self.queue!r}, "
            f"attempt {self.attempt}, token {self.token}>"
        )


@dataclass(slots=True)
class RunProgress:
    """The messages behind the first one of a run, and how far the handler has come."""

    riders: list[TaskLease] = field(default_factory=list)
    done: int = 0
    """Number of the first messages that are done: the next one is settled by the outcome."""
    reported: int | None = None
    """Number of items that the handler has reported as done; None: it has reported nothing."""
    expired: dict[int, str] = field(default_factory=dict)
    """The numbers of messages that had expired, and since when."""
    more: list[TaskLease] = field(default_factory=list)
    """Messages that were leased with these and are not handled."""
    kept: int = 0
    """Number of riders, where they are not told."""
    tell: Callable[[int], None] | None = None
    """Called with each number of messages that are done, in a process of a pool."""
    _ends: list[int] = field(default_factory=list)
    """``done`` at the handler's end, or at its timeout, whichever was first."""

    def gathered(self, places: Sequence[int]) -> None:
        """Note the numbers of the items that the handler is given: others have expired."""
        if places:
            self.done = places[0]

    def report(self, count: int, places: Sequence[int]) -> None:
        """Note that the handler is done with this many items, which have these numbers."""
        self.reported = count
        if count == len(places) > 0:
            self.finish()
        elif count:
            self.done = places[count]
            self._tell()

    def finish(self) -> None:
        """Note that all are done."""
        self.done = len(self.riders) + 1
        self._tell()

    def _tell(self) -> None:
        if self.tell is not None:
            # Up to the first that has expired: only the outcome says which have.
            self.tell(min((self.done, *self.expired)))

    def end(self) -> int:
        """Return the number of messages that are done, for good: a handler that is left behind, or
        a thread of it, may report more when some are settled already."""
        self._ends.append(self.done)
        return self._ends[0]

    @property
    def blames(self) -> bool:
        """Return whether it is known which message made the handler fail: it has reported, or only
        one is left."""
        return self.reported is not None or self.end() >= len(self.riders)

    def takes(self, other: RunProgress) -> None:
        """Take over the progress that was made in another process."""
        self.done, self.expired = other.done, other.expired
        if other.kept < len(self.riders):
            self.cut(other.kept + 1)

    def told(self) -> RunProgress:
        """Return the progress without the messages."""
        return RunProgress([], self.end(), expired=self.expired, kept=len(self.riders))

    def cut(self, at: int) -> None:
        """Leave out the messages from this number on."""
        self.more = self.riders[at - 1 :]
        del self.riders[at - 1 :]

    def outcomes(self, held: TaskLease, outcome: Outcome) -> list[tuple[TaskLease, Outcome]]:
        """Return the outcomes of a run in order; messages without one return with the last."""
        found, done = [], self.end()
        messages = [held, *self.riders]
        for at, one in enumerate(messages[: done + 1]):
            one.task = held.task
            how = outcome if at == done else ACKED
            if at in self.expired and how is ACKED:
                text = self.expired[at]
                how = Outcome("drop", error=EXPIRED + text, expected="dropped")
            found.append((one, how))
        behind = (messages + self.more)[len(found) :]
        if behind and found[-1][1].how in ("ack", "drop"):
            found.append((behind[0], RELEASED))
        return found


def lease_at(queue: str, batch: LeasedBatch, at: int, riders: Sequence[int] = ()) -> TaskLease:
    """Return the lease of the message at this index of a batch, with those of its run."""
    one = batch.message(at)
    held = TaskLease(
        queue, one.id, one.sequence, one.attempt, batch.token, one.keys, one.shared, one.payload,
        "", batch.is_lost, batch.leased_at,
    )  # fmt: skip
    held._received = batch.received
    if riders:
        held.run = RunProgress([lease_at(queue, batch, one) for one in riders])
        for rider in held.run.riders:
            rider.rides = True
    return held


def details(lease: TaskLease) -> dict[str, Any]:
    """Return the fields that log lines about a message carry as ``extra``."""
    found = {
        "queue": lease.queue,
        "id": lease.id,
        "keys": key_names(lease.keys | lease.shared),
        "attempt": lease.attempt,
        "token": lease.token,
        "task": lease.task,
        "waited": lease.waited,
    }
    if lease._began is not None:
        found["handled"] = time.monotonic() - lease._began
    return found


class Invocation(Protocol):
    """One message, ready to be handled. Its arguments are decoded when it runs."""

    @property
    def task(self) -> str:
        """The task's name."""

    @property
    def timeout(self) -> float | None:
        """Seconds after which the lease is revoked."""

    @property
    def retry(self) -> Retry:
        """Policy that judges its failures."""

    @property
    def is_async(self) -> bool:
        """True if ``arun`` is to be awaited instead of calling ``run``."""

    def run(self) -> bytes | None:
        """Call the handler; return its encoded result if one is kept."""

    async def arun(self) -> bytes | None:
        """Do the same for a coroutine function."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The way in which a message is to be settled."""

    how: Literal["ack", "nack", "reject", "exhaust", "release", "defer", "drop"]
    """``defer``: redeliver after ``delay`` with the attempt unchanged. ``drop``: the message
    expired."""
    result: bytes | None = None
    delay: float | None = None
    """Seconds; None: the backoff of the message's policy."""
    error: str = ""
    expected: str = "acked"
    """The engine's answer, if it agrees with the worker."""
    limit: str | None = None
    """Limit name that is closed to all messages for ``delay`` seconds."""
    run: RunProgress | None = None
    """The progress of a run that a process of a pool handled, without its messages."""

    def settlement(self, token: int, id: int) -> wire.Settlement:
        """Return the settlement of a message, as the engine takes it."""
        if self.limit is not None:
            delay, counts = self.delay or 0.0, self.how == "nack"
            return wire.closing(token, id, delay, self.error, self.limit, counts)
        if self.how == "ack":
            return wire.acking(token, id, self.result)
        if self.how == "nack":
            return wire.nacking(token, id, self.delay, self.error)
        if self.how == "exhaust":
            return wire.exhausting(token, id, self.error)
        if self.how == "reject":
            return wire.rejecting(token, id, self.error)
        if self.how == "defer":
            return wire.deferring(token, id, self.delay or 0.0)
        if self.how == "drop":
            return wire.dropping(token, id, self.error)
        return wire.releasing(token, id)


ACKED = Outcome("ack")
RELEASED = Outcome("release", expected="released")


def handle(invocation: Invocation, lease: TaskLease) -> Outcome:
    """Call the handler of a message in this thread. Never raises."""
    lease._began = time.monotonic()
    token, began = _current.set(lease), forks.count
    try:
        outcome = acked(invocation.run())
    except BaseException as error:
        forks.end_if_forked(began, error)
        outcome = judge(invocation.retry, lease, error)
    finally:
        _current.reset(token)
    if forks.count != began:
        forks.end_if_forked(began)
    return outcome


async def ahandle(invocation: Invocation, lease: TaskLease) -> Outcome:
    """Await the handler of a message. Never raises, not even when cancelled."""
    lease._began = time.monotonic()
    token, began = _current.set(lease), forks.count
    try:
        outcome = acked(await invocation.arun())
    except BaseException as error:
        forks.end_if_forked(began, error)
        what = "was cancelled" if issubclass(type(error), asyncio.CancelledError) else "raised"
        outcome = judge(invocation.retry, lease, error, what)
    finally:
        _current.reset(token)
    if forks.count != began:
        forks.end_if_forked(began)
    return outcome


def acked(result: bytes | None) -> Outcome:
    """Return the outcome of a handler that has returned."""
    return ACKED if result is None else Outcome("ack", result)


def judge(retry: Retry, lease: TaskLease, error: BaseException, what: str = "raised") -> Outcome:
    """Log that a handler failed, and return the outcome of its message. Never raises."""
    # The owner takes it from the lease of a handler that exceeds its timeout.
    run = lease.run
    done, blames = (0, True) if run is None else (run.end(), run.blames)
    if run is not None and done and run.riders:
        # That of the message at fault.
        at_fault = run.riders[min(done, len(run.riders)) - 1]
        at_fault.task, at_fault._began = lease.task, lease._began
        lease = at_fault
    if issubclass(type(error), PayloadError):
        # Another attempt would fail the same way; the dead letter keeps the message for a fixed
        # worker.
        text = text_of(error)
        said = "message %d in queue %r cannot be handled: %s"
        _log.error(said, lease.id, lease.queue, text, extra=details(lease))
        return Outcome("reject", error=text, expected="dead")
    if type(error) is Expired:
        text = str(error)
        said = "message %d (%s) in queue %r has expired and is dropped: %s"
        _log.warning(said, lease.id, lease.task, lease.queue, text, extra=details(lease))
        return Outcome("drop", error=EXPIRED + text, expected="dropped")
    if run is not None and not blames:
        what += f" for a list of {len(run.riders) + 1}, without a report"
    found = consumer.judge(retry, lease, error, what)  # type: ignore[arg-type]
    if not blames and not found.steered:
        return unblamed(found.whole)
    if found.how == "nack":
        return failure(retry, lease, found.whole, found.delay, found.limit)
    if found.how == "reject":
        return Outcome("reject", error=found.whole, expected="dead")
    if found.how == "defer":
        return Outcome(
            "defer", delay=found.delay, error=found.text, expected="released", limit=found.limit
        )
    expected = "dead" if retry.then == "dead" else "held"
    return Outcome("exhaust", error=found.whole, expected=expected)


def failure(
    retry: Retry,
    lease: TaskLease,
    error: str,
    delay: float | None = None,
    limit: str | None = None,
) -> Outcome:
    """Return that an attempt is used up; the message is redelivered after `delay` seconds, or after
    the backoff of its policy."""
    again = retry.attempts is None or lease.attempt < retry.attempts
    expected = "retried" if again else "dead" if retry.then == "dead" else "held"
    return Outcome("nack", delay=delay, error=error, expected=expected, limit=limit)


def stopped(retry: Retry, lease: TaskLease, error: str, delay: float = 0.0) -> Outcome:
    """Return that a handler was stopped, or died. ``delay``: see ``unblamed``."""
    run = lease.run
    if run is not None and not run.blames:
        return unblamed(error, delay)
    return failure(retry, lease, error)


def unblamed(error: str, delay: float = 0.0) -> Outcome:
    """Return that any message of a run may have made its handler fail: the first is returned for
    ``delay`` seconds, its attempt unchanged, and is leased by itself."""
    return Outcome("defer", delay=delay, error=error, expected="released")


class Witness(Protocol):
    """The auditor, as seen by the end of a handler."""

    def ended(self, held: TaskLease) -> None:
        """Note that a handler has ended."""

    def withdrawn(self, held: TaskLease) -> None:
        """Note that its message may be redelivered at the same attempt."""


def tell_ended(witness: Witness, held: TaskLease, outcome: Outcome | None) -> None:
    """Report to the auditor that a handler has ended, before its message is settled."""
    witness.ended(held)
    if (outcome is not None and outcome.how == "defer") or held._is_revoked:
        witness.withdrawn(held)


@dataclass(slots=True, eq=False)
class Execution:
    """One message that this worker holds."""

    batch: LeasedBatch
    held: TaskLease
    """The lease as the handler sees it."""

    invocation: Invocation
    source: Source
    """The queue through which it is settled."""

    offered: float
    """Time of the lease, just before the pool gets the message; time.monotonic()."""

    started: float | None = None
    """Time at which the handler began; None: not yet."""

    ended: float | None = None
    """Time at which the handler ended."""

    at: Any = None
    """The place where it is handled: the number of a thread, a task or a process of the pool."""

    number: int = 0
    """Its number among the messages that a process of the pool was sent."""

    _unclaimed: list[None] = field(default_factory=[None].copy)

    @property
    def timeout(self) -> float | None:
        """Seconds after which the lease is revoked."""
        return self.invocation.timeout

    @property
    def retry(self) -> Retry:
        """Policy that judges its failures."""
        return self.invocation.retry

    @property
    def size(self) -> int:
        """Return the bytes of its payload, and of those of its run."""
        run = self.held.run
        riders = 0 if run is None else sum(len(one.payload) for one in run.riders)
        return len(self.held.payload) + riders

    @property
    def over(self) -> bool:
        """Return whether it is settled: the outcome of its handler no longer counts."""
        return self.held._over

    @property
    def lost(self) -> bool:
        """Return whether it is settled, or its lease is known to be lost."""
        return self.held.lost

    @property
    def expired(self) -> bool:
        """Return whether its lease is lost, or may be: this process was frozen, for instance, and
        another worker may have the message. Then no handler may begin it."""
        return self.lost or self.batch.grant.deadline <= time.monotonic()

    def claim(self) -> bool:
        """Decide who has it: the place that begins it, or the owner that takes it back. True for
        the first caller, on any thread."""
        try:
            self._unclaimed.pop()
        except IndexError:
            return False
        return True

    def begin(self, at: object) -> None:
        """Note that a handler begins."""
        self.at = at
        self.started = time.monotonic()
        if (limit := self.timeout) is not None:
            self.batch.grant.bound(self.held.id, self.started + limit)

    def unbegun(self) -> None:
        """Note that its place returned it: no handler has begun."""
        self.at = self.started = None
        if self.timeout is not None:
            self.batch.grant.bound(self.held.id, None)

    def end(self, ended: float | None = None) -> None:
        """Note that the handler has ended, at this time.monotonic() or now."""
        self.ended = time.monotonic() if ended is None else ended
        if self.timeout is not None:
            self.batch.grant.bound(self.held.id, None)
