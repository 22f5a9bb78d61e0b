"""Rows with merge kinds, and a time of day, for tests of states."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated

from interlock import F32, I8, U8, U16, U32, U64, Flags, Last, Max, Row, Size, Sum
from tests.cluster.naive.stamps import HybridClock

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


class Time:
    """A time of day that the test moves."""

    def __init__(self, ms: int = 1_700_000_000_000) -> None:
        self.ms = ms

    def clock(self, dc: str, ahead: int = 0) -> HybridClock:
        """A clock that follows it, this many ms ahead."""
        source: Callable[[], int] = lambda: self.ms + ahead  # noqa: E731
        return HybridClock(dc, source)
