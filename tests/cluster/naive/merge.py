"""Columns as states keep them: for each merge kind how it is set, raised, joined and shown.

A state is a flat list, of which each column has some cells: a *register* has a value and the stamp
at which it was set, of two the later is left. Cells that were never set are None. A small number
may represent a stamp: ``BORN`` for the stamp of the row's creation, ``LIFE`` for that of its time
to live; so a row that was set as a whole has no stamp beside those."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, ClassVar, cast

from interlock.table.merge import MergeKind
from interlock.table.schema import Column as Declared
from tests.cluster.naive.stamps import Stamp

__all__ = ["BORN", "LIFE", "ClusterColumn", "Mark", "columns_of"]

TERM = "."
"""Between a data centre and a term in a writer's name."""
FEW_TERMS = 8
"""Writers that a sum may have before the older terms are put together."""
# Neither is 0: cells that were never set are false, and skipped.
BORN = 1
LIFE = 2
Mark = int | bytes
"""A stamp in a state: packed, or the number of one that stands elsewhere in it."""
Cells = list[Any]


class ClusterColumn:
    """A column that is what it was last set to; the base of the other merge kinds."""

    merge: ClassVar[MergeKind] = "last"
    width = 2
    is_register = True

    def __init__(self, number: int, declared: Declared, at: int) -> None:
        self.number = number
        self.name = declared.name
        self.kind = declared.kind
        self.size = declared.size
        self.at = at
        self.zero = _zero(declared.kind)
        self.range = _range(declared.kind)
        """The least and the greatest of an int column; None of others."""

    @property
    def is_float(self) -> bool:
        """True if it is a column of floats."""
        return self.kind[0] == "F"

    def value(self, cells: Cells) -> Any:
        """Return the value as the table has it."""
        value = cells[self.at]
        return self.zero if value is None else value

    def put(self, delta: Cells, before: Cells | None, value: Any, mark: Mark, stamp: Stamp) -> None:
        """Note in a change that the column was set.

        Args:
            delta: the cells of the change.
            before: those of the row in the same life, as it is before. None: nothing.
            value: one that the column can hold.
            mark: the stamp of the change, as a state keeps it.
            stamp: the same, as it is.
        """
        delta[self.at] = value
        delta[self.at + 1] = mark

    def add(
        self, delta: Cells, before: Cells | None, shown: Any, value: Any, mark: Mark, stamp: Stamp
    ) -> None:
        """Note in a change that the column was raised from ``shown`` to ``value``.

        The other arguments are as of ``put``. A missing row shows zero, whatever ``before`` has of
        it."""
        self.put(delta, before, value, mark, stamp)

    def join(self, ours: Any, theirs: Any) -> Any:
        """Return what two of the column's own cells are together; neither is None."""
        raise NotImplementedError

    @property
    def joined_at(self) -> int | None:
        """The cell that ``join`` is for; None where the register is all."""
        return None


class SumColumn(ClusterColumn):
    """A register with what the column was set to, and what each writer has added since ever.

    The register holds the value less what was added by then, so nothing is subtracted twice. A
    writer is a primary's term in a data centre (``DC.TERM``): a primary that did not see the last
    of the one before must not count on in its place. The oldest terms of a data centre are put
    together under its bare name, with the last of them in place of a stamp.
    """

    merge = "sum"
    width = 3

    def value(self, cells: Cells) -> Any:
        """Return the sum, or the end of the column's range that it is beyond."""
        least, most = cast("tuple[int, int]", self.range)
        return min(max(self._sum(cells), least), most)

    def _sum(self, cells: Cells | None) -> int:
        if cells is None:
            return 0
        base, totals = cells[self.at], cells[self.at + 2]
        found = 0 if base is None else int(base)
        return found if totals is None else found + sum(map(int, totals[1::3]))

    def put(self, delta: Cells, before: Cells | None, value: Any, mark: Mark, stamp: Stamp) -> None:
        """Note that the column was set: what is added elsewhere meanwhile comes on top."""
        totals = None if before is None else before[self.at + 2]
        added = 0 if totals is None else sum(map(int, totals[1::3]))
        delta[self.at] = _kept(value - added)
        delta[self.at + 1] = mark

    def add(
        self, delta: Cells, before: Cells | None, shown: Any, value: Any, mark: Mark, stamp: Stamp
    ) -> None:
        """Note what this writer has added in all."""
        totals = None if before is None else before[self.at + 2]
        writer = _writer(stamp)
        own = int(_total_of(totals, writer))
        found = [writer, _kept(own + value - shown), stamp[0]]
        if totals is not None and len(totals) > 3 * FEW_TERMS:
            found = self.join(found, _together(totals, writer))
        delta[self.at + 2] = found

    def join(self, ours: Any, theirs: Any) -> Any:
        """Return of each writer its later total."""
        if len(ours) == len(theirs) == 3 and ours[0] == theirs[0]:
            return theirs if _is_later(theirs, ours) else ours
        totals = {ours[at]: ours[at : at + 3] for at in range(0, len(ours), 3)}
        for at in range(0, len(theirs), 3):
            writer, entry = theirs[at], theirs[at : at + 3]
            if writer not in totals or _is_later(entry, totals[writer]):
                totals[writer] = entry
        for writer in [writer for writer in totals if TERM in writer]:
            dc, _, term = writer.partition(TERM)
            if dc in totals and int(term, 36) <= totals[dc][2]:
                del totals[writer]
        return [part for writer in sorted(totals) for part in totals[writer]]

    @property
    def joined_at(self) -> int | None:
        """The cell of the totals."""
        return self.at + 2


