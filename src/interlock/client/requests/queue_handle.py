"""One queue as one client holds it: its puts, leases and settlements, as requests of both faces.

Arguments are checked, and payloads encoded and decoded, here. Calls that watch or operate the queue
are in `operations`.
"""

from __future__ import annotations

import copy
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from interlock import _core
from interlock.client.connection.call import Engine
from interlock.client.connection.refusals import OutOfMemory
from interlock.client.request import Abandoned, Argument, Refused, Request
from interlock.client.requests import waiting as wait
from interlock.client.requests.coalesced_puts import Send
from interlock.client.requests.lease_renewal import Grant
from interlock.client.requests.lease_state import LOST, LeaseState
from interlock.client.requests.queue_arguments import (
    check_kind,
    check_leases,
    check_limit,
    check_settlements,
    until,
)
from interlock.client.session import Session
from interlock.client.wire import messages as wire
from interlock.client.wire.codec import Codec
from interlock.client.wire.declaration import Declaration
from interlock.errors import (
    Empty,
    EngineUnavailable,
    Full,
    InterlockError,
    LeaseLost,
    ShutDown,
)
from interlock.message import Keys, Kind, Put
from interlock.retry import Retry, Seconds, seconds
from interlock.runtime.limits import MAX_BATCH, MAX_CALL, MAX_PAYLOAD
from interlock.watch import handled_are_told, log

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from interlock.client.requests.loop_puts import LoopPuts
    from interlock.client.requests.queue_admin import Operations
    from interlock.client.requests.queue_reports import Watch
    from interlock.client.requests.thread_puts import ThreadPuts

L = TypeVar("L", bound=LeaseState[Any])
_LOOKS = 1000
"""Maximum number of repetitions of a call that does not wait, for work that is due immediately."""
_SHORTEST = 0.1
"""Minimum seconds that an engine has for the answer of a put."""
_ROOM = 1.0
"""Seconds after which a waiting put checks for room again: a failure that frees room may fall due
without any call, and so may the end of the time for which room is kept for another put."""


