"""The naive rules of a table by their text."""

from __future__ import annotations

from typing import Annotated, Any

from interlock.table.kinds import Number
from interlock.table.merge import Flags, Last, Max, Merge, Sum
from interlock.table.row import Row, RowType, Size
from interlock.table.schema import Column, Schema
from tests.cluster.naive.state import TableRules


def rules_by(fingerprint: str) -> TableRules:
    """Return the rules of a table by what its nodes say of them; ValueError if it is not valid."""
    schema, kinds, age = fingerprint.rsplit("; ", 2)
    columns = Schema.parse(schema).columns
    merges = kinds.split(", ")
    number, _, unit = age.partition(" ")
    if len(merges) != len(columns) or unit != "ms" or not number.isdecimal():
        raise ValueError(f"{fingerprint!r} says no rules of a table")
    hints = {column.name: _hint(column, kind) for column, kind in zip(columns, merges, strict=True)}
    made: Any = RowType("Row", (Row,), {"__annotations__": hints})
    return TableRules(made, tombstone_age=int(number) / 1000)


def _hint(column: Column, kind: str) -> Any:
    marker = _MARKERS.get(kind)
    if marker is None:
        raise ValueError(f"there is no merge kind {kind!r}; there are {', '.join(_MARKERS)}")
    if column.kind == "bool":
        return Annotated[bool, marker]
    if column.kind in ("str", "bytes"):
        return Annotated[str if column.kind == "str" else bytes, Size(column.size), marker]
    base = float if column.kind.startswith("F") else int
    return Annotated[base, Number(column.kind), marker]  # type: ignore[arg-type]


_MARKERS: dict[str, type[Merge]] = {one.kind: one for one in (Last, Sum, Max, Flags)}
