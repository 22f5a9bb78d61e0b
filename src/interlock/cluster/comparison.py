"""Comparison of the rows of two nodes.

While clients write, two nodes never hold the same rows at the same moment. So a row differs only if
a node still lacks later what the other had before: joining that state changes its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from interlock._core import StateRules
from interlock.table.schema import Schema

States = Mapping[bytes, bytes]
ABSENT = "absent"


@dataclass(frozen=True)
class Difference:
    """One row that differs."""

    key: bytes
    columns: dict[str, tuple[Any, Any]]
    """The values of both in the columns that differ, and ``_expires`` in ms since 1970. Empty if
    only stamps differ."""
    absent: int | None = None
    """Index of the node without the row, 0 or 1."""


def suspects(first: States, second: States) -> set[bytes]:
    """Return the keys whose states differ in any byte."""
    found = {key for key, state in first.items() if second.get(key) != state}
    found.update(key for key in second if key not in first)
    return found


def differences(
    rules: StateRules,
    before: tuple[States, States],
    after: tuple[States, States],
    now_ms: int,
) -> Iterator[Difference]:
    """Yield the rows that differ, by their keys.

    Args:
        before: states of both nodes.
        after: their states once each should have what the other had before.
        now_ms: the time, in ms since 1970.
    """
    for key in sorted(suspects(*before) & suspects(*after)):
        mine, theirs = after[0].get(key), after[1].get(key)
        if _has(rules, mine, before[1].get(key), now_ms) and _has(
            rules, theirs, before[0].get(key), now_ms
        ):
            continue
        yield _difference(rules, key, mine, theirs, now_ms)


def _has(rules: StateRules, state: bytes | None, other: bytes | None, now_ms: int) -> bool:
    """Return whether a state includes all changes of another."""
    if other is None:
        return True
    if state is None:
        # Nodes forget deleted rows at different times.
        return rules.shown(other, now_ms)[0] is None
    return rules.join(state, other) is state


def _difference(
    rules: StateRules, key: bytes, mine: bytes | None, theirs: bytes | None, now_ms: int
) -> Difference:
    names = Schema.parse(rules.schema).names
    gone = None, 0, 0, 0
    ours, expires, *_ = gone if mine is None else rules.shown(mine, now_ms)
    others, expires_there, *_ = gone if theirs is None else rules.shown(theirs, now_ms)
    if ours is None or others is None:
        if ours is others:
            return Difference(key, {})
        present: dict[str, tuple[Any, Any]] = {
            name: (ABSENT, value) if ours is None else (value, ABSENT)
            for name, value in zip(names, (others if ours is None else ours) or (), strict=True)
        }
        return Difference(key, present, 0 if ours is None else 1)
    columns: dict[str, tuple[Any, Any]] = {
        name: (one, other)
        for name, one, other in zip(names, ours, others, strict=True)
        if one != other and (one == one or other == other)
    }
    if expires != expires_there:
        columns["_expires"] = expires, expires_there
    return Difference(key, columns)
