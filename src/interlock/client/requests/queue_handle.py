"""One queue as one client holds it: its leases and settlements, as requests of both faces.

Its puts are those of `queue_puts`; calls that watch or operate the queue are in `operations`.
"""

from __future__ import annotations

import copy
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from interlock.client.connection.call import Engine
from interlock.client.request import Abandoned, Request
from interlock.client.requests import waiting as wait
from interlock.client.requests.lease_renewal import Grant
from interlock.client.requests.lease_state import LOST, LeaseState
from interlock.client.requests.queue_arguments import (
    check_kind,
    check_leases,
    check_limit,
    check_settlements,
    until,
)
from interlock.client.requests.queue_puts import Puts
from interlock.client.session import Session
from interlock.client.wire import messages as wire
from interlock.client.wire.codec import Codec
from interlock.client.wire.declaration import Declaration
from interlock.errors import (
    Empty,
    InterlockError,
    LeaseLost,
    ShutDown,
)
from interlock.message import Keys
from interlock.retry import Retry, Seconds
from interlock.runtime.limits import MAX_BATCH
from interlock.watch import handled_are_told, log

if TYPE_CHECKING:
    from interlock.client.requests.queue_admin import Operations
    from interlock.client.requests.queue_reports import Watch

L = TypeVar("L", bound=LeaseState[Any])
_LOOKS = 1000
"""Maximum number of repetitions of a call that does not wait, for work that is due immediately."""


