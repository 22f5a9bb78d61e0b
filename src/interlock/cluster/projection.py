"""Projection: rows of states in a table of this machine's shared memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from interlock.cluster.state import TableRules
from interlock.errors import TableFull
from interlock.table.table import SharedTable

__all__ = ["Projection"]


class Projection:
    """Writes states into a table, which then has the rows that the states show.

    A state that shows no row deletes the table's. The same state again leaves the row as it is.
    Where the table is full, it is resized to twice as many rows.

    Args:
        table: of the rows that ``rules`` are of. ``on_full="raise"``, or a full table drops rows.
        rules: those of its cluster.
    """

    def __init__(self, table: SharedTable[Any], rules: TableRules) -> None:
        self.table = table
        self.rules = rules
        self._plain = table.default_ttl is None

    def put(self, key: bytes, state: bytes, now_ms: int) -> None:
        """Write one state.

        Args:
            key: the row's key.
            state: what the node has of it.
            now_ms: the time, in ms since 1970.

        Raises:
            RowBusy: the row is held by a process that lives and does not go on.
            OSError: the table is full, and there is no room for a larger one.
        """
        row, expires = self.rules.row_and_expiry(state, now_ms)
        if row is None:
            self.table.pop(key, None)
            return
        while True:
            try:
                if expires or not self._plain:
                    self.table.set(key, row, ttl=_left(expires, now_ms))
                else:
                    self.table[key] = row
                return
            except TableFull:
                self._grow()

    def put_many(self, states: Iterable[tuple[bytes, bytes]], now_ms: int) -> None:
        """Write many states, as ``put`` does each.

        Raises:
            RowBusy, OSError: as of ``put``; those before are written.
        """
        for key, state in states:
            self.put(key, state, now_ms)

    def clear_others(self, states: Mapping[bytes, bytes], now_ms: int) -> None:
        """Delete rows of the table that these states do not show."""
        rules = self.rules
        for key in list(self.table):
            name = key if isinstance(key, bytes) else str(key).encode()
            state = states.get(name)
            if state is None or not rules.is_alive(rules.cells(state), now_ms):
                self.table.pop(name, None)

    def _grow(self) -> None:
        # A small table may hold more rows than it is surely good for.
        self.table.resize(max(self.table.capacity, len(self.table)) * 2)


def _left(expires: int, now_ms: int) -> float:
    return (expires - now_ms) / 1000 if expires else math.inf
