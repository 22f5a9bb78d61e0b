"""States: a row with all that is needed to join it with another of its key, as bytes.

A state has a *floor*, the stamp of the newest delete that its life comes after; of two with
different floors the higher is left as a whole, so a delete wins over what is changed at the same
time. Two with the same floor are joined column by column. A change is a state too, of the columns
that it changes; a state without a time to live is of a row whose creation has not come yet, or of a
deleted one (a tombstone), and shows no row.

Joining is associative, commutative and idempotent, also while nodes forget tombstones, as long as
every change is everywhere within half of the age at which they do.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from itertools import compress
from typing import Any

import msgspec

from interlock.table.merge import rules_of
from interlock.table.row import Row
from interlock.table.schema import Schema
from tests.cluster.naive.merge import BORN, LIFE, Cells, ClusterColumn, Mark, columns_of
from tests.cluster.naive.stamps import NEVER, Stamp, hybrid, packed, unpacked

__all__ = ["TOMBSTONE_AGE", "TableRules"]

TOMBSTONE_AGE = 7 * 86_400.0
"""Seconds for which a deleted or expired row is remembered, by default."""
Given = Iterable[tuple[ClusterColumn, Any]]

# The cells in front of those of the columns.
FLOOR, BIRTH, ALIVE, EXPIRES, FIRST = 0, 1, 2, 3, 4


class TableRules:
    """The states of one table: how they are made, joined, and seen as rows.

    Args:
        row: the class of the table's rows.
        tombstone_age: seconds for which nodes remember a deleted or expired row. The same at all
            nodes, for it decides how states are joined. Default: 7 days.

    Raises:
        TypeError: ``row`` is not a class of rows, or a marker is on a column of another type.
        ValueError: ``tombstone_age`` is not positive; a column cannot hold its default.
    """

    def __init__(self, row: type[Row], *, tombstone_age: float = TOMBSTONE_AGE) -> None:
        if not tombstone_age > 0:
            raise ValueError(
                f"TableRules(): tombstone_age is {tombstone_age!r}; allowed: more than 0 seconds"
            )
        schema = Schema.of(row)
        rules = rules_of(row)
        self.row_class = row
        self.schema = schema
        self.columns = columns_of(schema.columns, rules, FIRST)
        self.age_ms = max(int(tombstone_age * 1000), 1)
        self.fingerprint = f"{schema}; {', '.join(rules)}; {self.age_ms} ms"
        """The settings that all nodes of a cluster must have in common, as text."""
        self.newest_seen = NEVER
        """The newest stamp, packed, of all that was joined."""
        self._age = hybrid(self.age_ms)
        self._blank: Cells = [NEVER, NEVER, None, 0]
        self._blank += [None] * sum(column.width for column in self.columns)
        self._registers = tuple(column.at for column in self.columns if column.is_register)
        self._stamps = _picker([at + 1 for at in self._registers])
        self._joined = tuple(
            (at, column.join) for column in self.columns if (at := column.joined_at) is not None
        )
        self._values = _viewer(self.columns, "({},)")
        named = ", ".join(f"{column.name}={{}}" for column in self.columns)
        self._row = _viewer(self.columns, f"_row({named})", row)
        self._last: tuple[bytes, Cells] = (b"", [])

    @classmethod
    def of(cls, row: type[Row], *, tombstone_age: float = TOMBSTONE_AGE) -> TableRules:
        """Return the rules for a class of rows."""
        return cls(row, tombstone_age=tombstone_age)

    # -- joining -----------------------------------------------------------------------------------

    def join(self, ours: bytes | None, theirs: bytes) -> bytes:
        """Return two states of a key as one; ``ours`` itself where nothing changes.

        The clock that makes stamps must see the stamps that it joins
        (``clock.saw(rules.newest(theirs))``), or later writes could get lower stamps."""
        # The writer of a change has just read the row: that need not be read again.
        before = None if ours is None else self.cells(ours)
        cells = self.cells(theirs)
        newest = self._newest(cells)
        if newest > self.newest_seen:
            self.newest_seen = newest
        if ours is None or before is None:
            return theirs
        joined = self.joined(before, cells)
        if joined is before:
            return ours
        state = theirs if joined is cells else _ENCODE(joined)
        self._last = state, joined
        return state

    def joined(self, before: Cells, cells: Cells) -> Cells:
        """Return the cells of two states as one."""
        if before[FLOOR] != cells[FLOOR] or before[BIRTH] != cells[BIRTH]:
            return self._joined_apart(before, cells)
        if cells[ALIVE] is not None and cells[ALIVE] != before[ALIVE]:
            return self._joined_whole(before, cells)
        return self._joined_columns(before, cells)

    def _joined_columns(self, before: Cells, cells: Cells) -> Cells:
        """Return both as one, where the stamps of their creation and time to live are the same.

        Or where ``cells`` has no time to live.
        """
        joined = before
        stamps = self._stamps(cells)
        for at, stamp in zip(compress(self._registers, stamps), filter(None, stamps), strict=True):
            ours = before[at + 1]
            if stamp == ours:
                continue
            theirs = _stamp_of(stamp, cells) if stamp.__class__ is int else stamp
            if ours is None or theirs > _stamp_of(ours, before):
                if joined is before:
                    joined = before[:]
                joined[at] = cells[at]
                if theirs == before[BIRTH]:
                    theirs = BORN
                elif theirs == before[ALIVE]:
                    theirs = LIFE
                joined[at + 1] = theirs
        for at, join in self._joined:
            value = cells[at]
            if value is not None:
                ours = before[at]
                if ours is not None:
                    value = join(ours, value)
                    if value == ours:
                        continue
                if joined is before:
                    joined = before[:]
                joined[at] = value
        return joined

    def _joined_whole(self, before: Cells, cells: Cells) -> Cells:
        """Return both as one, whatever their stamps are; their floor is the same."""
        joined = self._spread(before)
        other = self._spread(cells)
        joined[BIRTH] = max(joined[BIRTH], other[BIRTH])
        if other[ALIVE] is not None and (joined[ALIVE] is None or other[ALIVE] > joined[ALIVE]):
            joined[ALIVE], joined[EXPIRES] = other[ALIVE], other[EXPIRES]
        for at in self._registers:
            theirs, ours = other[at + 1], joined[at + 1]
            if theirs is not None and (ours is None or theirs > ours):
                joined[at], joined[at + 1] = other[at], theirs
        for at, join in self._joined:
            value = other[at]
            if value is not None:
                joined[at] = value if joined[at] is None else join(joined[at], value)
        joined = self._folded(joined)
        return before if joined == before else joined

    def _joined_apart(self, before: Cells, cells: Cells) -> Cells:
        """Return both as one, where they are of different lives, or of two creations of one."""
        if before[FLOOR] == cells[FLOOR]:
            older, newer = (before, cells) if before[BIRTH] <= cells[BIRTH] else (cells, before)
            # The newer was made by one who had forgotten that the older ever was.
            if older[EXPIRES] and self._is_out_of_force(_end(older), newer):
                return newer
            return self._joined_whole(before, cells)
        lower, higher = (before, cells) if before[FLOOR] < cells[FLOOR] else (cells, before)
        if not self._is_out_of_force(_reading(higher[FLOOR]), lower):
            return higher
        # The lower was made by one who had forgotten the delete; both may live.
        if higher[ALIVE] is None and higher[BIRTH] == NEVER:
            return lower
        if higher[EXPIRES] and self._is_out_of_force(_end(higher), lower):
            return lower
        joined = lower[:]
        joined[FLOOR] = higher[FLOOR]
        joined = self._joined_whole(joined, higher)
        return before if joined == before else joined

    def _is_out_of_force(self, end: int, cells: Cells) -> bool:
        """Return whether a row was created so long after this end of a life that the end does not
        count."""
        birth = cells[BIRTH]
        return birth != NEVER and _reading(birth) >= end + self._age

    def _spread(self, cells: Cells) -> Cells:
        """Return cells in which each stamp stands where it belongs."""
        found = cells[:]
        found[ALIVE] = _stamp_of(cells[ALIVE], cells)
        for at in self._registers:
            stamp = cells[at + 1]
            if stamp.__class__ is int:
                found[at + 1] = _stamp_of(stamp, cells)
        return found

    def _folded(self, cells: Cells) -> Cells:
        """Put numbers for stamps that stand elsewhere, and return the cells."""
        birth, alive = cells[BIRTH], cells[ALIVE]
        for at in self._registers:
            stamp = cells[at + 1]
            if stamp is not None:
                cells[at + 1] = BORN if stamp == birth else LIFE if stamp == alive else stamp
        if alive == birth:
            cells[ALIVE] = BORN
        return cells

    def _newest(self, cells: Cells) -> bytes:
        newest: bytes = cells[BIRTH] if cells[BIRTH] > cells[FLOOR] else cells[FLOOR]
        alive = cells[ALIVE]
        if alive.__class__ is bytes and alive > newest:
            newest = alive
        for stamp in filter(None, self._stamps(cells)):
            if stamp.__class__ is bytes and stamp > newest:
                newest = stamp
        return newest

    # -- looking -----------------------------------------------------------------------------------

    def cells(self, state: bytes) -> Cells:
        """Return the cells of a state; they are not to be changed."""
        last, cells = self._last
        if state is last:
            return cells
        cells = _DECODE(state)
        self._last = state, cells
        return cells

    def check(self, state: bytes) -> None:
        """Raise ValueError unless it is a state that can be joined, and shown.

        For what comes from outside; it does not look into the stamps of a sum or of flags.
        """
        try:
            cells = _DECODE(state)
            floor, birth, alive, expires = cells[:4]
            right = (
                len(cells) == len(self._blank)
                and isinstance(floor, bytes)
                and isinstance(birth, bytes)
                and (alive is None or isinstance(alive, (bytes, int)))
                and isinstance(expires, int)
                and 0 <= expires < 2**63
            )
            if right:
                self.row(state, 0)
                self._newest(cells)
                self.joined(cells, _DECODE(state))
        except (msgspec.MsgspecError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise ValueError(f"not the state of a row: {error}") from None
        if not right:
            raise ValueError("not the state of a row")

    def is_alive(self, cells: Cells, now_ms: int) -> bool:
        """Return whether cells are of a row that is there."""
        return cells[ALIVE] is not None and not 0 < cells[EXPIRES] <= now_ms

    def values(self, state: bytes, now_ms: int) -> tuple[Any, ...] | None:
        """Return the values of all columns, in their order; None without a row."""
        cells = self.cells(state)
        return self._values(cells) if self.is_alive(cells, now_ms) else None

    def row(self, state: bytes, now_ms: int) -> Row | None:
        """Return the row; None without one."""
        cells = self.cells(state)
        return self._row(cells) if self.is_alive(cells, now_ms) else None

    def row_and_expiry(self, state: bytes, now_ms: int) -> tuple[Row | None, int]:
        """Return the row, or None, and its expiry, 0 for never."""
        cells = self.cells(state)
        expires = cells[EXPIRES]
        if cells[ALIVE] is None or 0 < expires <= now_ms:
            return None, 0
        return self._row(cells), expires

    def expires_at(self, state: bytes) -> int:
        """Return when the row expires, in ms since 1970; 0 for never, and of no row."""
        return self.expiry(self.cells(state))

    def expiry(self, cells: Cells) -> int:
        """Return the same of cells."""
        found: int = cells[EXPIRES]
        return found

    def newest(self, state: bytes) -> Stamp:
        """Return the newest stamp in a state: the stamps that a clock must see."""
        return unpacked(self._newest(self.cells(state)))

    def is_tombstone(self, state: bytes) -> bool:
        """Return whether it is what a delete leaves."""
        cells = self.cells(state)
        return cells[ALIVE] is None and cells[BIRTH] == NEVER

    def forgettable_at(self, state: bytes) -> int:
        """Return from when a node may forget it, in ms since 1970 by its own clock; 0 for never.

        A node that has forgotten a state and one that has not still come to the same rows. The
        time is that of a delete or of an expiry, plus the age of tombstones.
        """
        cells = self.cells(state)
        if self.is_tombstone(state):
            return _ms_above(_reading(cells[FLOOR])) + self.age_ms
        return _ms_above(_end(cells)) + self.age_ms if cells[EXPIRES] else 0

    # -- changing ----------------------------------------------------------------------------------

    def set(
        self,
        state: bytes | None,
        values: Iterable[Any],
        stamp: Stamp,
        now_ms: int,
        expires_at: int = 0,
    ) -> bytes:
        """Return the change that sets a row as a whole.

        Args:
            state: what the key has. None: nothing.
            values: those of all columns, in their order; such as the columns can hold.
            stamp: a new one of this data centre.
            now_ms: the time, in ms since 1970.
            expires_at: when it expires, in ms since 1970. Default: never.
        """
        cells = None if state is None else self.cells(state)
        given = zip(self.columns, values, strict=True)
        if cells is not None and self.is_alive(cells, now_ms):
            return self.replaced(cells, given, stamp, expires_at)
        return self.created(cells, given, stamp, now_ms, expires_at)

    def created(
        self, cells: Cells | None, given: Given, stamp: Stamp, now_ms: int, expires_at: int
    ) -> bytes:
        """Return the change that creates a missing row.

        Columns that are not given are 0 or empty, unless somebody makes the row at the same time
        and gives them.
        """
        delta, before = self._born(cells, stamp, now_ms, expires_at)
        for column, value in given:
            column.put(delta, before, value, BORN, stamp)
        return _ENCODE(delta)

    def created_by(
        self, cells: Cells | None, column: ClusterColumn, value: Any, stamp: Stamp,
        now_ms: int, expires_at: int,
    ) -> bytes:  # fmt: skip
        """Return the change that creates a missing row by raising one column."""
        delta, before = self._born(cells, stamp, now_ms, expires_at)
        column.add(delta, before, column.zero, value, BORN, stamp)
        return _ENCODE(delta)

    def _born(
        self, cells: Cells | None, stamp: Stamp, now_ms: int, expires_at: int
    ) -> tuple[Cells, Cells | None]:
        delta = self._blank[:]
        before = None
        if cells is not None:
            if cells[ALIVE] is not None:
                # All who see the expired row make the next on the same floor.
                delta[FLOOR] = packed((_end(cells), ""))
            else:
                delta[FLOOR] = cells[FLOOR]
                before = cells
        delta[BIRTH] = packed(stamp)
        delta[ALIVE] = BORN
        delta[EXPIRES] = expires_at
        return delta, before

    def replaced(self, cells: Cells, given: Given, stamp: Stamp, expires_at: int) -> bytes:
        """Return the change that sets a living row as a whole; what is not given becomes 0."""
        delta = self._begun(cells)
        delta[ALIVE] = packed(stamp)
        delta[EXPIRES] = expires_at
        values = {column.number: value for column, value in given}
        for column in self.columns:
            column.put(delta, cells, values.get(column.number, column.zero), LIFE, stamp)
        return _ENCODE(delta)

    def patched(self, cells: Cells, given: Given, stamp: Stamp) -> bytes:
        """Return the change that sets some columns of a living row."""
        delta = self._begun(cells)
        mark: Mark = packed(stamp)
        for column, value in given:
            column.put(delta, cells, value, mark, stamp)
        return _ENCODE(delta)

    def raised(self, cells: Cells, column: ClusterColumn, value: Any, stamp: Stamp) -> bytes:
        """Return the change that raises a column of a living row, to ``value`` as it is shown."""
        delta = self._begun(cells)
        column.add(delta, cells, column.value(cells), value, packed(stamp), stamp)
        return _ENCODE(delta)

    def expiring(self, cells: Cells, stamp: Stamp, expires_at: int) -> bytes:
        """Return the change that has a living row expire, at 0 never."""
        delta = self._begun(cells)
        delta[ALIVE] = packed(stamp)
        delta[EXPIRES] = expires_at
        return _ENCODE(delta)

    def deleted(self, stamp: Stamp) -> bytes:
        """Return the change that deletes a row: a tombstone."""
        delta = self._blank[:]
        delta[FLOOR] = packed(stamp)
        return _ENCODE(delta)

    def _begun(self, cells: Cells) -> Cells:
        delta = self._blank[:]
        delta[FLOOR] = cells[FLOOR]
        delta[BIRTH] = cells[BIRTH]
        return delta


def _stamp_of(mark: Any, cells: Cells) -> Any:
    """Return the stamp that represents this in a state; None stays None."""
    if mark.__class__ is int:
        return cells[BIRTH] if mark == BORN or cells[ALIVE] == BORN else cells[ALIVE]
    return mark


def _end(cells: Cells) -> int:
    """Return the end of a life that expires, as a reading.

    A time to live that was over when it was set ends by then: else the next life, which begins on
    this floor, could come before the one that it is after.
    """
    return max(hybrid(cells[EXPIRES]), _reading(_stamp_of(cells[ALIVE], cells)))


def _reading(stamp: bytes) -> int:
    return int.from_bytes(stamp[:8], "big")


def _ms_above(reading: int) -> int:
    """Return the first ms that does not come before a reading."""
    return -(-reading // hybrid(1))


def _picker(places: list[int]) -> Callable[[Cells], tuple[Any, ...]]:
    """Return what takes the cells at these places, as a tuple."""
    if len(places) > 1:
        return operator.itemgetter(*places)
    if not places:
        return lambda cells: ()
    (place,) = places
    return lambda cells: (cells[place],)


def _viewer(columns: tuple[ClusterColumn, ...], form: str, row: type[Row] | None = None) -> Any:
    """Return what makes a row's values of cells: one expression, as fast as a call is.

    ``form`` says what is made of them: a pair of braces, or one for each.
    """
    names: dict[str, Any] = {"_row": row}
    parts = []
    for n, column in enumerate(columns):
        if column.merge in ("last", "max"):
            names[f"zero{n}"] = column.zero
            parts.append(f"zero{n} if cells[{column.at}] is None else cells[{column.at}]")
        else:
            names[f"value{n}"] = column.value
            parts.append(f"value{n}(cells)")
    if row is None:
        parts = [", ".join(parts)]
    return eval(f"lambda cells: {form.format(*parts)}", names)


_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE: Callable[[bytes], Cells] = msgspec.msgpack.Decoder(list[Any]).decode
