"""Writes: what each command does to rows, and its reply."""

from __future__ import annotations

import math
from typing import Any

from interlock.runtime.limits import MAX_ROW_TTL
from tests.cluster.naive.calls import Call
from tests.cluster.naive.merge import Cells, ClusterColumn
from tests.cluster.naive.texts import ColumnText, Refusal, beyond, bulk, integer, shown, sum_reply

__all__ = ["Writes"]

Pairs = list[tuple[ClusterColumn, Any]]


class Writes(Call):
    """A call of one of the commands that write; each method is one of them."""

    __slots__ = ()

    # -- commands on hashes ------------------------------------------------------------------------

    def hset(self) -> bytes:
        """Set columns, and create the row if it is missing."""
        return b":%d\r\n" % self.set_columns()

    def hmset(self) -> bytes:
        """Do as ``hset``, and answer OK."""
        self.set_columns()
        return b"+OK\r\n"

    def set_columns(self) -> int:
        """Return how many columns were not there before: all, or none."""
        key = self.named(1)
        pairs = self.pairs(2)
        cells, alive = self.cells(key)
        given = [(text.column, text.checked(value)) for text, value in pairs]
        if alive and cells is not None:
            self.change(key, self.rules.patched(cells, given, self.stamp()))
            return 0
        self.create(key, cells, given)
        return len({column.number for column, _ in given})

    def create(self, key: bytes, cells: Cells | None, given: Pairs) -> None:
        """Make a row with these columns."""
        expires = self.deadline(self.kept.default_ttl_ms)
        self.change(key, self.rules.created(cells, given, self.stamp(), self.now_ms, expires))

    def hsetnx(self) -> bytes:
        """Create a row with this column if it is missing."""
        key = self.named(1)
        text = self.column(self.arguments[2])
        value = text.checked(text.given(self.arguments[3]))
        cells, alive = self.cells(key)
        if alive:
            return b":0\r\n"
        self.create(key, cells, [(text.column, value)])
        return b":1\r\n"

    def hdel(self) -> bytes:
        """Refuse it for a column of a row that is there; a row has all its columns."""
        key = self.named(1)
        known = next((name for name in self.arguments[2:] if name in self.texts), None)
        if known is not None and self.cells(key)[1]:
            raise Refusal(
                b"ERR column "
                + known
                + b" cannot be deleted: a row has all its columns; HSET sets "
                b"one, DEL deletes the row"
            )
        return b":0\r\n"

    def hincrby(self) -> bytes:
        """Raise a column of whole numbers."""
        key = self.named(1)
        text = self.column(self.arguments[2])
        by = integer(self.arguments[3])
        if by is None:
            raise Refusal("ERR value is not an integer or out of range")
        if not text.is_integer:
            raise Refusal("ERR hash value is not an integer")
        return sum_reply(self.raise_or_create(key, text, by))

    def hincrbyfloat(self) -> bytes:
        """Raise a column of floats."""
        key = self.named(1)
        text = self.column(self.arguments[2])
        if not text.column.is_float:
            raise Refusal("ERR hash value is not a float")
        by = text.increment(self.arguments[3])
        if math.isnan(by):
            raise Refusal("ERR value is not a valid float")
        if math.isinf(by):
            raise Refusal("ERR value is NaN or Infinity")
        return bulk(shown(self.raise_or_create(key, text, by)))

    def raise_or_create(self, key: bytes, text: ColumnText, by: int | float) -> Any:
        """Raise a column, and create the row if it is missing."""
        cells, alive = self.cells(key)
        column = text.column
        if alive and cells is not None:
            return self.raise_(key, cells, column, text.raised(column.value(cells), by))
        try:
            value = text.checked(by)
        except Refusal:
            raise beyond() from None
        expires = self.deadline(self.kept.default_ttl_ms)
        stamp = self.stamp()
        self.change(key, self.rules.created_by(cells, column, value, stamp, self.now_ms, expires))
        return value

    def raise_(self, key: bytes, cells: Cells, column: ClusterColumn, value: Any) -> Any:
        """Raise a column, and return what it is then: of a maximum what it was, if that is more."""
        delta = self.rules.raised(cells, column, value, self.stamp())
        self.change(key, delta)
        if column.merge == "last":
            return value
        return column.value(self.rules.joined(cells, self.rules.cells(delta)))

    # -- commands on keys --------------------------------------------------------------------------

    def delete(self) -> bytes:
        """Delete rows."""
        keys = [self.named(index) for index in range(1, len(self.arguments))]
        count = 0
        for key in keys:
            if self.cells(key)[1]:
                self.change(key, self.rules.deleted(self.stamp()), again=True)
                count += 1
        return b":%d\r\n" % count

    def persist(self) -> bytes:
        """Have a row live for ever."""
        key = self.named(1)
        cells, alive = self.cells(key)
        if cells is None or not alive or not self.rules.expiry(cells):
            return b":0\r\n"
        self.change(key, self.rules.expiring(cells, self.stamp(), 0))
        return b":1\r\n"

    def expire(self) -> bytes:
        """Set the expiry of a row in seconds."""
        return self.expires("expire", 1000, since_1970=False)

    def pexpire(self) -> bytes:
        """Set the expiry of a row in ms."""
        return self.expires("pexpire", 1, since_1970=False)

    def expireat(self) -> bytes:
        """Have a row expire at a time, in seconds since 1970."""
        return self.expires("expireat", 1000, since_1970=True)

    def pexpireat(self) -> bytes:
        """Have a row expire at a time, in ms since 1970."""
        return self.expires("pexpireat", 1, since_1970=True)

    def expires(self, name: str, unit: int, *, since_1970: bool) -> bytes:
        """Set a time to live; ``unit`` is the ms in one of what is given."""
        key = self.named(1)
        words = self.conditions()
        given = integer(self.arguments[2])
        if given is None:
            raise Refusal("ERR value is not an integer or out of range")
        given *= unit
        left = given - self.now_ms if since_1970 else given
        if not -(2**63) <= given < 2**63 or left > MAX_ROW_TTL:
            raise Refusal(f"ERR invalid expire time in '{name}' command")
        # A time in the past expires immediately.
        left = max(left, 0)
        cells, alive = self.cells(key)
        if cells is None or not alive:
            return b":0\r\n"
        expiry = self.rules.expiry(cells)
        before = expiry - self.now_ms if expiry else None
        refused = (
            (b"nx" in words and before is not None)
            or (b"xx" in words and before is None)
            or (b"gt" in words and (before is None or left <= before))
            or (b"lt" in words and before is not None and left >= before)
        )
        if refused:
            return b":0\r\n"
        self.change(key, self.rules.expiring(cells, self.stamp(), self.deadline(left)))
        return b":1\r\n"

    def conditions(self) -> set[bytes]:
        """Return the conditions on which another time to live is taken."""
        words = set()
        for word in self.arguments[3:]:
            if word.lower() not in (b"nx", b"xx", b"gt", b"lt"):
                raise Refusal(b"ERR Unsupported option " + word)
            words.add(word.lower())
        if b"nx" in words and len(words) > 1:
            raise Refusal("ERR NX and XX, GT or LT options at the same time are not compatible")
        if {b"gt", b"lt"} <= words:
            raise Refusal("ERR GT and LT options at the same time are not compatible")
        return words

    # -- TABLE -------------------------------------------------------------------------------------

    def table_set(self) -> bytes:
        """Set a row as a whole."""
        key = self.named(2)
        only = self.arguments[3].lower()
        if only not in (b"any", b"nx", b"xx"):
            raise Refusal("ERR syntax error: ANY, NX or XX")
        ttl = self.arguments[4].lower()
        left = self.kept.default_ttl_ms if ttl == b"default" else None
        if ttl not in (b"default", b"never"):
            left = integer(ttl)
            if left is None or left < 0:
                raise Refusal("ERR syntax error: DEFAULT, NEVER or milliseconds")
        pairs = self.pairs(5)
        given = [(text.column, text.checked(value)) for text, value in pairs]
        cells, alive = self.cells(key)
        if only == (b"nx" if alive else b"xx"):
            return self.null()
        self.put(key, cells, alive, given, self.deadline(left))
        return b":0\r\n" if alive else b":1\r\n"

    def put(
        self, key: bytes, cells: Cells | None, alive: bool, given: Pairs, expires: int,
        again: bool = False,
    ) -> None:  # fmt: skip
        """Set a row as a whole, be there one or not."""
        stamp = self.stamp()
        if alive and cells is not None:
            delta = self.rules.replaced(cells, given, stamp, expires)
        else:
            delta = self.rules.created(cells, given, stamp, self.now_ms, expires)
        self.change(key, delta, again)

    def table_mset(self) -> bytes:
        """Set rows as a whole."""
        self.table(2)
        count = integer(self.arguments[3])
        if count is None or not 1 <= count <= len(self.texts):
            raise Refusal("ERR value is not an integer or out of range")
        texts = [self.column(name) for name in self.arguments[4 : 4 + count]]
        values = self.arguments[4 + count :]
        if len(texts) < count or not values or len(values) % (count + 1):
            raise self.wrong_count(b"table|mset")
        if len(values) // (count + 1) > MOST_ROWS:
            raise Refusal(f"ERR more than {MOST_ROWS} rows in one call")
        rows: list[tuple[bytes, Pairs]] = []
        for at in range(0, len(values), count + 1):
            row = zip(texts, values[at + 1 : at + 1 + count], strict=True)
            pairs = [(text.column, text.checked(text.given(value))) for text, value in row]
            rows.append((values[at], pairs))
        expires = self.deadline(self.kept.default_ttl_ms)
        for key, pairs in rows:
            cells, alive = self.cells(key)
            self.put(key, cells, alive, pairs, expires, again=True)
        return b":%d\r\n" % len(rows)

    def table_patch(self) -> bytes:
        """Set columns, if there is a row."""
        key = self.named(2)
        pairs = self.pairs(3)
        cells, alive = self.cells(key)
        if cells is None or not alive:
            return b":0\r\n"
        given = [(text.column, text.checked(value)) for text, value in pairs]
        self.change(key, self.rules.patched(cells, given, self.stamp()))
        return b":1\r\n"

    def table_incr(self) -> bytes:
        """Raise a column, if there is a row."""
        key = self.named(2)
        text = self.column(self.arguments[3])
        by = text.increment(self.arguments[4])
        overflow = self.arguments[5].lower() if len(self.arguments) > 5 else b""
        if overflow not in (b"", b"wrap", b"saturate") or self.arguments[5:6] == [b""]:
            raise Refusal("ERR syntax error: WRAP or SATURATE")
        if len(self.arguments) > 6:
            raise self.wrong_count(b"table|incr")
        cells, alive = self.cells(key)
        if cells is None or not alive:
            return self.null()
        value = text.raised(text.column.value(cells), by, overflow.decode())
        return sum_reply(self.raise_(key, cells, text.column, value))

    def table_cas(self) -> bytes:
        """Set a column, if it is as expected."""
        key = self.named(2)
        text = self.column(self.arguments[3])
        expected = text.given(self.arguments[4])
        value = text.given(self.arguments[5])
        if not text.is_sized:
            expected, value = text.checked(expected), text.checked(value)
        cells, alive = self.cells(key)
        if cells is None or not alive:
            return self.null()
        value = text.checked(value)
        if not text.same(text.column.value(cells), expected):
            return b":0\r\n"
        self.change(key, self.rules.patched(cells, [(text.column, value)], self.stamp()))
        return b":1\r\n"

    def table_pop(self) -> bytes:
        """Delete a row, and return its values."""
        key = self.named(2)
        cells, alive = self.cells(key)
        if cells is None or not alive:
            return self.null()
        values = [column.value(cells) for column in self.rules.columns]
        self.change(key, self.rules.deleted(self.stamp()))
        return b"*%d\r\n" % len(values) + b"".join(bulk(shown(value)) for value in values)

    def table_barrier(self) -> bytes:
        """Change nothing: the answer comes behind the writes before it."""
        return b"+OK\r\n"


MOST_ROWS = 1000
"""Rows that one call may name."""
