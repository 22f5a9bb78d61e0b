"""Commands: the writes of clients, as changes of states and as a hub's replies to them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from interlock.cluster.merge import Cells, ClusterColumn
from interlock.cluster.stamps import HybridClock, Stamp, packed, unpacked
from interlock.cluster.state import TableRules
from interlock.cluster.texts import (
    ColumnText,
    Refusal,
    beyond,
    bulk,
    integer,
    null,
    shown,
    sum_reply,
)

__all__ = ["Change", "Commands", "Outcome"]

Change = tuple[bytes, bytes]
"""A key, and a state that is to be joined with what it has."""
Read = Callable[[bytes], bytes | None]
Pairs = list[tuple[ClusterColumn, Any]]


class Outcome(NamedTuple):
    """The end of a command."""

    reply: bytes
    """As it goes out on the wire."""
    changes: list[Change]
    """In their order; none where the command failed or changes nothing."""


class Commands:
    """The commands that write to one table.

    HSET, HMSET, HSETNX, HINCRBY, HINCRBYFLOAT, HDEL, DEL, UNLINK, EXPIRE, PEXPIRE, EXPIREAT,
    PEXPIREAT, PERSIST, and of TABLE: SET, MSET, PATCH, INCR, CAS, POP. Replies are those of a hub's
    own table; but what ends in an error changes nothing, also where a table does half of it.

    Args:
        rules: those of the table.
        table_name: the name in front of the keys.
        key_size: most bytes of a key.
        default_ttl_ms: ms that a row lives if it is not told. None: for ever.
    """

    def __init__(
        self,
        rules: TableRules,
        *,
        table_name: str,
        key_size: int = 32,
        default_ttl_ms: int | None = None,
    ) -> None:
        self.rules = rules
        self.table_name = table_name
        self.key_size = key_size
        self.default_ttl_ms = default_ttl_ms
        self._name = table_name.encode()
        self._prefix = self._name + b":"
        texts = [ColumnText(column) for column in rules.columns]
        self._texts = {text.column.name.encode(): text for text in texts}

    def run(
        self,
        arguments: list[bytes],
        resp3: bool,
        read: Read,
        clock: HybridClock,
        now_ms: int,
    ) -> Outcome:
        """Do one command.

        Args:
            arguments: the command's name and what follows, as a client sent them.
            resp3: whether the client speaks RESP3.
            read: gives the state of a key, changes that are under way included; None for nothing.
            clock: the data centre's; the stamps of the changes come from it.
            now_ms: the time, in ms since 1970: by it rows have expired or not.
        """
        call = _Call(self, arguments, resp3, read, clock, now_ms)
        try:
            return Outcome(call.run(), call.changes)
        except Refusal as refusal:
            return Outcome(refusal.reply(), [])


class _Call:
    """One call of a command."""

    __slots__ = (
        "arguments", "changed", "changes", "clock", "commands", "now_ms", "read", "resp3", "rules",
        "texts",
    )  # fmt: skip

    def __init__(
        self,
        commands: Commands,
        arguments: list[bytes],
        resp3: bool,
        read: Read,
        clock: HybridClock,
        now_ms: int,
    ) -> None:
        self.commands = commands
        self.rules = commands.rules
        self.texts = commands._texts
        self.arguments = arguments
        self.resp3 = resp3
        self.read = read
        self.clock = clock
        self.now_ms = now_ms
        self.changes: list[Change] = []
        self.changed: dict[bytes, bytes] = {}

    def run(self) -> bytes:
        arguments = self.arguments
        name = arguments[0].lower() if arguments else b""
        if name == b"table" and len(arguments) > 1:
            name = b"table|" + arguments[1].lower()
        found = _COMMANDS.get(name)
        if found is None:
            raise Refusal(b"ERR unknown command '" + name[:128] + b"'")
        arity, do = found
        if len(arguments) != arity if arity > 0 else len(arguments) < -arity:
            raise self.wrong_count(name)
        return do(self)

    # -- what a call names -------------------------------------------------------------------------

    def wrong_count(self, name: bytes) -> Refusal:
        return Refusal(b"ERR wrong number of arguments for '" + name + b"' command")

    def named(self, index: int) -> bytes:
        """Return the key that an argument names, of whatever length."""
        text = self.arguments[index]
        if text.startswith(self.commands._prefix):
            return text[len(self.commands._prefix) :]
        name, colon, _ = text.partition(b":")
        if not colon or len(name) > LONGEST_TABLE:
            raise Refusal("ERR a row is named by TABLE:KEY")
        raise self.no_table(name)

    def table(self, index: int) -> None:
        if self.arguments[index] != self.commands._name:
            raise self.no_table(self.arguments[index])

    def no_table(self, name: bytes) -> Refusal:
        return Refusal(b"NOTABLE this hub has no table '" + name + b"'")

    def column(self, name: bytes) -> ColumnText:
        found = self.texts.get(name)
        if found is None:
            there = ", ".join(self.rules.schema.names)
            raise Refusal(
                b"NOCOLUMN there is no column '" + name + f"'; there are {there}".encode()
            )
        return found

    def pairs(self, start: int) -> list[tuple[ColumnText, Any]]:
        """Return columns with the values that their texts are, be there room for them or not."""
        arguments = self.arguments
        pairs = []
        for at in range(start, len(arguments), 2):
            if at + 1 == len(arguments):
                name = arguments[0].lower()
                if name == b"table":
                    name += b"|" + arguments[1].lower()
                raise self.wrong_count(name)
            text = self.column(arguments[at])
            pairs.append((text, text.given(arguments[at + 1])))
        return pairs

    def check(self, key: bytes) -> None:
        limit = self.commands.key_size
        if not 1 <= len(key) <= limit:
            if not key:
                raise Refusal("ERR a key must have at least one byte")
            raise Refusal(
                f"ERR a key of {len(key)} bytes; the table takes up to {limit} (key_size)"
            )

    # -- states ------------------------------------------------------------------------------------

    def cells(self, key: bytes) -> tuple[Cells | None, bool]:
        """Return what a key has, and whether that is a row."""
        if not 1 <= len(key) <= self.commands.key_size:
            self.check(key)
        state = self.changed.get(key) if self.changed else None
        if state is None:
            state = self.read(key)
            if state is None:
                return None, False
        cells = self.rules.cells(state)
        return cells, self.rules.is_alive(cells, self.now_ms)

    def stamp(self) -> Stamp:
        """Return a new stamp: later than all that was joined, or it would change nothing."""
        stamp = self.clock.next(self.now_ms)
        newest = self.rules.newest_seen
        if packed(stamp) <= newest:
            self.clock.saw(unpacked(newest))
            stamp = self.clock.next(self.now_ms)
        return stamp

    def change(self, key: bytes, delta: bytes, again: bool = False) -> None:
        """Note a change; ``again``: the command may come upon the key again."""
        self.changes.append((key, delta))
        if again:
            state = self.changed.get(key)
            if state is None:
                state = self.read(key)
            self.changed[key] = self.rules.join(state, delta)

    def deadline(self, left_ms: int | None) -> int:
        """Return when a row expires that lives so long; where a table's time would end, never."""
        if left_ms is None or left_ms * 1_000_000 >= 2**64:
            return 0
        return max(self.now_ms + left_ms, 1)

    def null(self) -> bytes:
        return null(self.resp3)

    # -- commands on hashes ------------------------------------------------------------------------

    def hset(self) -> bytes:
        return b":%d\r\n" % self.set_columns()

    def hmset(self) -> bytes:
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
        expires = self.deadline(self.commands.default_ttl_ms)
        self.change(key, self.rules.created(cells, given, self.stamp(), self.now_ms, expires))

    def hsetnx(self) -> bytes:
        key = self.named(1)
        text = self.column(self.arguments[2])
        value = text.checked(text.given(self.arguments[3]))
        cells, alive = self.cells(key)
        if alive:
            return b":0\r\n"
        self.create(key, cells, [(text.column, value)])
        return b":1\r\n"

    def hdel(self) -> bytes:
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
        key = self.named(1)
        text = self.column(self.arguments[2])
        by = integer(self.arguments[3])
        if by is None:
            raise Refusal("ERR value is not an integer or out of range")
        if not text.is_integer:
            raise Refusal("ERR hash value is not an integer")
        return sum_reply(self.raise_or_create(key, text, by))

    def hincrbyfloat(self) -> bytes:
        key = self.named(1)
        text = self.column(self.arguments[2])
        if not text.column.is_float:
            raise Refusal("ERR hash value is not a float")
        by = text.increment(self.arguments[3])
        if not math.isfinite(by):
            raise Refusal("ERR value is not a valid float")
        return bulk(shown(self.raise_or_create(key, text, by)))

    def raise_or_create(self, key: bytes, text: ColumnText, by: int | float) -> Any:
        cells, alive = self.cells(key)
        column = text.column
        if alive and cells is not None:
            return self.raise_(key, cells, column, text.raised(column.value(cells), by))
        try:
            value = text.checked(by)
        except Refusal:
            raise beyond() from None
        expires = self.deadline(self.commands.default_ttl_ms)
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
        keys = [self.named(index) for index in range(1, len(self.arguments))]
        count = 0
        for key in keys:
            if self.cells(key)[1]:
                self.change(key, self.rules.deleted(self.stamp()), again=True)
                count += 1
        return b":%d\r\n" % count

    def persist(self) -> bytes:
        key = self.named(1)
        cells, alive = self.cells(key)
        if cells is None or not alive or not self.rules.expiry(cells):
            return b":0\r\n"
        self.change(key, self.rules.expiring(cells, self.stamp(), 0))
        return b":1\r\n"

    def expire(self) -> bytes:
        return self.expires("expire", 1000, since_1970=False)

    def pexpire(self) -> bytes:
        return self.expires("pexpire", 1, since_1970=False)

    def expireat(self) -> bytes:
        return self.expires("expireat", 1000, since_1970=True)

    def pexpireat(self) -> bytes:
        return self.expires("pexpireat", 1, since_1970=True)

    def expires(self, name: str, unit: int, *, since_1970: bool) -> bytes:
        key = self.named(1)
        given = integer(self.arguments[2])
        if given is None:
            raise Refusal("ERR value is not an integer or out of range")
        words = self.conditions()
        left = given * unit
        if _is_i64(left) and since_1970:
            left -= self.now_ms
        if not _is_i64(left):
            raise Refusal(f"ERR invalid expire time in '{name}' command")
        # What is over has expired at once.
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
        key = self.named(2)
        only = self.arguments[3].lower()
        if only not in (b"any", b"nx", b"xx"):
            raise Refusal("ERR syntax error: ANY, NX or XX")
        ttl = self.arguments[4].lower()
        left = self.commands.default_ttl_ms if ttl == b"default" else None
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
        stamp = self.stamp()
        if alive and cells is not None:
            delta = self.rules.replaced(cells, given, stamp, expires)
        else:
            delta = self.rules.created(cells, given, stamp, self.now_ms, expires)
        self.change(key, delta, again)

    def table_mset(self) -> bytes:
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
        expires = self.deadline(self.commands.default_ttl_ms)
        for key, pairs in rows:
            cells, alive = self.cells(key)
            self.put(key, cells, alive, pairs, expires, again=True)
        return b":%d\r\n" % len(rows)

    def table_patch(self) -> bytes:
        key = self.named(2)
        pairs = self.pairs(3)
        cells, alive = self.cells(key)
        if cells is None or not alive:
            return b":0\r\n"
        given = [(text.column, text.checked(value)) for text, value in pairs]
        self.change(key, self.rules.patched(cells, given, self.stamp()))
        return b":1\r\n"

    def table_incr(self) -> bytes:
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
        key = self.named(2)
        cells, alive = self.cells(key)
        if cells is None or not alive:
            return self.null()
        values = [column.value(cells) for column in self.rules.columns]
        self.change(key, self.rules.deleted(self.stamp()))
        return b"*%d\r\n" % len(values) + b"".join(bulk(shown(value)) for value in values)


