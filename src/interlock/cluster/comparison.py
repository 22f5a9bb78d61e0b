"""Comparison of the rows of two nodes: which differ, in what, and which are only on their way.

While clients write, two nodes are never alike. A row differs when a node lacks, later on, what the
other had before: to join that with what it has changes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from interlock.cluster.state import TableRules
from interlock.table.merge import Flags, Last, Max, Merge, Sum
from interlock.table.row import Number, Row, RowType, Size
from interlock.table.schema import Column, Schema

States = Mapping[bytes, bytes]
ABSENT = "absent"


@dataclass(frozen=True)
class Difference:
    """One row that differs."""

    key: bytes
    columns: dict[str, tuple[Any, Any]]
    """The values of both in the columns that differ; ``_expires`` is among them, in ms since 1970.
    Empty: the rows are alike, and what stands behind them is not, such as a stamp."""
    absent: int | None = None
    """The one of the two that has no row, 0 or 1."""


def suspects(first: States, second: States) -> set[bytes]:
    """Return the keys whose states are not the same bytes."""
    found = {key for key, state in first.items() if second.get(key) != state}
    found.update(key for key in second if key not in first)
    return found


def differences(
    rules: TableRules,
    before: tuple[States, States],
    after: tuple[States, States],
    now_ms: int,
) -> Iterator[Difference]:
    """Yield the rows that differ, by their keys.

    Args:
        before: states of both nodes.
        after: the same at a time by which each should have what the other had before.
        now_ms: the time, in ms since 1970.
    """
    for key in sorted(suspects(*before) & suspects(*after)):
        mine, theirs = after[0].get(key), after[1].get(key)
        if _has(rules, mine, before[1].get(key), now_ms) and _has(
            rules, theirs, before[0].get(key), now_ms
        ):
            continue
        yield _difference(rules, key, mine, theirs, now_ms)


def _has(rules: TableRules, state: bytes | None, other: bytes | None, now_ms: int) -> bool:
    """Return whether a state has all that another had."""
    if other is None:
        return True
    if state is None:
        # What is gone is forgotten by one node sooner than by another.
        return rules.values(other, now_ms) is None
    return rules.join(state, other) is state


def _difference(
    rules: TableRules, key: bytes, mine: bytes | None, theirs: bytes | None, now_ms: int
) -> Difference:
    shown = [None if state is None else rules.values(state, now_ms) for state in (mine, theirs)]
    ours, others = shown
    if ours is None or others is None:
        if ours is others:
            return Difference(key, {})
        there = rules.schema.names, (others if ours is None else ours) or ()
        present: dict[str, tuple[Any, Any]] = {
            name: (ABSENT, value) if ours is None else (value, ABSENT)
            for name, value in zip(*there, strict=True)
        }
        return Difference(key, present, 0 if ours is None else 1)
    columns: dict[str, tuple[Any, Any]] = {
        name: (one, other)
        for name, one, other in zip(rules.schema.names, ours, others, strict=True)
        if one != other and (one == one or other == other)
    }
    assert mine is not None
    assert theirs is not None
    expiries = rules.expires_at(mine), rules.expires_at(theirs)
    if expiries[0] != expiries[1]:
        columns["_expires"] = expiries
    return Difference(key, columns)


def rules_by(fingerprint: str) -> TableRules:
    """Return the rules of a table by what its nodes say of them; ValueError if that is none."""
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
