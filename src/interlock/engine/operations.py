"""What a queue's methods do, as flows: once for both faces."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any

from interlock.engine import wait, wire
from interlock.engine.calling import Engine
from interlock.engine.codec import Codec
from interlock.engine.declaration import Declaration
from interlock.engine.flow import Abandoned, Argument, Flow
from interlock.engine.seat import Seat
from interlock.errors import Full, ShutDown
from interlock.message import Kind, Stats

_ROOM = 1.0
"""Seconds after which a put looks for room again, unasked: a failure that frees some may fall due
without any call."""


class Operations:
    """The calls of one queue. Their time is in seconds; `until` is of time.monotonic()."""

    def __init__(
        self, engine: Engine, name: str, codec: Codec, declaration: Declaration, lease: float
    ) -> None:
        self.engine = engine
        self.name = name
        self.key = f"il:{{{name}}}"
        self.codec = codec
        self.declaration = declaration
        self.lease = lease
        self.closed = False

    # -- In and out ---------------------------------------------------------------------------

    def put(
        self, seat: Seat[Any], messages: Sequence[wire.Message], until: float | None
    ) -> Flow[list[wire.Put]]:
        """Puts them all, waiting for room; Full if there is none in time."""
        arguments = [argument for message in messages for argument in message.arguments()]
        while True:
            self._check_open()
            seconds = wait.chunk(until)
            try:
                call = ("put", wire.micros(seconds), *arguments)
                return wire.puts((yield from self._numbered(seat, seconds, *call)))
            except Full:
                if wait.over(until):
                    raise
            self._check_open()
            yield from wait.doze(self.engine, seat, self.key, "room", seconds, _ROOM)

    def take(
        self,
        seat: Seat[Any],
        settlements: Sequence[wire.Settlement],
        limit: int,
        kind: Kind,
        until: float | None,
    ) -> Flow[tuple[list[bytes], wire.Leased]]:
        """Settles, then leases up to `limit`, waiting for one; none if none was ready in time.

        Raises:
            ShutDown: the queue is sealed and nothing in it is unsettled; or it was closed.
        """
        answers: list[bytes] = []
        while True:
            if not settlements:
                self._check_open()
            seconds = wait.chunk(until)
            lease = (min(limit, wire.MAX_BATCH), wire.micros(self.lease), kind)
            call = (wire.micros(seconds), *lease)
            if settlements:
                flat = [argument for one in settlements for argument in one]
                reply = yield from self._numbered(seat, seconds, "next", *call, *flat)
                answers, leased = wire.answered(reply)
                settlements = ()
            else:
                leased = wire.leased((yield from self._numbered(seat, seconds, "lease", *call)))
            if leased.messages or wait.over(until):
                return answers, leased
            if leased.sealed:
                if answers:
                    return answers, leased
                raise ShutDown(f"queue {self.name!r} is sealed, and nothing in it is left")
            if not wait.over(until):
                suffix = f"wake:{kind}"
                yield from wait.doze(self.engine, seat, self.key, suffix, seconds, leased.due)

    def settle(
        self, seat: Seat[Any], settlements: Sequence[wire.Settlement]
    ) -> Flow[list[bytes]]:
        """Answers what became of each."""
        answers: list[bytes] = []
        for some in _chunks(settlements, wire.MAX_BATCH):
            flat = [argument for one in some for argument in one]
            answers += yield from self._numbered(seat, 0, "settle", *flat)
        return answers

    def extend(self, seat: Seat[Any], token: int, seconds: float) -> Flow[bool]:
        """False: the lease is lost."""
        reply = yield from self.call(seat, "extend", token, max(wire.micros(seconds), 1))
        return bool(reply[0] != wire.LOST)

    # -- Watching -----------------------------------------------------------------------------

    def stats(self, seat: Seat[Any]) -> Flow[dict[str, int]]:
        """All that il1_stats counts."""
        reply = yield from self.call(seat, "stats")
        return {name: int(count) for name, count in wire.pairs(reply)}

    # -- How calls are made -------------------------------------------------------------------

    def call(
        self, seat: Seat[Any], function: str, *arguments: Argument, again: bool = True
    ) -> Flow[list[bytes]]:
        """Calls a function of this queue, which is declared by then."""
        yield from self.declaration.made(self.engine, seat, self.key)
        return (yield from self.engine.call(seat, function, self.key, *arguments, again=again))

    def _numbered(
        self, seat: Seat[Any], seconds: float, function: str, *arguments: Argument
    ) -> Flow[list[bytes]]:
        yield from self.declaration.made(self.engine, seat, self.key)
        caller = (seat.consumer, seat.number())
        return (
            yield from self.engine.call(
                seat, function, self.key, *caller, *arguments, wait=seconds
            )
        )

    def _check_open(self) -> None:
        if self.closed:
            raise ShutDown(f"this handle of queue {self.name!r} is closed")


def stats_of(counted: dict[str, int]) -> Stats:
    """As KeyedQueue counts them."""
    return Stats(**{field.name: counted.get(field.name, 0) for field in fields(Stats)})


def until_of(block: bool, timeout: float | None) -> float | None:
    """Until when a call may wait; None: for ever."""
    if not block:
        return 0.0
    return None if timeout is None else time.monotonic() + timeout


def _chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[at : at + size] for at in range(0, len(items), size))