def _is_i64(number: int) -> bool:
    return -(2**63) <= number < 2**63


LONGEST_TABLE = 200
"""Bytes of a table's name, at most."""
MOST_ROWS = 1000
"""Rows that one call may name."""

_COMMANDS: dict[bytes, tuple[int, Callable[[_Call], bytes]]] = {
    b"hset": (-4, _Call.hset),
    b"hmset": (-4, _Call.hmset),
    b"hsetnx": (4, _Call.hsetnx),
    b"hincrby": (4, _Call.hincrby),
    b"hincrbyfloat": (4, _Call.hincrbyfloat),
    b"hdel": (-3, _Call.hdel),
    b"del": (-2, _Call.delete),
    b"unlink": (-2, _Call.delete),
    b"expire": (-3, _Call.expire),
    b"pexpire": (-3, _Call.pexpire),
    b"expireat": (-3, _Call.expireat),
    b"pexpireat": (-3, _Call.pexpireat),
    b"persist": (2, _Call.persist),
    b"table|set": (-5, _Call.table_set),
    b"table|mset": (-6, _Call.table_mset),
    b"table|patch": (-5, _Call.table_patch),
    b"table|incr": (-5, _Call.table_incr),
    b"table|cas": (6, _Call.table_cas),
    b"table|pop": (3, _Call.table_pop),
}
"""Arity, negative for at least so many, and what is done."""
