"""Layouts: how states were laid out when they were written, so that another row's class reads them.

A state has its columns' cells one behind the other. The database keeps the text of each layout that
any of its states has; a state of another one is laid out anew by the names of the columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from interlock.cluster.merge import columns_of
from interlock.cluster.state import FIRST, TableRules
from interlock.table.schema import Schema

_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE: Callable[[bytes], list[Any]] = msgspec.msgpack.Decoder(list[Any]).decode


def layout_of(rules: TableRules) -> str:
    """Return the text of the layout of a table's states: its columns, then how each merges."""
    kinds = ", ".join(column.merge for column in rules.columns)
    return f"{rules.schema}; {kinds}"


def conversion(layout: str, rules: TableRules) -> Callable[[bytes], bytes] | None:
    """Return what lays a state of a layout out as the rules have it; None: it is so already.

    A column that is new, or that merges otherwise now, is as if nobody had set it. One that is
    gone is left out.
    """
    if layout == layout_of(rules):
        return None
    columns, _, kinds = layout.partition("; ")
    merges: Any = tuple(kinds.split(", "))
    before = {one.name: one for one in columns_of(Schema.parse(columns).columns, merges, FIRST)}
    moves = [
        (old.at, old.width, new.width)
        if (old := before.get(new.name)) is not None and _same(old, new)
        else (0, 0, new.width)
        for new in rules.columns
    ]

    def converted(state: bytes) -> bytes:
        cells = _DECODE(state)
        found = cells[:FIRST]
        for at, width, wanted in moves:
            found += cells[at : at + width] if width else [None] * wanted
        return _ENCODE(found)

    return converted


def _same(old: Any, new: Any) -> bool:
    """Return whether the cells of one column are those of the other."""
    return bool(old.merge == new.merge and old.kind[0] == new.kind[0] and old.width == new.width)
