"""The rules by which all nodes of a table join the states of its rows."""

from __future__ import annotations

from interlock import _core
from interlock.table.merge import rules_of
from interlock.table.row import Row
from interlock.table.schema import Schema

__all__ = ["TOMBSTONE_AGE", "state_rules"]

TOMBSTONE_AGE = 7 * 86_400.0
"""Seconds for which a deleted or expired row is remembered by default."""


def state_rules(row: type[Row], *, tombstone_age: float = TOMBSTONE_AGE) -> _core.StateRules:
    """Return the rules for the rows of a class.

    Args:
        row: the class of the table's rows.
        tombstone_age: seconds for which nodes remember a deleted or expired row. The same at all
            nodes, because it decides how states are joined. Default: 7 days.

    Raises:
        TypeError: ``row`` is not a class of rows, or a marker does not fit its column.
        ValueError: ``tombstone_age`` is not positive; a column cannot hold its default.
    """
    if not tombstone_age > 0:
        raise ValueError(
            f"state_rules(): tombstone_age is {tombstone_age!r}; allowed: more than 0 seconds"
        )
    age_ms = max(int(tombstone_age * 1000), 1)
    return _core.StateRules(f"{Schema.of(row)}; {', '.join(rules_of(row))}; {age_ms} ms")