class Handle(Puts):
    """A queue of either face. Times are in seconds; `until` is of time.monotonic()."""

    operations: Operations
    watch: Watch

    def __init__(
        self,
        engine: Engine,
        name: str,
        declaration: Declaration,
        lease: float,
        codec: Codec,
        retry: Retry,
        keys: Callable[[Any], Keys] | None,
        shared: Callable[[Any], Keys] | None,
        linger: float = 0,
    ) -> None:
        super().__init__(engine, name, declaration, codec, keys, shared, linger)
        self.lease = lease
        self.retry = retry
        self._length = wire.micros(lease)

    def again(self) -> Handle:
        """Return another handle of the same queue, which is closed separately."""
        other = copy.copy(self)
        other.closed = False
        other.thread_puts, other.loop_puts = {}, weakref.WeakKeyDictionary()
        return other

    # -- Leases -------------------------------------------------------------------------------

    def exchange(
        self,
        session: Session[Any],
        of: Any,
        lease: Callable[..., L],
        call: str,
        settlements: Sequence[wire.Settlement],
        limit: int,
        block: bool,
        timeout: Seconds | None,
        kind: str,
        needed: bool = False,
        begins: bool = True,
    ) -> Request[tuple[list[str], list[L]]]:
        """Settle, then lease; return the outcome of each settlement, and the leases.

        Args:
            of, lease: the queue of a face, and the class of its leases.
            needed: without a lease, raise Empty, or PayloadError of an undecodable message.
            begins: report to the engine the begin of a message that must run alone; else the caller
                does.
        """
        if kind.__class__ is not str or kind != "any":
            check_kind(call, kind)
        if limit.__class__ is not int or limit < 1:
            limit = check_limit(call, limit)
        if settlements:
            check_settlements(call, settlements)
        end = None if block and timeout is None else until(call, block, timeout)
        started = time.monotonic()
        answers, leased = yield from self.take(session, settlements, limit, kind, end)
        if leased.alone and begins:
            yield from self._begin_alone(session, leased)
        try:
            said = [wire.answer(one) for one in answers] if answers else []
            if not leased.count:
                if needed:
                    raise Empty("no message is ready")
                return said, []
            leases, spoilt = self._handed(session, of, lease, leased, started, begins)
        except (InterlockError, Empty):
            raise
        except BaseException:
            # Raised by a signal: some messages may have no lease object yet that would return them.
            session.undo = self._given_back(session, leased)
            raise
        for one, error in spoilt:
            self.log_spoilt(one, error)
            back = one.nacking(None, error)
            try:
                one._took((yield from self.settle(session, [back]))[0])
            except LeaseLost:
                continue
            except BaseException:
                one._reopened()
                raise
        if needed and not leases:
            raise spoilt[0][1]
        return said, leases

    def _begin_alone(self, session: Session[Any], leased: wire.Leased) -> Request[None]:
        try:
            yield from self.extend(session, leased.token, self.lease)
        except BaseException:
            # No handler begins it, whether the engine knows that or not.
            for message in leased.messages:
                back = wire.releasing(leased.token, message.id)
                session.renewer.abandon(self, back)
            raise

    def take(
        self,
        session: Session[Any],
        settlements: Sequence[wire.Settlement],
        limit: int,
        kind: str,
        end: float | None,
    ) -> Request[tuple[list[bytes], wire.Leased]]:
        """Settle, then lease up to `limit`, waiting for one; no leases if no message was ready in
        time. `kind`: as of a get; with a plus behind it, runs are taken.

        Raises:
            ShutDown: the queue is sealed and has no unsettled message; or it was closed.
        """
        engine, key = self.engine, self.key
        lease = (min(limit, MAX_BATCH), self._length, kind)
        wakes = f"wake:{kind.removesuffix('+')}"
        answers: list[bytes] = []
        # Settlements that exceed one call are sent before it.
        *first, settlements = wire.parts(settlements) if settlements else ((),)
        call = looks = 0
        sleep: wire.Sleep = ((), 0.0)
        try:
            while first:
                answers += yield from self.settle(session, first[0])
                del first[0]
            while True:
                if not settlements and self.closed:
                    raise self._closed()
                if self.declaration.is_pending:
                    yield from self.declaration.made(engine, session, key)
                seconds = wait.CHUNK if end is None else wait.chunk(end)
                call = session.calls = session.calls + 1
                last, leased = yield from wire.take(
                    engine, session, key, call, settlements, lease, seconds, sleep
                )
                if last:
                    answers += last
                    if wire.HELD in last:
                        session.renewer.held(self.watch)
                if leased.count:
                    return answers, leased
                if leased.sealed and not settlements:
                    raise ShutDown(f"queue {self.name!r} is sealed and empty")
                # The rest of a call's due work is due immediately: even a caller that does not wait
                # asks again; otherwise it would get nothing although messages are ready.
                unfinished = leased.due == 0 and looks < _LOOKS
                if leased.sealed or (wait.over(end) and not unfinished):
                    return answers, leased
                settlements, call = (), 0
                looks += 1
                asleep = wait.sleep(engine, key, wakes, seconds, leased.due)
                sleep = asleep or ((), 0.0)
                if asleep is None:
                    yield from wait.doze(engine, session, key, wakes, seconds, leased.due)
        except Abandoned:
            for some in first:
                # A repeated settlement is answered with a lost lease, and does nothing.
                session.begin_undoing()
                yield from self.settle(session, some)
            yield from self._undo_take(session, call, lease, settlements)
            raise
        except (InterlockError, GeneratorExit):
            raise
        except BaseException:
            # By a signal between two replies. A reply may have come whose leases nobody reads.
            session.undo = self._undo_take(session, call, lease, settlements)
            raise

    def _undo_take(
        self,
        session: Session[Any],
        call: int,
        lease: tuple[int, int, str],
        settlements: Sequence[wire.Settlement],
    ) -> Request[None]:
        """Undo the call under way: its leases, or the element that woke the wait, will not be used.

        The call is repeated, and its leases are returned. If it had no lease, another lease is made
        and returned, which wakes the next waiter.
        """
        session.begin_undoing()
        if not call:
            call = session.calls = session.calls + 1
        asked = self.key, call, settlements, lease
        _, leased = yield from wire.take(self.engine, session, *asked)
        yield from self._given_back(session, leased)

    def _given_back(self, session: Session[Any], leased: wire.Leased) -> Request[None]:
        """Release all messages that one call has leased."""
        if leased.count:
            back = [wire.releasing(leased.token, message.id) for message in leased.messages]
            yield from self.settle(session, back)

    def _handed(
        self,
        session: Session[Any],
        of: Any,
        lease: Callable[..., L],
        leased: wire.Leased,
        started: float,
        begun: bool,
    ) -> tuple[list[L], list[tuple[L, Exception]]]:
        """Return the leases of the received messages.

        Messages whose payloads cannot be decoded follow, with their errors.
        """
        good: list[L] = []
        spoilt: list[tuple[L, Exception]] = []
        renewer = session.renewer
        grant = Grant(self, leased, started, renewer)
        if begun:
            grant.begins()
        if handled_are_told():
            grant.told_from = time.monotonic()
        for message in leased.messages:
            if message.attempt > 1 or leased.alone:
                # An earlier holder in this process has lost it.
                grant.outlived(renewer.lose(self.name, message.id, leased.token), message.id)
            try:
                payload = self.codec.read(message.payload)
            except Exception as error:
                found = self.codec.unreadable(message.id, error)
                found.__cause__ = error
                spoilt.append((lease(of, grant, message, message.payload), found))
            else:
                good.append(lease(of, grant, message, payload))
        return good, spoilt

    def log_unrevoked(self, id: int, error: Exception) -> None:
        """Log that a handler exceeded its timeout, and its lease could not be revoked.

        The lease expires by itself.
        """
        log.warning(
            "queue %r: the lease of message %d could not be revoked: %s",
            self.name,
            id,
            error,
            extra={"queue": self.name, "id": id},
        )

    def log_spoilt(self, lease: LeaseState[Any] | wire.Handed, error: BaseException) -> None:
        """Log the error of a payload that cannot be decoded.

        The caller may not see the exception, if the batch had other messages.
        """
        log.error(
            "queue %r: %s; it counts as a failed attempt",
            self.name,
            error,
            extra={"queue": self.name, "id": lease.id, "attempt": lease.attempt},
        )

    # -- Settlements --------------------------------------------------------------------------

    def settle(
        self, session: Session[Any], settlements: Sequence[wire.Settlement]
    ) -> Request[list[bytes]]:
        """Settle; return the engine's answer to each settlement."""
        if not settlements:
            return []
        if self.declaration.is_pending:
            yield from self.declaration.made(self.engine, session, self.key)
        answers = yield from wire.settle(self.engine, session, self.key, settlements)
        if wire.HELD in answers:
            session.renewer.held(self.watch)
        return answers

    def settled(
        self, session: Session[Any], settlements: Sequence[wire.Settlement]
    ) -> Request[list[str]]:
        """Settle; return the outcome of each settlement, in words."""
        check_settlements("settle()", settlements)
        return [wire.answer(one) for one in (yield from self.settle(session, settlements))]

    def opened(self, leases: Iterable[Any]) -> tuple[list[Any], list[Any]]:
        """Return the open leases and those that were settled before, for ack_many()."""
        given = check_leases(leases, LeaseState, self.name)
        return [one for one in given if not one._state], [one for one in given if one._state]

    def lost(self, leases: Sequence[Any], answers: Sequence[bytes]) -> list[Any]:
        """Process the answers for leases settled together; return the lost ones."""
        found = [one for one, said in zip(leases, answers, strict=True) if said == wire.LOST]
        for one in found:
            one._gone(LOST)
        return found

    def extend(
        self, session: Session[Any], token: int, seconds: float, waits: bool = False
    ) -> Request[bool]:
        """Extend a lease; `waits`: no handler has begun it. Return False if it is lost."""
        if self.declaration.is_pending:
            yield from self.declaration.made(self.engine, session, self.key)
        return (yield from wire.extend(self.engine, session, self.key, token, seconds, waits))
