"""Rows of a table that a cluster of nodes serves.

Each call goes to the client's home. It is sent again, there or to another node, if that does no
harm: it is a read, has a number, may be done twice, or was surely not done. Otherwise
`EngineUnavailable` says that its outcome is unknown.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from interlock.client.connection import refusals
from interlock.client.connection.call import NODE
from interlock.client.request import Abandoned, Argument, Ask, Broken, Nap, Refused, Request
from interlock.client.rows.hub_rows import MANY, WireRows
from interlock.client.rows.members import Members
from interlock.client.rows.numbered_writes import Write
from interlock.client.rows.row_text import column_text
from interlock.client.wire.bad_reply import nonsense
from interlock.errors import EngineUnavailable
from interlock.table.row import Row

if TYPE_CHECKING:
    from interlock.client.connection.call import Engine
    from interlock.client.session import Session

W = TypeVar("W", bound=Row)
Asked = tuple[str, Any]
"""The node that answered, and its reply."""


class ClusterRows(WireRows[W]):
    """The rows of one table, at the nodes of a cluster. See `Rows`."""

    def __init__(self, engine: Engine, name: str, row: type[W], members: Members) -> None:
        super().__init__(engine, name, row)
        self._members = members
        first = self._text.schema.columns[0]
        same = column_text(first, _NOTHING.get(first.kind, 0))
        self._nothing: tuple[Argument, ...] = ("TABLE", "CAS", self._key(b"\0"), first.name)
        """A write that changes nothing, even if the row exists."""
        self._nothing += (same, same)

    def delete(self, session: Session[Any], keys: Sequence[bytes]) -> Request[int]:
        """See `Rows`. If it was sent twice, keys without a row count as deleted."""
        count = 0
        for start in range(0, len(keys), MANY):
            some = keys[start : start + MANY]
            command: tuple[Argument, ...] = ("DEL", *map(self._key, some))
            patience = _Patience(self)
            _, found = yield from self._told(session, command, patience)
            if not isinstance(found, int):
                raise nonsense(found)
            count += len(some) if patience.twice else found
        return count

    def count(self, session: Session[Any]) -> Request[int]:
        """See `Rows`."""
        while True:
            at: Any = None
            rows = 0
            try:
                while True:
                    at, some = yield from self._step(session, at, "COUNT")
                    rows += int(some)
                    if at is None:
                        return rows
            except _Elsewhere:
                continue

    def page(
        self, session: Session[Any], cursor: Any, count: int
    ) -> Request[tuple[Any, list[tuple[bytes, W]]]]:
        """See `Rows`. A cursor belongs to one node; at another the rows start over."""
        at = cursor
        while True:
            try:
                at, found = yield from self._step(session, at, "SCAN", "COUNT", count)
            except _Elsewhere:
                at = None
                continue
            if not isinstance(found, list):
                raise nonsense(found)
            rows = [
                (key, self._text.read(texts))
                for key, texts in zip(found[::2], found[1::2], strict=True)
            ]
            if rows or at is None:
                return at, rows

    def _step(
        self, session: Session[Any], at: tuple[str, bytes] | None, what: str, *words: Argument
    ) -> Request[tuple[tuple[str, bytes] | None, Any]]:
        node, cursor = at or ("", b"0")
        command = ("TABLE", what, self._name, cursor, *words)
        node, found = yield from self._told(session, command, _Patience(self), only=node)
        if not isinstance(found, list) or len(found) != 2 or not isinstance(found[0], bytes):
            raise nonsense(found)
        return (None if found[0] == b"0" else (node, found[0])), found[1]

    def _told(
        self,
        session: Session[Any],
        command: tuple[Argument, ...],
        patience: _Patience,
        only: str = "",
    ) -> Request[Asked]:
        """Send a call that may be done twice; see `_answered`."""
        if not self._known:
            yield from self._check(session)
        try:
            return (yield from self._answered(session, command, patience, True, only))
        except Refused as error:
            raise self._error(error) from None

    def _sent(
        self, session: Session[Any], command: tuple[Argument, ...], again: bool
    ) -> Request[Any]:
        """See `WireRows`."""
        return (yield from self._answered(session, command, _Patience(self), again))[1]

    def _error(self, error: Refused) -> Exception:
        if error.code in ("NOAUTH", "WRONGPASS"):
            return EngineUnavailable(
                f"the nodes of {self._named()} refuse the login: {error}; name a user of theirs in "
                f"the URL: ?user=USER&password=PASSWORD"
            )
        return super()._error(error)

    def _answered(
        self,
        session: Session[Any],
        command: tuple[Argument, ...],
        patience: _Patience,
        again: bool,
        only: str = "",
    ) -> Request[Asked]:
        """Send a command, repeatedly until it is answered or its time is up.

        Raises:
            _Elsewhere: the node `only` does not answer.
            EngineUnavailable: its time is up, or it may have been done and must not be done twice.
            Refused: asking again would not help.
        """
        write = None if is_read(command) else Write(self._members.numbers, command)
        try:
            return (yield from self._tried(session, command, patience, again, only, write))
        finally:
            if write is not None:
                write.leave()

    def _tried(
        self,
        session: Session[Any],
        command: tuple[Argument, ...],
        patience: _Patience,
        again: bool,
        only: str,
        write: Write | None,
    ) -> Request[Asked]:
        members = self._members
        numbers = members.numbers
        reads = write is None
        again = again or reads
        while True:
            if session.interrupted:
                raise Abandoned
            node = only or (yield from members.home(session, patience.until))
            trouble = members.trouble
            if node and write is not None and write.session is not None:
                # It may be in the log of that data centre, which alone knows its number.
                node = members.within(write.dcs, node)
                trouble = "no other node of the data centre where it was sent can be asked"
            if not node:
                patience.failed("", trouble)
                yield Nap(patience.pause())
                continue
            at_once = under_way = counted = False
            words = command
            try:
                if reads and (members.linearizable or not members.even(node)):
                    yield from self._level(session, node, patience)
                if write is not None:
                    share = patience.share(reads=True, again=True)
                    counted = yield from numbers.taken(session, node, share)
                    if counted:
                        dcs = members.dcs(node)
                        yield from numbers.settle(session, node, dcs, share)
                        words = write.words(session, node, dcs, patience.left())
                    elif write.has_number:
                        raise Refused("NODE the node takes no numbers")
                    elif not again:
                        session.check(NODE + node)
                under_way = not reads
                share = patience.share(reads, again, counted)
                reply = yield Ask(NODE + node, words, share)
            except Refused as error:
                course = course_of(error)
                if write is not None and not (patience.sent or course in ("unsure", "lost")):
                    write.refused()
                if counted and course == "wait":
                    # It drains, or is cut off from its log; others are not.
                    course = "elsewhere"
                if write is not None and course in ("anew", "later", "forget"):
                    patience.failed(node, str(error))
                    numbers.forget(node)
                    if course == "anew":
                        write.ended()
                        patience.sent = False
                    elif course == "later":
                        write.postpone()
                        patience.sent = False
                    elif not patience.sent:
                        write.ended()
                    if patience.left() <= 0:
                        raise patience.over() from None
                    if patience.tries > HASTY:
                        yield Nap(patience.pause())
                    continue
                if course == "raise":
                    raise
                if course == "done":
                    raise patience.done(error) from None
                patience.failed(node, str(error))
                if under_way and course in ("unsure", "lost"):
                    patience.may_be_done(counted)
                if refusals.of(str(error)).ends:
                    session.drop(NODE + node)
                if course in ("wait", "unsure") and not patience.tired():
                    members.doubt()
                else:
                    at_once = members.failed(node)
            except Broken as error:
                patience.failed(node, str(error))
                if under_way and error.sent:
                    patience.may_be_done(counted)
                if write is not None and not patience.sent:
                    write.refused()
                at_once = members.failed(node)
            else:
                if write is not None:
                    write.ended()
                members.answered(node, wrote=not reads)
                return node, reply
            if session.interrupted:
                raise Abandoned
            if patience.twice and not again:
                raise patience.unknown()
            if only:
                raise _Elsewhere
            if not at_once or patience.tries > HASTY:
                yield Nap(patience.pause())
            elif patience.left() <= 0:
                raise patience.over()

    def _named(self) -> str:
        cluster, shown = self._members.cluster, self._engine.target.shown
        return f"table {self._name!r} of cluster {cluster!r} ({shown})"

    def _level(self, session: Session[Any], node: str, patience: _Patience) -> Request[None]:
        """Make sure that a new home has everything the previous one had.

        A node answers a write once it has applied all earlier ones.
        """
        members = self._members
        try:
            share = patience.share(reads=True, again=True)
            if not (yield from members.numbers.look(session, node, share)):
                yield Ask(NODE + node, self._nothing, patience.share(reads=False, again=True))
        except Refused as error:
            if members.linearizable or (course_of(error) != "raise" and members.wrote):
                raise
            # A user who may only read; or it cannot be known, and this client wrote nothing.
        except Broken:
            if members.wrote or members.linearizable or session.interrupted:
                raise
        members.levelled(node)


class _Elsewhere(Exception):
    """The node of a cursor no longer answers."""


class _Patience:
    """The time of one call, and its failed attempts."""

    def __init__(self, rows: ClusterRows[Any]) -> None:
        self._rows = rows
        self._timeout = rows._engine.target.timeout
        self.until = time.monotonic() + self._timeout
        self._reasons: list[str] = []
        self._tired = False
        self.tries = 0
        self.sent = False
        """It may have been done: an answer was lost."""
        self.twice = False
        """It may have been done and has no number: sent again, it may be done twice."""

    def left(self) -> float:
        return self.until - time.monotonic()

    def may_be_done(self, counted: bool) -> None:
        """Note an attempt without an answer; `counted`: it had a number."""
        self.sent = True
        self.twice = self.twice or not counted

    def share(self, reads: bool, again: bool, counted: bool = False) -> float:
        """Return the seconds for one attempt.

        A write that must not be sent twice gets all the time that is left. A read is answered at
        once or the node is gone, and a numbered write may be sent elsewhere.
        """
        left = self.left()
        if reads or counted:
            left = min(left, max(self._timeout / (4 if counted else 8), 1.0))
        elif again:
            left = min(left, max(self._timeout * 0.6, 1.0))
        return max(left, 0.001)

    def tired(self) -> bool:
        """Return True once, when half of the time is over: then another node is tried."""
        if self._tired or self.left() > self._timeout / 2:
            return False
        self._tired = True
        return True

    def failed(self, node: str, reason: str) -> None:
        self.tries += 1
        said = f"{node}: {reason}" if node else reason
        if said not in self._reasons:
            self._reasons = [*self._reasons[-3:], said]

    def pause(self) -> float:
        """Return the seconds until the next attempt; raises EngineUnavailable if time is up."""
        longest = min(0.05 * 2 ** min(self.tries - 1, 5), 0.5)
        seconds: float = longest * random.uniform(0.5, 1.0)
        if self.left() <= seconds:
            raise self.over()
        return seconds

    def over(self) -> EngineUnavailable:
        within = f"{round(self._timeout, 2):g} s; {self.tries} attempts"
        return EngineUnavailable(
            refusals.advised(
                f"{self._named()} did not answer in {within}: {'; '.join(self._reasons)}"
            ),
            unknown=self.sent,
        )

    def unknown(self) -> EngineUnavailable:
        return EngineUnavailable(
            f"{self._named()} was lost before it answered; whether that was done is not known: "
            f"{'; '.join(self._reasons)}",
            unknown=True,
        )

    def done(self, error: Refused) -> EngineUnavailable:
        return EngineUnavailable(f"{self._named()}: {error}", unknown=True)

    def _named(self) -> str:
        return self._rows._named()


def is_read(command: tuple[Argument, ...]) -> bool:
    """Return whether a command only reads."""
    return (command[1] if command[0] == "TABLE" else command[0]) in READS


def course_of(error: Refused) -> str:
    """Return what to do after an error reply of a node.

    ``wait``: ask again later; ``unsure``: the same, but it may have been done. ``elsewhere``: ask
    another node; ``lost``: the same, but it may have been done. ``done``: it is done, but not
    acknowledged or its reply is gone. ``anew``: it was not done and never will be under its number.
    ``later``: it was not done by its deadline, so send it under its number with a later one.
    ``forget``: ask for the log's time again. ``raise``: raise the error.
    """
    known = COURSES.get(error.code)
    if known is not None:
        return known
    if refusals.of(str(error)).unsure:
        return "lost"
    return "elsewhere" if refusals.passes(error) else "raise"


READS = frozenset({"MGET", "INFO", "SCAN", "COUNT", "IDLE", "EXISTS", "HGET", "PTTL", "TOUCH"})
COURSES = {
    # It was not done.
    "TRYAGAIN": "wait",
    # The node has not read its log to the end for too long.
    "STALE": "elsewhere",
    # Its node has ended.
    "NODE": "elsewhere",
    # The node has not read it in the log.
    "UNANSWERED": "unsure",
    # It is done, but too few machines have acknowledged it, or its reply is no longer kept.
    "NOACK": "done",
    "NOREPLY": "done",
    # It was not done. If the engine loses what advanced the log's time, an earlier copy is in time
    # again, so the number stays: whichever copy comes first is done, and the other is not.
    "PAST": "later",
    # A later number was done, so this one will not be.
    "LATE": "anew",
    # The node did nothing: the deadline is too far ahead for it, or it takes no numbers.
    "TOOFAR": "forget",
    "NOLOG": "forget",
}
HASTY = 4
"""Attempts at different nodes before the first pause."""
_NOTHING: dict[str, Any] = {"bool": False, "str": "", "bytes": b""}
