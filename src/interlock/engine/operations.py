"""The work of a queue's methods, as requests: once for both faces."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from interlock.engine import records, wait, wire
from interlock.engine.call import Engine
from interlock.engine.declaration import Declaration
from interlock.engine.nonsense import nonsense
from interlock.engine.records import Letter, Stored
from interlock.engine.refusals import OutOfMemory
from interlock.engine.request import Abandoned, Argument, Request
from interlock.engine.session import Session
from interlock.engine.wait import Sleep
from interlock.errors import EngineUnavailable, Full, InterlockError, NotDrained, ShutDown
from interlock.limits import MAX_BATCH, MAX_NUMBER
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
        session: Session[Any],
        messages: Sequence[wire.Message],
        until: float | None,
        bounded: bool = False,
    ) -> Request[list[Put]]:
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
                call = session.number()
                reply = yield from self._numbered(
                    session, call, seconds, "put", *asked, within=within
                )
                return wire.puts(reply, len(messages))
            except OutOfMemory:
                raise
            except Full:
                if wait.over(until):
                    raise
            self._check_open()
            yield from wait.doze(
                self.engine, session, self.key, "room:" + session.consumer.decode(), seconds, _ROOM
            )

    def take(
        self,
        session: Session[Any],
        settlements: Sequence[wire.Settlement],
        limit: int,
        kind: Kind,
        until: float | None,
    ) -> Request[tuple[list[bytes], wire.Leased]]:
        """Settles, then leases up to `limit`, waiting for one; none if none was ready in time.

        Raises:
            ShutDown: the queue is sealed and nothing in it is unsettled; or it was closed.
        """
        lease = (min(limit, MAX_BATCH), self._lease, kind)
        answers: list[bytes] = []
        # What one call does not take goes before it.
        *first, settlements = wire.parts(settlements)
        call = looks = 0
        sleep: wait.Sleep | None = None
        try:
            while first:
                answers += yield from self.settle(session, first[0])
                del first[0]
            while True:
                if not settlements:
                    self._check_open()
                seconds = wait.chunk(until)
                call = session.number()
                if settlements:
                    flat = [argument for one in settlements for argument in one]
                    asked = (wire.micros(seconds), *lease, *flat)
                    reply = yield from self._numbered(session, call, seconds, "next", *asked)
                    last, leased = wire.answered(reply, len(settlements))
                    answers += last
                else:
                    asked = (wire.micros(seconds), *lease)
                    reply = yield from self._numbered(
                        session, call, seconds, "lease", *asked, sleep=sleep
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
                yield from wait.doze(self.engine, session, self.key, suffix, seconds, leased.due)
        except Abandoned:
            for some in first:
                # A repeat of what was settled answers that its lease is gone, and does nothing.
                session.rest()
                yield from self.settle(session, some)
            yield from self._undo_take(session, call, lease, settlements)
            raise

    def _undo_take(
        self,
        session: Session[Any],
        call: int,
        lease: tuple[Argument, ...],
        settlements: Sequence[wire.Settlement],
    ) -> Request[None]:
        """Nobody will look at what the call under way leases, or at what woke the wait.

        So that call is asked again, and what it leased is given back. If there was none, one is
        made: what it leases and gives back wakes the next who waits.
        """
        session.rest()
        flat = [argument for one in settlements for argument in one]
        asked = (0, *lease, *flat)
        function = "next" if settlements else "lease"
        reply = yield from self._numbered(session, call or session.number(), 0, function, *asked)
        leased = wire.answered(reply, len(settlements))[1] if settlements else wire.leased(reply)
        if leased.messages:
            back = [wire.releasing(leased.token, message.id) for message in leased.messages]
            yield from self.settle(session, back)

    def settle(
        self, session: Session[Any], settlements: Sequence[wire.Settlement]
    ) -> Request[list[bytes]]:
        """Answers what became of each."""
        answers: list[bytes] = []
        for some in wire.parts(settlements) if settlements else ():
            flat = [argument for one in some for argument in one]
            reply = yield from self._numbered(session, session.number(), 0, "settle", *flat)
            if len(reply) != len(some):
                raise nonsense(reply)
            answers += reply
        return answers

    def extend(self, session: Session[Any], token: int, seconds: float) -> Request[bool]:
        """False: the lease is lost."""
        reply = yield from self.call(session, "extend", token, max(wire.micros(seconds), 1))
        return records.first(reply) != wire.LOST

    # -- Watching -----------------------------------------------------------------------------

    def stats(self, session: Session[Any]) -> Request[dict[str, int]]:
        """All that il1_stats counts."""
        reply = yield from self.call(session, "stats")
        return records.numbers(reply)

    def full(self, session: Session[Any]) -> Request[bool]:
        """Returns whether a put would have to wait."""
        counted = yield from self.stats(session)
        reply = yield from self.call(session, "configure")
        most, most_bytes = wire.bounds(reply)
        return bool(
            (most and counted["unsettled"] >= most)
            or (most_bytes and counted["bytes"] >= most_bytes)
        )

    def explain(
        self, session: Session[Any], what: str, asked: Any, limit: int
    ) -> Request[list[bytes]]:
        """The reply of il1_explain; nothing for what is not there."""
        if what == "id" and _nobodys(asked):
            return []
        return (yield from self.call(session, "explain", what, asked, limit))

    def why(
        self, session: Session[Any], what: str, asked: Any, limit: int
    ) -> Request[tuple[list[bytes], Stored | None]]:
        """The same; and where nothing is there of an id, the dead letter that it is, if it is."""
        reply = yield from self.explain(session, what, asked, limit)
        if reply or what != "id" or _nobodys(asked):
            return reply, None
        found = yield from self.call(session, "peek", asked)
        return reply, records.peeked(found)

    def hot_keys(self, session: Session[Any], n: int) -> Request[list[HotKey]]:
        """The deepest lanes; it goes through all of them."""
        depths: dict[bytes, int] = {}
        cursor = b"0"
        while True:
            reply = yield from self.call(session, "hot", cursor)
            cursor, some = records.depths(reply)
            depths |= some
            if cursor == b"0":
                break
        deepest = heapq.nsmallest(n, depths.items(), key=lambda one: (-one[1], one[0]))
        return [HotKey(key, depth) for key, depth in deepest]

    def dead_letters(
        self, session: Session[Any], limit: int, key: bytes | None
    ) -> Request[list[Letter]]:
        """The first dead letters, with a key those that carry it.

        The server is not asked for the key: it looks at a number of them only.
        """
        found: list[Letter] = []
        after: Argument = ""
        while len(found) < limit:
            count = min(limit - len(found), MAX_BATCH) if key is None else MAX_BATCH
            reply = yield from self.call(session, "dead_letters", count, after)
            some = records.letters(reply)
            if not some:
                break
            found += [one for one in some if key is None or key in one.keys or key in one.shared]
            after = some[-1].id
        return found[:limit]

    def messages(
        self, session: Session[Any], limit: int, wanted: Callable[[Stored], bool]
    ) -> Request[list[Stored]]:
        """The wanted ones with the smallest ids; it goes through all."""
        found: dict[int, Stored] = {}
        cursor = b"0"
        while True:
            cursor, some = records.scanned((yield from self.call(session, "scan", cursor, _PAGE)))
            found |= {one.id: one for one in some if wanted(one)}
            if len(found) > limit + MAX_BATCH or cursor == b"0":
                found = {id: found[id] for id in heapq.nsmallest(limit, found)}
            if cursor == b"0":
                return list(found.values())

    def result(self, session: Session[Any], id: int, until: float | None) -> Request[list[bytes]]:
        """The reply of il1_result once the message is settled, or the time is up."""
        if _nobodys(id):
            return [b"gone"]
        asleep: wait.Sleep | None = None
        while True:
            seconds = wait.chunk(until)
            asked = id, wire.micros(seconds)
            reply = yield from self.call(session, "result", *asked, wait=seconds, sleep=asleep)
            if records.first(reply) != b"pending" or wait.over(until):
                return reply
            asleep = None
            if (yield from wait.parks(self.engine, session, self.key)):
                continue
            seconds = wait.chunk(until)
            asked = wire.micros(seconds), id
            left, due = wire.joined((yield from self.call(session, "join", *asked, wait=seconds)))
            if left:
                asleep = yield from self._until_ended(session, f"settled:{id}", seconds, due)

    def join(self, session: Session[Any], until: float | None) -> Request[None]:
        """Waits until nothing is unsettled."""
        asleep: wait.Sleep | None = None
        while True:
            self._check_open()
            seconds = wait.chunk(until)
            reply = yield from self.call(
                session, "join", wire.micros(seconds), wait=seconds, sleep=asleep
            )
            left, due = wire.joined(reply)
            if not left:
                return
            if wait.over(until):
                raise (yield from self._not_drained(session))
            asleep = yield from self._until_ended(session, "settled:all", seconds, due)

    def _until_ended(
        self, session: Session[Any], suffix: str, seconds: float, due: float | None
    ) -> Request[wait.Sleep | None]:
        """The sleep that is to be sent with the next call; None: it has slept."""
        asleep = wait.sleep(self.engine, self.key, suffix, seconds, due)
        if asleep is None:
            yield from wait.doze(self.engine, session, self.key, suffix, seconds, due)
        return asleep

    def _not_drained(self, session: Session[Any]) -> Request[NotDrained]:
        """Names what is left, from a scan of all that is unsettled."""
        by_state: dict[str, set[int]] = {"held": set(), "delayed": set(), "leased": set()}
        waiting: list[int] = []
        cursor = b"0"
        while True:
            cursor, some = records.scanned(
                (yield from self.call(session, "scan", cursor, MAX_BATCH))
            )
            for one in some:
                if one.state in by_state:
                    by_state[one.state].add(one.id)
                elif len(waiting) < _EXPLAINED:
                    waiting.append(one.id)
            if cursor == b"0":
                break
        held, delayed, leased = (_first(by_state[name]) for name in by_state)
        paused: set[bytes] = set()
        if (yield from self.stats(session)).get("paused"):
            for id in waiting:
                reply = yield from self.call(session, "explain", "id", id, 1)
                explained = records.explanation(reply)
                paused |= set(explained.nodes[0].paused if explained else ())
        return NotDrained(held, _first(paused), delayed, leased)

    # -- Operating ----------------------------------------------------------------------------

    def change(
        self, session: Session[Any], function: str, *arguments: Argument
    ) -> Request[list[bytes]]:
        """A call that does nothing the second time, and then answers so.

        Sent again after a lost reply, its answer counts only if it did something.
        """
        if arguments and isinstance(arguments[0], int) and _nobodys(arguments[0]):
            return [] if function == "requeue" else [b"0"]
        try:
            return (yield from self.call(session, function, *arguments, again=False))
        except EngineUnavailable as error:
            if not error.unknown or function == "requeue":
                raise
            reply = yield from self.call(session, function, *arguments)
            if records.first(reply) == b"0":
                raise
            return reply

    def purge(self, session: Session[Any], what: str, key: bytes | None = None) -> Request[int]:
        """Until there is nothing left to purge; how many there were. With a key those that carry it
        when it begins."""
        purged = 0
        if key is not None:
            ids = yield from (self._dead_on if what == "dead" else self._pending_on)(session, key)
            function = "discard" if what == "dead" else "cancel"
            for id in ids:
                purged += records.number((yield from self.change(session, function, id)))
            return purged
        while count := records.number((yield from self.call(session, "purge", what))):
            purged += count
        return purged

    def _dead_on(self, session: Session[Any], key: bytes) -> Request[list[int]]:
        ids: list[int] = []
        after: Argument = ""
        while some := records.letters(
            (yield from self.call(session, "dead_letters", MAX_BATCH, after))
        ):
            ids += [one.id for one in some if key in one.keys or key in one.shared]
            after = some[-1].id
        return ids

    def _pending_on(self, session: Session[Any], key: bytes) -> Request[list[int]]:
        found: set[int] = set()
        cursor = b"0"
        while True:
            cursor, some = records.scanned((yield from self.call(session, "scan", cursor, _PAGE)))
            found |= {one.id for one in some if key in one.keys or key in one.shared}
            if cursor == b"0":
                # Of what is leased nothing changes.
                return sorted(found)

    def drop(self, session: Session[Any], force: bool) -> Request[bool]:
        """Removes the queue, undeclared: to declare it would make it first."""
        words = ("FORCE",) if force else ()
        reply = yield from self.engine.call(session, "drop", self.key, *words)
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
        session: Session[Any],
        function: str,
        *arguments: Argument,
        wait: float = 0,
        again: bool = True,
        sleep: Sleep | None = None,
    ) -> Request[list[bytes]]:
        """Calls a function of this queue, which is declared by then."""
        yield from self.declaration.made(self.engine, session, self.key)
        key, (before, asleep) = self.key, sleep or ((), 0.0)
        return (
            yield from self.engine.call(
                session, function, key, *arguments,
                wait=wait, again=again, before=before, asleep=asleep,
            )
        )  # fmt: skip

    def _numbered(
        self,
        session: Session[Any],
        call: int,
        seconds: float,
        function: str,
        *arguments: Argument,
        sleep: wait.Sleep | None = None,
        within: float | None = None,
    ) -> Request[list[bytes]]:
        if not self.declaration.is_made(self.engine):
            yield from self.declaration.made(self.engine, session, self.key)
        asked = (session.consumer, call, *arguments)
        call_it = self.engine.call
        if sleep is None:
            return (
                yield from call_it(session, function, self.key, *asked, wait=seconds, within=within)
            )
        before, asleep = sleep
        return (
            yield from call_it(
                session, function, self.key, *asked, wait=seconds, before=before, asleep=asleep
            )
        )

    def _check_open(self) -> None:
        if self.closed:
            raise ShutDown(f"this handle of queue {self.name!r} is closed")


def _nobodys(id: int) -> bool:
    """No message can have this id."""
    return not 0 < id <= MAX_NUMBER


def _first(found: set[R]) -> tuple[R, ...]:
    return tuple(sorted(found)[:_UNDRAINED])  # type: ignore[type-var]


_UNDRAINED = 1000
_EXPLAINED = 100
"""So many waiting messages are asked whether a paused key holds them up."""
