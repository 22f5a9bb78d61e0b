"""Rows of a table that a hub serves."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from interlock.client.connection import refusals
from interlock.client.request import Abandoned, Argument, Ask, Broken, Nap, Refused, Request
from interlock.client.row_requests import NONE, Only, Overflow
from interlock.client.rows.row_text import RowText, column_text, column_value, increment
from interlock.client.wire.bad_reply import nonsense
from interlock.errors import (
    EngineUnavailable,
    NotATable,
    RowBusy,
    SchemaMismatch,
    TableFull,
    TableKept,
)
from interlock.runtime.limits import MAX_ROW_TTL
from interlock.table.row import Row

if TYPE_CHECKING:
    from interlock.client.connection.call import Engine
    from interlock.client.session import Session

W = TypeVar("W", bound=Row)


class WireRows(Generic[W]):
    """The rows of one table, over the wire. See `Rows`."""

    def __init__(self, engine: Engine, name: str, row: type[W]) -> None:
        self._engine = engine
        self._name = name
        self._prefix = name.encode() + b":"
        self._text = RowText(row)
        self._known = False
        """The hub's table was found to have these columns."""

    def get_many(self, session: Session[Any], keys: Sequence[bytes]) -> Request[list[W | None]]:
        """See `Rows`."""
        rows: list[W | None] = []
        for start in range(0, len(keys), MANY):
            some = keys[start : start + MANY]
            found = yield from self._ask(session, "TABLE", "MGET", self._name, *some)
            if not isinstance(found, list) or len(found) != len(some):
                raise nonsense(found)
            rows += [None if texts is None else self._text.read(texts) for texts in found]
        return rows

    def set_many(self, session: Session[Any], rows: Sequence[tuple[bytes, W]]) -> Request[None]:
        """See `Rows`."""
        # All of them first, so that an invalid one leaves all rows unchanged.
        words: list[list[Argument]] = [[key, *self._text.written(row)] for key, row in rows]
        head: tuple[Argument, ...] = (
            "TABLE",
            "MSET",
            self._name,
            len(self._text.names),
            *self._text.names,
        )
        for start in range(0, len(words), MANY):
            some = words[start : start + MANY]
            yield from self._ask(session, *head, *(word for row in some for word in row))

    def set(
        self, session: Session[Any], key: bytes, row: W, ttl: float | None, only: Only | None
    ) -> Request[bool]:
        """See `Rows`."""
        on = {None: "ANY", "absent": "NX", "present": "XX"}[only]
        lives = "DEFAULT" if ttl is None else milliseconds(ttl)
        columns = self._text.pairs(row)
        done = yield from self._ask(
            session, "TABLE", "SET", self._key(key), on, lives, *columns, again=only is None
        )
        return done is not None

    def delete(self, session: Session[Any], keys: Sequence[bytes]) -> Request[int]:
        """See `Rows`."""
        count = 0
        for start in range(0, len(keys), MANY):
            some = map(self._key, keys[start : start + MANY])
            count += yield from self._number(session, "DEL", *some, again=False)
        return count

    def pop(self, session: Session[Any], key: bytes) -> Request[W | None]:
        """See `Rows`."""
        found = yield from self._ask(session, "TABLE", "POP", self._key(key), again=False)
        return None if found is None else self._text.read(found)

    def contains(self, session: Session[Any], key: bytes) -> Request[bool]:
        """See `Rows`."""
        return bool((yield from self._number(session, "EXISTS", self._key(key))))

    def get_column(self, session: Session[Any], key: bytes, column: str) -> Request[Any]:
        """See `Rows`."""
        known = self._text.schema.column(column)
        found = yield from self._ask(session, "HGET", self._key(key), column)
        return NONE if found is None else column_value(known, found)

    def patch(self, session: Session[Any], key: bytes, columns: Mapping[str, Any]) -> Request[bool]:
        """See `Rows`."""
        if not columns:
            return (yield from self.contains(session, key))
        words: list[Argument] = []
        for name, value in columns.items():
            words += [name, column_text(self._text.schema.column(name), value)]
        done = yield from self._number(session, "TABLE", "PATCH", self._key(key), *words)
        return bool(done)

    def incr(
        self, session: Session[Any], key: bytes, column: str, by: float, overflow: Overflow
    ) -> Request[Any]:
        """See `Rows`."""
        known = self._text.schema.column(column)
        more = () if overflow == "raise" else (overflow.upper(),)
        found = yield from self._ask(
            session, "TABLE", "INCR", self._key(key), column, increment(known, by), *more,
            again=False,
        )  # fmt: skip
        return NONE if found is None else column_value(known, found)

    def compare_and_set(
        self, session: Session[Any], key: bytes, column: str, expected: Any, value: Any
    ) -> Request[bool | None]:
        """See `Rows`."""
        known = self._text.schema.column(column)
        words = (column_text(known, expected), column_text(known, value))
        done = yield from self._ask(
            session, "TABLE", "CAS", self._key(key), column, *words, again=False
        )
        return None if done is None else bool(done)

    def expire(self, session: Session[Any], key: bytes, ttl: float) -> Request[bool]:
        """See `Rows`."""
        # A hub refuses more, which a table of this process accepts.
        lives = min(milliseconds(ttl), MAX_ROW_TTL)
        return bool((yield from self._number(session, "PEXPIRE", self._key(key), lives)))

    def persist(self, session: Session[Any], key: bytes) -> Request[bool]:
        """See `Rows`."""
        return bool((yield from self._number(session, "PERSIST", self._key(key), again=False)))

    def ttl(self, session: Session[Any], key: bytes) -> Request[float | None]:
        """See `Rows`."""
        left = yield from self._number(session, "PTTL", self._key(key))
        found: float | None = {-1: None, -2: NONE}.get(left, left / 1000)
        return found

    def touch(self, session: Session[Any], key: bytes) -> Request[bool]:
        """See `Rows`."""
        return bool((yield from self._number(session, "TOUCH", self._key(key))))

    def idle(self, session: Session[Any], key: bytes) -> Request[float]:
        """See `Rows`."""
        found = yield from self._ask(session, "TABLE", "IDLE", self._key(key))
        return NONE if found is None else int(found) / 1000

    def count(self, session: Session[Any]) -> Request[int]:
        """See `Rows`."""
        cursor, rows = b"0", 0
        while True:
            cursor, some = yield from self._paged(session, "COUNT", cursor)
            rows += int(some)
            if cursor == b"0":
                return rows

    def page(
        self, session: Session[Any], cursor: Any, count: int
    ) -> Request[tuple[Any, list[tuple[bytes, W]]]]:
        """See `Rows`."""
        at = cursor or b"0"
        while True:
            at, found = yield from self._paged(session, "SCAN", at, "COUNT", count)
            if not isinstance(found, list):
                raise nonsense(found)
            rows = [
                (key, self._text.read(texts))
                for key, texts in zip(found[::2], found[1::2], strict=True)
            ]
            # In a nearly empty table a step may find nothing.
            if rows or at == b"0":
                return (None if at == b"0" else at), rows

    def _paged(
        self, session: Session[Any], what: str, cursor: bytes, *words: Argument
    ) -> Request[tuple[bytes, Any]]:
        found = yield from self._ask(session, "TABLE", what, self._name, cursor, *words)
        if not isinstance(found, list) or len(found) != 2 or not isinstance(found[0], bytes):
            raise nonsense(found)
        return found[0], found[1]

    def _key(self, key: bytes) -> bytes:
        return self._prefix + key

    def _number(
        self, session: Session[Any], *command: Argument, again: bool = True
    ) -> Request[int]:
        found = yield from self._ask(session, *command, again=again)
        if not isinstance(found, int):
            raise nonsense(found)
        return found

    def _ask(self, session: Session[Any], *command: Argument, again: bool = True) -> Request[Any]:
        if not self._known:
            yield from self._check(session)
        try:
            return (yield from self._sent(session, command, again))
        except Refused as error:
            if error.code in ("NOCOLUMN", "WRONGTYPE"):
                # The hub may serve a different table by this name since.
                yield from self._check(session)
            raise self._error(error) from None

    def _check(self, session: Session[Any]) -> Request[None]:
        """Ensure that the hub's table has these columns."""
        try:
            told = yield from self._sent(session, ("TABLE", "INFO", self._name), again=True)
        except Refused as error:
            raise self._error(error) from None
        if not isinstance(told, list) or len(told) % 2:
            raise nonsense(told)
        found = dict(zip(told[::2], told[1::2], strict=True)).get(b"columns")
        if not isinstance(found, bytes):
            raise nonsense(told)
        expected = str(self._text.schema)
        there = found.decode(errors="replace")
        if there != expected:
            raise SchemaMismatch(
                f"table {self._name!r} of {self._engine.target.shown} has other columns:\n"
                f"  expected: {expected}\n  found:    {there}"
            )
        self._known = True

    def _sent(
        self, session: Session[Any], command: tuple[Argument, ...], again: bool
    ) -> Request[Any]:
        """Send a command, and repeat it for a while if it had no effect, or may be done twice."""
        target = self._engine.target
        (address,) = target.addresses
        until = time.monotonic() + target.timeout
        # Not the whole time, so that the call can be repeated if the reply is lost.
        share, tries, sent = max(target.timeout / 2, min(target.timeout, 1.0)), 0, False
        while True:
            if session.interrupted:
                raise Abandoned
            left = until - time.monotonic()
            try:
                return (yield Ask(address, command, max(min(share, left), 0.001)))
            except Refused as error:
                if error.code == "TRYAGAIN" or not refusals.passes(error):
                    raise
                reason = str(error)
            except Broken as error:
                reason = str(error)
                sent = sent or error.sent
            if session.interrupted:
                raise Abandoned
            tries += 1
            pause = min(0.05 * 2 ** min(tries - 1, 5), 1.0) * random.uniform(0.5, 1.0)
            if (sent and not again) or until - time.monotonic() <= pause:
                raise EngineUnavailable(
                    refusals.advised(
                        f"{target.shown} did not answer about table {self._name!r}: {reason}"
                    ),
                    unknown=sent,
                )
            yield Nap(pause)

    def _error(self, error: Refused) -> Exception:
        text = str(error).removeprefix("ERR ")
        told = f"table {self._name!r}: {text.removeprefix(error.code).lstrip()}"
        if error.code == "TRYAGAIN":
            return RowBusy(told)
        if error.code == "TABLEFULL":
            return TableFull(told)
        if error.code == "KEPT":
            return TableKept(told)
        if error.code == "NOTABLE":
            return NotATable(
                f"{self._engine.target.shown} does not serve table {self._name!r}; [[table]] in "
                "its configuration lists its tables"
            )
        if error.code in ("WRONGTYPE", "NOCOLUMN") or text.startswith("a key "):
            return ValueError(f"table {self._name!r}: {text}")
        if "would overflow" in text:
            return OverflowError(f"table {self._name!r}: the sum is beyond the column's range")
        if text.startswith("unknown command"):
            return ValueError(
                f"table(): {self._engine.target.shown} has no state tables: it is not a hub. "
                "Redis has no columns and no types; `interlock hub` serves tables, by [[table]]"
            )
        return refusals.said_by(self._engine.target.shown, error)


def milliseconds(seconds: float) -> int:
    """Return a time to live in the form of the wire, rounded up: a row lives at least that long."""
    return min(math.ceil(min(seconds * 1000, MOST_MILLISECONDS)), MOST_MILLISECONDS)


MANY = 500
"""Maximum number of rows of one command: it delays other clients meanwhile."""
MOST_MILLISECONDS = 2**53
