"""One node's states with their table, without a cluster around it; and rows with merge kinds."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated, Any

from interlock import F32, I8, U8, U16, U32, U64, Flags, Last, Max, Row, SharedTable, Size, Sum
from interlock.cluster.commands import Commands
from interlock.cluster.projection import Projection
from interlock.cluster.stamps import HybridClock
from interlock.cluster.state import TableRules

OPERATIONS = int(os.environ.get("INTERLOCK_CLUSTER_OPS", "1"))
"""By how much random histories are more or longer than in a usual run."""


class Merged(Row):
    """A row of all merge kinds."""

    name: Annotated[str, Size(8)] = ""
    state: Annotated[U8, Last] = 0
    unread: Annotated[U32, Sum] = 0
    balance: Annotated[I8, Sum] = 0
    score: Annotated[float, Sum] = 0.0
    seen: Annotated[U64, Max] = 0
    peak: Annotated[F32, Max] = 0.0
    devices: Annotated[U16, Flags] = 0


class Kept:
    """States as a node keeps them, and a table that shows them."""

    def __init__(
        self,
        table: SharedTable[Any],
        *,
        name: str,
        clock: HybridClock,
        default_ttl_ms: int | None = None,
    ) -> None:
        self.table = table
        self.clock = clock
        self.rules = TableRules.of(table.row)
        self.commands = Commands(
            self.rules, table_name=name, key_size=table.key_size, default_ttl_ms=default_ttl_ms
        )
        self.projection = Projection(table, self.rules)
        self.states: dict[bytes, bytes] = {}

    def run(self, *arguments: bytes | str | int, now_ms: int, resp3: bool = False) -> bytes:
        """Do a command, have its changes applied as from the stream, and return the reply."""
        words = [word if isinstance(word, bytes) else str(word).encode() for word in arguments]
        reply, changes, _ = self.commands.run(words, resp3, self.states.get, self.clock, now_ms)
        for key, delta in changes:
            self.states[key] = self.rules.join(self.states.get(key), delta)
            self.projection.put(key, self.states[key], now_ms)
        return reply


class Time:
    """A time of day that moves when it is told."""

    def __init__(self, ms: int = 1_700_000_000_000) -> None:
        self.ms = ms

    def clock(self, dc: str, ahead: int = 0) -> HybridClock:
        """A clock that goes by it, so many ms ahead."""
        source: Callable[[], int] = lambda: self.ms + ahead  # noqa: E731
        return HybridClock(dc, source)
