"""Merge kinds: markers that say how two concurrent changes of a column are merged."""

from __future__ import annotations

import typing
from typing import Annotated, Any, ClassVar, Literal

from interlock.table.kinds import KINDS, NUMBERS, UNSIGNED, ranges
from interlock.table.row import Row
from interlock.table.schema import Schema

__all__ = ["Flags", "Last", "Max", "Merge", "MergeKind", "Sum", "rules_of"]

MergeKind = Literal["last", "sum", "max", "flags"]


class Merge:
    """The base of the markers ``Last``, ``Sum``, ``Max`` and ``Flags``.

    A marker goes in a column's annotation: ``unread: Annotated[U32, Sum]``. Only the nodes of a
    cluster use it: a table's memory is the same with and without it.
    """

    kind: ClassVar[MergeKind]
    allowed: ClassVar[str]


class Last(Merge):
    """Marks a column that keeps the value last set; the default for a column without a marker.

    Of two concurrent changes, the later by the hybrid logical clock wins; at the same moment, the
    one of the data centre whose name sorts last.
    """

    kind = "last"
    allowed = "every type"


class Sum(Merge):
    """Marks a number whose concurrent increments add up: ``unread: Annotated[U32, Sum]``.

    An increment of each data centre counts once. Setting the column replaces the value; increments
    made elsewhere at the same time are added to it. A sum beyond the column's range is shown as the
    end of the range, and kept in full.
    """

    kind = "sum"
    allowed = f"{ranges(NUMBERS)}, float"


class Max(Merge):
    """Marks a number that keeps its greatest value: ``last_seen: Annotated[U64, Max]``.

    It never falls while the row lives: setting a smaller value changes nothing.
    """

    kind = "max"
    allowed = f"{ranges(NUMBERS)}, float, bool"


class Flags(Merge):
    """Marks an unsigned int whose bits are flags: ``devices: Annotated[U16, Flags]``.

    Bits that different data centres set and clear at the same time do not undo each other; if one
    data centre sets a bit while another clears it, the bit is set.
    """

    kind = "flags"
    allowed = ", ".join(UNSIGNED)


def rules_of(row: type[Row]) -> tuple[MergeKind, ...]:
    """Return the merge kind of each column of a row's class, in their order.

    Raises:
        TypeError: not a class of rows, or a marker does not fit its column.
        ValueError: a column cannot hold its default.
    """
    schema = Schema.of(row)
    hints = typing.get_type_hints(row, include_extras=True)
    return tuple(
        _rule(row, column.name, column.kind, hints[column.name]) for column in schema.columns
    )


def _rule(row: type[Row], name: str, kind: str, hint: Any) -> MergeKind:
    extras = typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ()
    found = [marker for extra in extras if (marker := _marker(extra)) is not None]
    if len(found) > 1:
        names = ", ".join(marker.__name__ for marker in found)
        raise TypeError(f"{row.__qualname__}.{name} has several merge kinds: {names}; allowed: one")
    marker = found[0] if found else Last
    if kind not in _KINDS[marker.kind]:
        raise TypeError(
            f"{row.__qualname__}.{name} is {kind}, and marked {marker.__name__}, which is for "
            f"{marker.allowed}"
        )
    return marker.kind


def _marker(extra: Any) -> type[Merge] | None:
    """Return this marker; `Sum()` is taken as `Sum`."""
    if isinstance(extra, Merge):
        return type(extra)
    return extra if isinstance(extra, type) and issubclass(extra, Merge) else None


_KINDS: dict[MergeKind, set[str]] = {
    "last": set(KINDS),
    "sum": set(NUMBERS),
    "max": {*NUMBERS, "bool"},
    "flags": set(UNSIGNED),
}