class FloatSumColumn(SumColumn):
    """The same for floats, whose differences are not exact.

    The register holds the value, and behind it of each data centre what it had added by then: so a
    column is what it was set to, however large the totals are.
    """

    def value(self, cells: Cells) -> Any:
        """Return the sum; beyond F32 the greatest or least of it."""
        found = self._float_sum(cells)
        return _narrowed(found) if self.kind == "F32" else found

    def _float_sum(self, cells: Cells) -> float:
        base, totals = cells[self.at], cells[self.at + 2]
        found = 0.0 if base is None else base[0]
        if totals is not None:
            for at in range(0, len(totals), 3):
                dc, total = totals[at], totals[at + 1]
                added = total - (0.0 if base is None else _observed(base, dc))
                # inf minus inf is not a number, and nothing was added.
                found += 0.0 if math.isnan(added) and not math.isnan(total) else added
        return float(found)

    def put(self, delta: Cells, before: Cells | None, value: Any, mark: Mark, stamp: Stamp) -> None:
        """Note that the column was set, and what was added by then."""
        totals = (None if before is None else before[self.at + 2]) or []
        parts = [(totals[at], totals[at + 1]) for at in range(0, len(totals), 3)]
        delta[self.at] = [value, *(part for pair in parts for part in pair)]
        delta[self.at + 1] = mark

    def add(
        self, delta: Cells, before: Cells | None, shown: Any, value: Any, mark: Mark, stamp: Stamp
    ) -> None:
        """Note what this writer has added in all; floats of older terms are not put together.

        Nothing could be added to a total that is not a number: then the column is set.
        """
        totals = None if before is None else before[self.at + 2]
        writer = _writer(stamp)
        total = float(_total_of(totals, writer)) + (value - shown)
        if not math.isfinite(total):
            self.put(delta, before, value, mark, stamp)
            return
        delta[self.at + 2] = [writer, total, stamp[0]]


class MaxColumn(ClusterColumn):
    """The greatest value that the column was set to; a nan is less than all numbers."""

    merge = "max"
    width = 1
    is_register = False

    def put(self, delta: Cells, before: Cells | None, value: Any, mark: Mark, stamp: Stamp) -> None:
        """Note a value; whether it is the greatest the join will say."""
        delta[self.at] = value

    def join(self, ours: Any, theirs: Any) -> Any:
        """Return the greater of two."""
        if self.is_float:
            return theirs if _in_order(theirs) > _in_order(ours) else ours
        return theirs if theirs > ours else ours

    @property
    def joined_at(self) -> int | None:
        """The cell of the value."""
        return self.at


class FlagsColumn(ClusterColumn):
    """Bits, each set or cleared; of what happens at once to one of them, set is left.

    The cell lists ``dc, code, bits``: when that data centre last set these bits, twice the reading
    of its clock, plus one if they were cleared since by a writer that had seen them set. A bit is
    on while one data centre has it set.
    """

    merge = "flags"
    width = 1
    is_register = False

    def value(self, cells: Cells) -> Any:
        """Return the bits that are on."""
        return _bits_on(cells[self.at])

    def put(self, delta: Cells, before: Cells | None, value: Any, mark: Mark, stamp: Stamp) -> None:
        """Note that the bits of ``value`` are set, and the others cleared."""
        self._change(delta, before, value, stamp, asserted=value)

    def add(
        self, delta: Cells, before: Cells | None, shown: Any, value: Any, mark: Mark, stamp: Stamp
    ) -> None:
        """Note the bits that change."""
        self._change(delta, before, value | ~shown, stamp, asserted=value & ~shown)

    def _change(
        self, delta: Cells, before: Cells | None, kept: int, stamp: Stamp, asserted: int
    ) -> None:
        entries = (None if before is None else before[self.at]) or []
        # The bits that this data centre had set and now clears differ from those that it sets.
        found = [stamp[1], stamp[0] << 1, asserted] if asserted else []
        for at in range(0, len(entries), 3):
            cleared = entries[at + 2] & ~kept
            if cleared and not entries[at + 1] & 1:
                found += [entries[at], entries[at + 1] | 1, cleared]
        if found:
            delta[self.at] = self.join(found, [])

    def join(self, ours: Any, theirs: Any) -> Any:
        """Return of each data centre and bit the later."""
        entries: dict[str, list[tuple[int, int]]] = {}
        for cell in (ours, theirs):
            for at in range(0, len(cell), 3):
                entries.setdefault(cell[at], []).append((cell[at + 1], cell[at + 2]))
        joined: list[Any] = []
        for dc in sorted(entries):
            taken = 0
            by_code: dict[int, int] = {}
            for code, bits in sorted(entries[dc], reverse=True):
                if bits & ~taken:
                    by_code[code] = by_code.get(code, 0) | bits & ~taken
                    taken |= bits
            for code, bits in by_code.items():
                joined += [dc, code, bits]
        return joined

    @property
    def joined_at(self) -> int | None:
        """The cell of all of it."""
        return self.at


