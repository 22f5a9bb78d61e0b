"""Calls: the rows and columns that the arguments of a command name, and the changes it makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.cluster.naive.merge import Cells
from tests.cluster.naive.stamps import HybridClock, Stamp, packed, unpacked
from tests.cluster.naive.state import TableRules
from tests.cluster.naive.texts import ColumnText, Refusal, null

__all__ = ["Call", "Change", "KeptTable", "Read"]

Change = tuple[bytes, bytes]
"""A key, and a state that is to be joined with what it has."""
Read = Callable[[bytes], bytes | None]


@dataclass(frozen=True, slots=True)
class KeptTable:
    """The table that commands are on."""

    rules: TableRules
    name: bytes
    prefix: bytes
    """The name with the colon in front of keys."""
    key_size: int
    default_ttl_ms: int | None
    texts: dict[bytes, ColumnText]
    """Texts of its columns, by name."""


class Call:
    """One call of a command: what it names, what there is, and what it changes."""

    __slots__ = (
        "arguments", "changed", "changes", "clock", "kept", "now_ms", "read", "resp3", "rules",
        "texts",
    )  # fmt: skip

    def __init__(
        self,
        kept: KeptTable,
        arguments: list[bytes],
        resp3: bool,
        read: Read,
        clock: HybridClock,
        now_ms: int,
    ) -> None:
        self.kept = kept
        self.rules = kept.rules
        self.texts = kept.texts
        self.arguments = arguments
        self.resp3 = resp3
        self.read = read
        self.clock = clock
        self.now_ms = now_ms
        self.changes: list[Change] = []
        self.changed: dict[bytes, bytes] = {}

    # -- what a call names -------------------------------------------------------------------------

    def wrong_count(self, name: bytes) -> Refusal:
        """Return the refusal of a call with too few arguments or too many."""
        return Refusal(b"ERR wrong number of arguments for '" + name + b"' command")

    def named(self, index: int) -> bytes:
        """Return the key that an argument names, of whatever length."""
        text = self.arguments[index]
        if text.startswith(self.kept.prefix):
            return text[len(self.kept.prefix) :]
        name, colon, _ = text.partition(b":")
        if not colon or len(name) > LONGEST_TABLE:
            raise Refusal("ERR a row is named by TABLE:KEY")
        raise self.no_table(name)

    def table(self, index: int) -> None:
        """Refuse a call whose argument names another table."""
        if self.arguments[index] != self.kept.name:
            raise self.no_table(self.arguments[index])

    def no_table(self, name: bytes) -> Refusal:
        """Return the refusal of a call on another table."""
        return Refusal(b"NOTABLE this hub has no table '" + name + b"'")

    def column(self, name: bytes) -> ColumnText:
        """Return the column of this name."""
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
        """Refuse a key that the table does not take."""
        limit = self.kept.key_size
        if not 1 <= len(key) <= limit:
            if not key:
                raise Refusal("ERR a key must have at least one byte")
            raise Refusal(
                f"ERR a key of {len(key)} bytes; the table takes up to {limit} (key_size)"
            )

    # -- states ------------------------------------------------------------------------------------

    def cells(self, key: bytes) -> tuple[Cells | None, bool]:
        """Return what a key has, and whether that is a row."""
        if not 1 <= len(key) <= self.kept.key_size:
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
        """Return the expiry of a row with this time to live; where a table's time would end,
        never."""
        if left_ms is None or left_ms * 1_000_000 >= 2**64:
            return 0
        return max(self.now_ms + left_ms, 1)

    def null(self) -> bytes:
        """Return the reply for no row."""
        return null(self.resp3)


LONGEST_TABLE = 200
"""Bytes of a table's name, at most."""
