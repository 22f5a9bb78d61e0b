"""The puts of one queue: how arguments become messages, and what the engine is sent.

A put is sent by itself, or with those of other callers (`coalesced_puts`), or as a batch.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from interlock import _core
from interlock.client.connection.call import Engine
from interlock.client.connection.refusals import HalfParked, OutOfMemory
from interlock.client.request import Argument, Refused, Request
from interlock.client.requests import waiting as wait
from interlock.client.requests.coalesced_puts import Send
from interlock.client.requests.queue_arguments import until
from interlock.client.session import Session
from interlock.client.wire import messages as wire
from interlock.client.wire.codec import Codec
from interlock.client.wire.declaration import Declaration
from interlock.errors import EngineUnavailable, Full, InterlockError, ShutDown
from interlock.message import Key, Keys, Put
from interlock.retry import Retry, Seconds, seconds
from interlock.runtime.concurrency import Behind, Names, run_text
from interlock.runtime.limits import MAX_BATCH, MAX_CALL, MAX_PAYLOAD

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from interlock.client.requests.loop_puts import LoopPuts
    from interlock.client.requests.thread_puts import ThreadPuts

_SHORTEST = 0.1
"""Minimum seconds that an engine has for the answer of a put."""
_ROOM = 1.0
"""Seconds after which a waiting put checks for room again: a failure that frees room may fall due
without any call, and so may the end of the time for which room is kept for another put."""


class Puts:
    """A queue of either face, as its producers use it. Times are in seconds."""

    watch: Any
    """A `queue_reports.Watch`, which notes some of the puts. That module imports this one."""

    def __init__(
        self,
        engine: Engine,
        name: str,
        declaration: Declaration,
        codec: Codec,
        keys: Callable[[Any], Keys] | None,
        shared: Callable[[Any], Keys] | None,
        linger: float = 0,
    ) -> None:
        self.engine = engine
        self.name = name
        self.key = f"il:{{{name}}}"
        self.declaration = declaration
        self.codec = codec
        self.linger = linger
        """Seconds for which a put waits until others can be sent with it."""
        self.thread_puts: dict[int, ThreadPuts] = {}
        """Those of each process, by the forks before it: a child does not use its parent's."""
        self.loop_puts: weakref.WeakKeyDictionary[AbstractEventLoop, LoopPuts] = (
            weakref.WeakKeyDictionary()
        )
        self.closed = False
        # Not a queue, only its arguments: a put's are checked by the same code as those of a queue
        # in process.
        self._names: _core.Queue[Any] = _core.Queue(
            0, 0, None, keys, shared, Retry()._native(), None, None, {}, "arguments", 0, 0, 0
        )  # fmt: skip

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
        limit: Names | None = None,
        group: str | None = None,
        behind: Behind | None = None,
        coalesce: Key | None = None,
        debounce: Seconds | None = None,
        longest: Seconds | None = None,
        run: int | None = None,
        label: str = "",
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
            "put()", payload, keys, shared, priority, delay, dedup, barrier, quiet, limit, group,
            behind, coalesce, debounce, longest,
        )  # fmt: skip
        ran = run_text(run, label, "put()") if run is not None or label else ""
        if ran and barrier:
            raise ValueError("put(): run with barrier; allowed: one of them")
        message = self._written(payload, "put()", named, retry, result, window, ran)
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
            if self.closed:
                raise self._closed()
            if self.declaration.is_pending:
                yield from self.declaration.made(self.engine, session, self.key)
            messages = [send.message for send in sends]
            last = sends[0].deadline if len(sends) == 1 else max([one.deadline for one in sends])
            within = max(last - time.monotonic(), _SHORTEST)
            done = yield from wire.put(
                self.engine, session, self.key, messages, 0, within, final="MISCONF"
            )
            if self.watch.next_put <= time.monotonic():
                session.renewer.noted(self.watch, done[-1].id)
        except Refused:
            # It cannot store anything at present: each caller repeats it as long as it may.
            for send in sends:
                send.alone = True
            return
        except EngineUnavailable:
            raise
        except (InterlockError, ValueError) as error:
            if len(sends) == 1:
                is_full = isinstance(error, Full) and not isinstance(
                    error, OutOfMemory | HalfParked
                )
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
        limit: Names | Callable[[Any], Names | None] | None = None,
        group: str | Callable[[Any], str | None] | None = None,
        behind: Behind | Callable[[Any], Behind | None] | None = None,
        coalesce: Key | Callable[[Any], Key | None] | None = None,
        debounce: Seconds | None = None,
        longest: Seconds | None = None,
    ) -> Request[list[Put]]:
        """Put a batch, all of it or nothing."""
        payloads = list(items)
        if len(payloads) > MAX_BATCH:
            raise ValueError(
                f"put_many(): {len(payloads)} messages; allowed: up to {MAX_BATCH} in one call"
            )
        each = self._names._named_many(
            payloads, keys, shared, each_keys, each_shared, priority, delay, dedup, quiet, limit,
            group, behind, coalesce, debounce, longest,
        )  # fmt: skip
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
        named: _core._Names,
        retry: Retry | None = None,
        result: float = 0,
        window: float | None = None,
        run: str = "",
    ) -> wire.Message:
        keys, shared, priority, delay, dedup, barrier, quiet, limit, group, behind, coalesce = named
        options: tuple[Argument, ...] = ()
        # The common case: all as expected, nothing to check.
        said = (
            priority or delay or dedup is not None or barrier or quiet or limit or group or behind
        )
        if said or result or retry is not None or coalesce is not None or run:
            options = wire.put_options(
                priority=priority,
                delay=delay,
                dedup=dedup,
                window=window,
                barrier=barrier,
                quiet=quiet,
                result=result,
                retry=retry,
                limit=limit,
                group=group,
                behind=behind,
                coalesce=coalesce,
                run=run,
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
            if self.declaration.is_pending:
                yield from self.declaration.made(engine, session, key)
            seconds = wait.CHUNK if end is None else wait.chunk(end)
            within = None
            if bounded and end is not None:
                within = max(end - time.monotonic(), _SHORTEST)
            try:
                done = yield from wire.put(engine, session, key, messages, seconds, within)
            except (OutOfMemory, HalfParked):
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

    def _closed(self) -> ShutDown:
        return ShutDown(f"this handle of queue {self.name!r} is closed")