def columns_of(
    declared: Sequence[Declared], rules: Sequence[MergeKind], at: int
) -> tuple[ClusterColumn, ...]:
    """Return the columns of a state, whose cells begin at ``at``."""
    columns: list[ClusterColumn] = []
    for number, (column, rule) in enumerate(zip(declared, rules, strict=True)):
        kind = _CLASSES[rule]
        if kind is SumColumn and column.kind[0] == "F":
            kind = FloatSumColumn
        columns.append(kind(number, column, at))
        at += kind.width
    return tuple(columns)


def _writer(stamp: Stamp) -> str:
    """Return who adds: the bare name of a data centre is for its old terms, put together."""
    return stamp[1] if TERM in stamp[1] else f"{stamp[1]}{TERM}0"


def _is_later(entry: list[Any], than: list[Any]) -> bool:
    # Of two that put the same terms together one is left, whichever comes first.
    later: bool = entry[2] > than[2] or (entry[2] == than[2] and repr(entry[1]) > repr(than[1]))
    return later


def _together(totals: list[Any], writer: str) -> list[Any]:
    """Return the older terms of a writer's data centre as one, but for the last of them."""
    dc, _, _ = writer.partition(TERM)
    terms = sorted(
        (int(name.partition(TERM)[2], 36), totals[at * 3 + 1])
        for at, name in enumerate(totals[::3])
        if name != writer and name.startswith(dc + TERM)
    )
    older = terms[:-1]
    if not older:
        return []
    total = int(_total_of(totals, dc)) + sum(int(added) for _, added in older)
    return [dc, _kept(total), older[-1][0]]


def _bits_on(entries: Any) -> int:
    found = 0
    if entries is not None:
        for at in range(0, len(entries), 3):
            if not entries[at + 1] & 1:
                found |= entries[at + 2]
    return found


def _total_of(totals: Any, dc: str) -> Any:
    return 0 if totals is None or dc not in totals[::3] else totals[totals[::3].index(dc) * 3 + 1]


def _observed(base: list[Any], dc: str) -> float:
    """Return what a data centre had added when the column was set."""
    for at in range(1, len(base), 2):
        if base[at] == dc:
            return float(base[at + 1])
    return 0.0


def _kept(number: int) -> int | str:
    """Return a number as a state keeps it: as text where it has more than 64 bits."""
    return number if -(2**63) <= number < 2**64 else str(number)


def _narrowed(number: float) -> float:
    try:
        narrow: float = _F32.unpack(_F32.pack(number))[0]
    except OverflowError:
        narrow = math.copysign(_F32_MOST, number)
    return narrow


def _in_order(number: float) -> tuple[bool, float, float]:
    """Return a form in which floats have one order; -0.0 comes before 0.0, a nan before all."""
    is_number = not math.isnan(number)
    return is_number, number if is_number else 0.0, math.copysign(1.0, number)


def _zero(kind: str) -> Any:
    return {"bool": False, "str": "", "bytes": b"", "F32": 0.0, "F64": 0.0}.get(kind, 0)


def _range(kind: str) -> tuple[int, int] | None:
    if kind[0] not in "UI":
        return None
    bits = int(kind[1:])
    return (0, 2**bits - 1) if kind[0] == "U" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


_CLASSES: dict[MergeKind, type[ClusterColumn]] = {
    "last": ClusterColumn,
    "sum": SumColumn,
    "max": MaxColumn,
    "flags": FlagsColumn,
}
_F32 = struct.Struct("<f")
_F32_MOST = 3.4028234663852886e38