class Handle:
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
        self.engine = engine
        self.name = name
        self.key = f"il:{{{name}}}"
        self.declaration = declaration
        self.lease = lease
        self.codec = codec
        self.retry = retry
        self.linger = linger
        """Seconds for which a put waits until others can be sent with it."""
        self.thread_puts: ThreadPuts | None = None
        self.loop_puts: weakref.WeakKeyDictionary[AbstractEventLoop, LoopPuts] = (
            weakref.WeakKeyDictionary()
        )
        self.closed = False
        self._length = wire.micros(lease)
        # Not a queue, only its arguments: a put's are checked by the same code as those of a queue
        # in process.
        self._names: _core.Queue[Any] = _core.Queue(
            0, 0, None, keys, shared, Retry()._native(), None, None, {}, "arguments", 0, 0, 0
        )  # fmt: skip

    def again(self) -> Handle:
        """Return another handle of the same queue, which is closed separately."""
        other = copy.copy(self)
        other.closed = False
        other.thread_puts, other.loop_puts = None, weakref.WeakKeyDictionary()
        return other

    # -- Puts ---------------------------------------------------------------------------------

    def put_arguments(
        self,
        call: str,
        payload: Any,
        block: bool,
        timeout: Seconds | None,
        keys: Keys | None = None,
        shared: Keys | None = None,
        priority: int = 0,
        delay: Seconds = 0,
        dedup: str | None = None,
        barrier: bool = False,
        quiet: bool = False,
        retry: Retry | None = None,
        result_ttl: Seconds = 0,
        bounded: bool = False,
        window: float | None = None,
    ) -> tuple[wire.Message, float | None, bool]:
        """Check a put's arguments, and return those of `put_message`.

        `bounded`: the timeout is for the whole call, whatever it does; `window`: seconds for which
        the dedup string stays known, instead of the queue's.
        """
        if retry is not None and not isinstance(retry, Retry):
            raise TypeError(f"put(): retry is {type(retry).__name__}; allowed: Retry or None")
        # The common cases need no check: the default, and the times that a task has checked.
        result = 0.0
        if result_ttl.__class__ is float and result_ttl >= 0:
            result = result_ttl
        elif result_ttl.__class__ is not int or result_ttl != 0:
            result = seconds(result_ttl, "put(): result_ttl")
        named = self._names._named_put(
            "put()", payload, keys, shared, priority, delay, dedup, barrier, quiet
        )
        message = self._written(payload, "put()", named, retry, result, window)
        if block and timeout is None:
            end = None
        elif block and timeout.__class__ is float and timeout >= 0:
            end = time.monotonic() + timeout
        else:
            end = until(call, block, timeout)
        return message, end, bounded

    def put(self, session: Session[Any], *arguments: Any, **named: Any) -> Request[Put]:
        """Put a message; arguments as of `put_arguments`."""
        message, end, bounded = self.put_arguments(*arguments, **named)
        return (yield from self._put(session, [message], end, bounded))[0]

    def put_message(
        self, session: Session[Any], message: wire.Message, end: float | None, bounded: bool
    ) -> Request[Put]:
        """Put a message, and wait for room until `end`; None: without limit."""
        return (yield from self._put(session, [message], end, bounded))[0]

    def put_together(self, session: Session[Any], sends: Sequence[Send]) -> Request[None]:
        """Put messages of several callers in one call that does not wait for room.

        It notes the outcome of each, or raises the error of all that have none yet. If the engine
        refuses the call, nothing was put, and each message is sent by itself.
        """
        try:
            done = yield from self._put_now(session, sends)
        except Refused:
            # It cannot store anything at present: each caller repeats it as long as it may.
            for send in sends:
                send.alone = True
            return
        except EngineUnavailable:
            raise
        except (InterlockError, ValueError) as error:
            if len(sends) == 1:
                is_full = isinstance(error, Full) and not isinstance(error, OutOfMemory)
                if not is_full or wait.over(sends[0].end):
                    raise
                sends[0].alone = True
                return
        else:
            for send, put in zip(sends, done, strict=True):
                send.put = put
            return
        for send in sends:
            try:
                yield from self.put_together(session, [send])
            except EngineUnavailable:
                raise
            except (InterlockError, ValueError) as error:
                send.refused(error)

    def _put_now(self, session: Session[Any], sends: Sequence[Send]) -> Request[list[Put]]:
        if self.closed:
            raise self._closed()
        if self.declaration.arguments and self.declaration.told != self.engine.losses:
            yield from self.declaration.made(self.engine, session, self.key)
        messages = [send.message for send in sends]
        within = max(max(send.deadline for send in sends) - time.monotonic(), _SHORTEST)
        done = yield from wire.put(
            self.engine, session, self.key, messages, 0, within, final="MISCONF"
        )
        if self.watch.next_put <= time.monotonic():
            session.renewer.noted(self.watch, done[-1].id)
        return done

    def put_many(
        self,
        session: Session[Any],
        items: Iterable[Any],
        block: bool,
        timeout: Seconds | None,
        keys: Keys | Callable[[Any], Keys] | None = None,
        shared: Keys | Callable[[Any], Keys] | None = None,
        priority: int = 0,
        delay: Seconds = 0,
        dedup: Callable[[Any], str | None] | None = None,
        quiet: bool = False,
        each_keys: Iterable[Keys | None] | None = None,
        each_shared: Iterable[Keys | None] | None = None,
    ) -> Request[list[Put]]:
        """Put a batch, all of it or nothing."""
        payloads = list(items)
        if len(payloads) > MAX_BATCH:
            raise ValueError(
                f"put_many(): {len(payloads)} messages; allowed: up to {MAX_BATCH} in one call"
            )
        each = self._names._named_many(
            payloads, keys, shared, each_keys, each_shared, priority, delay, dedup, quiet
        )
        messages = [
            self._written(payload, "put_many()", named)
            for payload, named in zip(payloads, each, strict=True)
        ]
        size = sum(len(message.payload) for message in messages)
        if size > MAX_CALL:
            raise ValueError(
                f"put_many(): {len(messages)} payloads of {size} bytes together when encoded; "
                f"allowed: up to {MAX_CALL} in one call"
            )
        end = until("put_many()", block, timeout)
        return (yield from self._put(session, messages, end))

    def _written(
        self,
        payload: Any,
        call: str,
        named: tuple[tuple[bytes, ...], tuple[bytes, ...], int, float, str | None, bool, bool],
        retry: Retry | None = None,
        result: float = 0,
        window: float | None = None,
    ) -> wire.Message:
        keys, shared, priority, delay, dedup, barrier, quiet = named
        options: tuple[Argument, ...] = ()
        # The common case: all as expected, nothing to check.
        said = priority or delay or dedup is not None or barrier or quiet
        if said or result or retry is not None:
            options = wire.put_options(
                priority=priority,
                delay=delay,
                dedup=dedup,
                window=window,
                barrier=barrier,
                quiet=quiet,
                result=result,
                retry=retry,
            )
        try:
            encoded = self.codec.write(payload)
        except Exception as error:
            raise self.codec.unwritable(payload, call, error) from error
        if len(encoded) > MAX_PAYLOAD:
            raise self.codec.too_long(encoded, call)
        return wire.Message(encoded, keys, shared, options)

    def _put(
        self,
        session: Session[Any],
        messages: Sequence[wire.Message],
        end: float | None,
        bounded: bool = False,
    ) -> Request[list[Put]]:
        engine, key = self.engine, self.key
        while messages:
            if self.closed:
                raise self._closed()
            if self.declaration.arguments and self.declaration.told != engine.losses:
                yield from self.declaration.made(engine, session, key)
            seconds = wait.CHUNK if end is None else wait.chunk(end)
            within = None
            if bounded and end is not None:
                within = max(end - time.monotonic(), _SHORTEST)
            try:
                done = yield from wire.put(engine, session, key, messages, seconds, within)
            except OutOfMemory:
                raise
            except Full:
                if wait.over(end):
                    raise
            else:
                if self.watch.next_put <= time.monotonic():
                    session.renewer.noted(self.watch, done[-1].id)
                return done
            if self.closed:
                raise self._closed()
            name = "room:" + session.consumer.decode()
            yield from wait.doze(engine, session, key, name, seconds, _ROOM)
        return []

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
        kind: Kind,
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
        kind: Kind,
        end: float | None,
    ) -> Request[tuple[list[bytes], wire.Leased]]:
        """Settle, then lease up to `limit`, waiting for one; no leases if no message was ready in
        time.

        Raises:
            ShutDown: the queue is sealed and has no unsettled message; or it was closed.
        """
        engine, key = self.engine, self.key
        lease = (min(limit, MAX_BATCH), self._length, kind)
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
                if self.declaration.arguments and self.declaration.told != engine.losses:
                    yield from self.declaration.made(engine, session, key)
                seconds = wait.CHUNK if end is None else wait.chunk(end)
                call = session.calls = session.calls + 1
                last, leased = yield from wire.take(
                    engine, session, key, call, settlements, lease, seconds, sleep
                )
                answers += last
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
                asleep = wait.sleep(engine, key, f"wake:{kind}", seconds, leased.due)
                sleep = asleep or ((), 0.0)
                if asleep is None:
                    yield from wait.doze(engine, session, key, f"wake:{kind}", seconds, leased.due)
        except Abandoned:
            for some in first:
                # A repeated settlement is answered with a lost lease, and does nothing.
                session.rest()
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
        lease: tuple[int, int, Kind],
        settlements: Sequence[wire.Settlement],
    ) -> Request[None]:
        """Undo the call under way: its leases, or the element that woke the wait, will not be used.

        The call is repeated, and its leases are returned. If it had no lease, another lease is made
        and returned, which wakes the next waiter.
        """
        session.rest()
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
        if self.declaration.arguments and self.declaration.told != self.engine.losses:
            yield from self.declaration.made(self.engine, session, self.key)
        return (yield from wire.settle(self.engine, session, self.key, settlements))

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
        if self.declaration.arguments and self.declaration.told != self.engine.losses:
            yield from self.declaration.made(self.engine, session, self.key)
        return (yield from wire.extend(self.engine, session, self.key, token, seconds, waits))

    def _closed(self) -> ShutDown:
        return ShutDown(f"this handle of queue {self.name!r} is closed")
