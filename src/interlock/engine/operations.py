"""The work of a queue's methods, as flows: once for both faces."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from interlock.engine import records, wait, wire
from interlock.engine.call import Engine
from interlock.engine.declaration import Declaration
from interlock.engine.flow import Abandoned, Argument, Flow
from interlock.engine.nonsense import nonsense
from interlock.engine.records import Letter, Stored
from interlock.engine.refusals import OutOfMemory
from interlock.engine.seat import Seat
from interlock.engine.wait import Sleep
from interlock.errors import EngineUnavailable, Full, InterlockError, NotDrained, ShutDown
from interlock.message import HotKey, Kind, Put

R = TypeVar("R")

_LOOKS = 1000
"""The most times that a call that does not wait asks again for what is due at once."""
_SHORTEST = 0.1
"""Seconds that an engine has at least for the answer of a put."""
_ROOM = 1.0
"""Seconds after which a put looks for room again, unasked: a failure that frees some may fall due
without any call, and so does the time for which room is kept for another."""
_PAGE = 512
"""Messages of one round trip."""


class Operations:
    """The calls of one queue. Their time is in seconds; `until` is of time.monotonic()."""

    def __init__(self, engine: Engine, name: str, declaration: Declaration, lease: float) -> None:
        self.engine = engine
        self.name = name
        self.key = f"il:{{{name}}}"
        self.declaration = declaration
        self.lease = lease
        self._lease = wire.micros(lease)
        self.closed = False

    # -- In and out ---------------------------------------------------------------------------

    def put(
        self,
        seat: Seat[Any],
        messages: Sequence[wire.Message],
        until: float | None,
        bounded: bool = False,
    ) -> Flow[list[Put]]:
        """Puts them all, waiting for room; Full if there is none in time. `bounded`: the engine
        has no longer than that to answer, wherever it is."""
        arguments: Sequence[Argument]
        if len(messages) == 1:
            arguments = messages[0].arguments()
        else:
            arguments = [argument for message in messages for argument in message.arguments()]
        while True:
            self._check_open()
            seconds = wait.chunk(until)
            try:
                asked = (wire.micros(seconds), *arguments)
                within = None
                if bounded and until is not None:
                    within = max(until - time.monotonic(), _SHORTEST)
                call = seat.number()
                reply = yield from self._numbered(seat, call, seconds, "put", *asked, within=within)
                return wire.puts(reply, len(messages))
            except OutOfMemory:
                raise
            except Full:
                if wait.over(until):
                    raise
            self._check_open()
            yield from wait.doze(
                self.engine, seat, self.key, "room:" + seat.consumer.decode(), seconds, _ROOM
            )

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
        lease = (min(limit, wire.MAX_BATCH), self._lease, kind)
        answers: list[bytes] = []
        # What one call does not take goes before it.
        *first, settlements = wire.parts(settlements)
        call = looks = 0
        sleep: wait.Sleep | None = None
        try:
            while first:
                answers += yield from self.settle(seat, first[0])
                del first[0]
            while True:
                if not settlements:
                    self._check_open()
                seconds = wait.chunk(until)
                call = seat.number()
                if settlements:
                    flat = [argument for one in settlements for argument in one]
                    asked = (wire.micros(seconds), *lease, *flat)
                    reply = yield from self._numbered(seat, call, seconds, "next", *asked)
                    last, leased = wire.answered(reply, len(settlements))
                    answers += last
                else:
                    asked = (wire.micros(seconds), *lease)
                    reply = yield from self._numbered(
                        seat, call, seconds, "lease", *asked, sleep=sleep
                    )
                    leased = wire.leased(reply)
                if leased.sealed and not settlements:
                    raise ShutDown(f"queue {self.name!r} is sealed, and nothing in it is left")
                # What one call does not finish is due at once: then even who does not wait asks
                # again, or would be told that nothing is ready where something is.
                unfinished = leased.due == 0 and looks < _LOOKS
                if leased.messages or leased.sealed or (wait.over(until) and not unfinished):
                    return answers, leased
                settlements, call = (), 0
                looks += 1
                suffix = f"wake:{kind}"
                sleep = wait.sleep(self.engine, self.key, suffix, seconds, leased.due)
                if sleep is not None:
                    continue
                yield from wait.doze(self.engine, seat, self.key, suffix, seconds, leased.due)
        except Abandoned:
            for some in first:
                # A repeat of what was settled answers that its lease is gone, and does nothing.
                seat.rest()
                yield from self.settle(seat, some)
            yield from self._undo_take(seat, call, lease, settlements)
            raise

    def _undo_take(
        self,
        seat: Seat[Any],
        call: int,
        lease: tuple[Argument, ...],
        settlements: Sequence[wire.Settlement],
    ) -> Flow[None]:
        """Nobody will look at what the call under way leases, or at what woke the wait.

        So that call is asked again, and what it leased is given back. If there was none, one is
        made: what it leases and gives back wakes the next who waits.
        """
        seat.rest()
        flat = [argument for one in settlements for argument in one]
        asked = (0, *lease, *flat)
        function = "next" if settlements else "lease"
        reply = yield from self._numbered(seat, call or seat.number(), 0, function, *asked)
        leased = wire.answered(reply, len(settlements))[1] if settlements else wire.leased(reply)
        if leased.messages:
            back = [wire.releasing(leased.token, message.id) for message in leased.messages]
            yield from self.settle(seat, back)

    def settle(self, seat: Seat[Any], settlements: Sequence[wire.Settlement]) -> Flow[list[bytes]]:
        """Answers what became of each."""
        answers: list[bytes] = []
        for some in wire.parts(settlements) if settlements else ():
            flat = [argument for one in some for argument in one]
            reply = yield from self._numbered(seat, seat.number(), 0, "settle", *flat)
            if len(reply) != len(some):
                raise nonsense(reply)
            answers += reply
        return answers

    def extend(self, seat: Seat[Any], token: int, seconds: float) -> Flow[bool]:
        """False: the lease is lost."""
        reply = yield from self.call(seat, "extend", token, max(wire.micros(seconds), 1))
        return records.first(reply) != wire.LOST

    # -- Watching -----------------------------------------------------------------------------

    def stats(self, seat: Seat[Any]) -> Flow[dict[str, int]]:
        """All that il1_stats counts."""
        reply = yield from self.call(seat, "stats")
        return records.numbers(reply)

    def full(self, seat: Seat[Any]) -> Flow[bool]:
        """Returns whether a put would have to wait."""
        counted = yield from self.stats(seat)
        reply = yield from self.call(seat, "configure")
        most, most_bytes = wire.bounds(reply)
        return bool(
            (most and counted["unsettled"] >= most)
            or (most_bytes and counted["bytes"] >= most_bytes)
        )

    def explain(self, seat: Seat[Any], what: str, asked: Any, limit: int) -> Flow[list[bytes]]:
        """The reply of il1_explain; nothing for what is not there."""
        if what == "id" and _nobodys(asked):
            return []
        return (yield from self.call(seat, "explain", what, asked, limit))

    def why(
        self, seat: Seat[Any], what: str, asked: Any, limit: int
    ) -> Flow[tuple[list[bytes], Stored | None]]:
        """The same; and where nothing is there of an id, the dead letter that it is, if it is."""
        reply = yield from self.explain(seat, what, asked, limit)
        if reply or what != "id" or _nobodys(asked):
            return reply, None
        found = yield from self.call(seat, "peek", asked)
        return reply, records.peeked(found)

    def hot_keys(self, seat: Seat[Any], n: int) -> Flow[list[HotKey]]:
        """The deepest lanes; it goes through all of them."""
        depths: dict[bytes, int] = {}
        cursor = b"0"
        while True:
            reply = yield from self.call(seat, "hot", cursor)
            cursor, some = records.depths(reply)
            depths |= some
            if cursor == b"0":
                break
        deepest = heapq.nsmallest(n, depths.items(), key=lambda one: (-one[1], one[0]))
        return [HotKey(key, depth) for key, depth in deepest]

    def dead_letters(self, seat: Seat[Any], limit: int, key: bytes | None) -> Flow[list[Letter]]:
        """The first dead letters, with a key those that carry it.

        The server is not asked for the key: it looks at a number of them only.
        """
        found: list[Letter] = []
        after: Argument = ""
        while len(found) < limit:
            count = min(limit - len(found), wire.MAX_BATCH) if key is None else wire.MAX_BATCH
            reply = yield from self.call(seat, "dead_letters", count, after)
            some = records.letters(reply)
            if not some:
                break
            found += [one for one in some if key is None or key in one.keys or key in one.shared]
            after = some[-1].id
        return found[:limit]

    def messages(
        self, seat: Seat[Any], limit: int, wanted: Callable[[Stored], bool]
    ) -> Flow[list[Stored]]:
        """The wanted ones with the smallest ids; it goes through all."""
        found: dict[int, Stored] = {}
        cursor = b"0"
        while True:
            cursor, some = records.scanned((yield from self.call(seat, "scan", cursor, _PAGE)))
            found |= {one.id: one for one in some if wanted(one)}
            if len(found) > limit + wire.MAX_BATCH or cursor == b"0":
                found = {id: found[id] for id in heapq.nsmallest(limit, found)}
            if cursor == b"0":
                return list(found.values())

    def result(self, seat: Seat[Any], id: int, until: float | None) -> Flow[list[bytes]]:
        """The reply of il1_result once the message is settled, or the time is up."""
        if _nobodys(id):
            return [b"gone"]
        asleep: wait.Sleep | None = None
        while True:
            seconds = wait.chunk(until)
            asked = id, wire.micros(seconds)
            reply = yield from self.call(seat, "result", *asked, wait=seconds, sleep=asleep)
            if records.first(reply) != b"pending" or wait.over(until):
                return reply
            asleep = None
            if (yield from wait.parks(self.engine, seat, self.key)):
                continue
            seconds = wait.chunk(until)
            asked = wire.micros(seconds), id
            left, due = wire.joined((yield from self.call(seat, "join", *asked, wait=seconds)))
            if left:
                asleep = yield from self._until_ended(seat, f"settled:{id}", seconds, due)

    def join(self, seat: Seat[Any], until: float | None) -> Flow[None]:
        """Waits until nothing is unsettled."""
        asleep: wait.Sleep | None = None
        while True:
            self._check_open()
            seconds = wait.chunk(until)
            reply = yield from self.call(
                seat, "join", wire.micros(seconds), wait=seconds, sleep=asleep
            )
            left, due = wire.joined(reply)
            if not left:
                return
            if wait.over(until):
                raise (yield from self._not_drained(seat))
            asleep = yield from self._until_ended(seat, "settled:all", seconds, due)

    def _until_ended(
        self, seat: Seat[Any], suffix: str, seconds: float, due: float | None
    ) -> Flow[wait.Sleep | None]:
        """The sleep that is to be sent with the next call; None: it has slept."""
        asleep = wait.sleep(self.engine, self.key, suffix, seconds, due)
        if asleep is None:
            yield from wait.doze(self.engine, seat, self.key, suffix, seconds, due)
        return asleep

    def _not_drained(self, seat: Seat[Any]) -> Flow[NotDrained]:
        """Names what is left, from a scan of all that is unsettled."""
        by_state: dict[str, set[int]] = {"held": set(), "delayed": set(), "leased": set()}
        waiting: list[int] = []
        cursor = b"0"
        while True:
            cursor, some = records.scanned((yield from self.call(seat, "scan", cursor, 1024)))
            for one in some:
                if one.state in by_state:
                    by_state[one.state].add(one.id)
                elif len(waiting) < _EXPLAINED:
                    waiting.append(one.id)
            if cursor == b"0":
                break
        held, delayed, leased = (_first(by_state[name]) for name in by_state)
        paused: set[bytes] = set()
        if (yield from self.stats(seat)).get("paused"):
            for id in waiting:
                reply = yield from self.call(seat, "explain", "id", id, 1)
                explained = records.explanation(reply)
                paused |= set(explained.nodes[0].paused if explained else ())
        return NotDrained(held, _first(paused), delayed, leased)

    # -- Operating ----------------------------------------------------------------------------

    def change(self, seat: Seat[Any], function: str, *arguments: Argument) -> Flow[list[bytes]]:
        """A call that does nothing the second time, and then answers so.

        Sent again after a lost reply, its answer counts only if it did something.
        """
        if arguments and isinstance(arguments[0], int) and _nobodys(arguments[0]):
            return [] if function == "requeue" else [b"0"]
        try:
            return (yield from self.call(seat, function, *arguments, again=False))
        except EngineUnavailable as error:
            if not error.unknown or function == "requeue":
                raise
            reply = yield from self.call(seat, function, *arguments)
            if records.first(reply) == b"0":
                raise
            return reply

    def purge(self, seat: Seat[Any], what: str, key: bytes | None = None) -> Flow[int]:
        """Until there is nothing left to purge; how many there were. With a key those that carry it
        when it begins."""
        purged = 0
        if key is not None:
            ids = yield from (self._dead_on if what == "dead" else self._pending_on)(seat, key)
            function = "discard" if what == "dead" else "cancel"
            for id in ids:
                purged += records.number((yield from self.change(seat, function, id)))
            return purged
        while count := records.number((yield from self.call(seat, "purge", what))):
            purged += count
        return purged

    def _dead_on(self, seat: Seat[Any], key: bytes) -> Flow[list[int]]:
        ids: list[int] = []
        after: Argument = ""
        while some := records.letters(
            (yield from self.call(seat, "dead_letters", wire.MAX_BATCH, after))
        ):
            ids += [one.id for one in some if key in one.keys or key in one.shared]
            after = some[-1].id
        return ids

    def _pending_on(self, seat: Seat[Any], key: bytes) -> Flow[list[int]]:
        found: set[int] = set()
        cursor = b"0"
        while True:
            cursor, some = records.scanned((yield from self.call(seat, "scan", cursor, _PAGE)))
            found |= {one.id for one in some if key in one.keys or key in one.shared}
            if cursor == b"0":
                # Of what is leased nothing changes.
                return sorted(found)

    def drop(self, seat: Seat[Any], force: bool) -> Flow[bool]:
        """Removes the queue, undeclared: to declare it would make it first."""
        words = ("FORCE",) if force else ()
        reply = yield from self.engine.call(seat, "drop", self.key, *words)
        found = records.dropped(reply)
        if found.unsettled and not found.gone:
            raise InterlockError(
                f"queue {self.name!r} holds {found.unsettled:,} unsettled messages, "
                f"{found.leased:,} of them leased; drop(force=True) loses them"
            )
        # Whoever uses this handle further makes the queue as it declares it.
        self.declaration.forget()
        return found.gone

    # -- How calls are made -------------------------------------------------------------------

    def call(
        self,
        seat: Seat[Any],
        function: str,
        *arguments: Argument,
        wait: float = 0,
        again: bool = True,
        sleep: Sleep | None = None,
    ) -> Flow[list[bytes]]:
        """Calls a function of this queue, which is declared by then."""
        yield from self.declaration.made(self.engine, seat, self.key)
        key, (before, asleep) = self.key, sleep or ((), 0.0)
        return (
            yield from self.engine.call(
                seat, function, key, *arguments,
                wait=wait, again=again, before=before, asleep=asleep,
            )
        )  # fmt: skip

    def _numbered(
        self,
        seat: Seat[Any],
        call: int,
        seconds: float,
        function: str,
        *arguments: Argument,
        sleep: wait.Sleep | None = None,
        within: float | None = None,
    ) -> Flow[list[bytes]]:
        if not self.declaration.is_made(self.engine):
            yield from self.declaration.made(self.engine, seat, self.key)
        asked = (seat.consumer, call, *arguments)
        call_it = self.engine.call
        if sleep is None:
            return (
                yield from call_it(seat, function, self.key, *asked, wait=seconds, within=within)
            )
        before, asleep = sleep
        return (
            yield from call_it(
                seat, function, self.key, *asked, wait=seconds, before=before, asleep=asleep
            )
        )

    def _check_open(self) -> None:
        if self.closed:
            raise ShutDown(f"this handle of queue {self.name!r} is closed")


def _nobodys(id: int) -> bool:
    """No message can have this id."""
    return not 0 < id < 2**53


def _first(found: set[R]) -> tuple[R, ...]:
    return tuple(sorted(found)[:_UNDRAINED])  # type: ignore[type-var]


_UNDRAINED = 1000
_EXPLAINED = 100
"""So many waiting messages are asked whether a paused key holds them up."""
