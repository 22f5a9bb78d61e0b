"""Counts of a table's rows, and of the events in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Level", "Resized", "TableStats"]


@dataclass(frozen=True, slots=True)
class Level:
    """One of the four rows of buckets."""

    slots: int
    rows: int
    """Live rows in this row of buckets."""


@dataclass(frozen=True, slots=True)
class TableStats:
    """Counts of a table's rows, and of the events since it was created, in all processes."""

    rows: int
    """Live rows."""
    slots: int
    capacity: int
    """Rows that are guaranteed to fit."""
    levels: tuple[Level, ...]
    highest_level: int
    """Last of the four rows of buckets that holds a row, from 1; 0 in an empty table."""
    expired: int
    """Expired rows whose slot has not been reused yet."""
    moves: int
    """Rows that moved to make room for another."""
    overwritten_expired: int
    """Expired rows whose slot another key took."""
    overwritten: int
    """Live rows that were overwritten because the table was full."""
    retries: int
    """Reads that were repeated because a write came between."""
    recovered: int
    """Writers that died during a write; other processes completed or undid the write."""
    held: int
    """Slots and buckets that a writer holds right now."""
    writers: int
    """Live threads that have written."""
    bytes: int
    """Memory of the table, in bytes."""
    slot_bytes: int
    """Memory of a slot, with its tag, in bytes."""

    @classmethod
    def of(cls, capacity: int, counts: dict[str, Any]) -> TableStats:
        """Return the statistics from the native table's counts."""
        levels = tuple(Level(*level) for level in counts.pop("levels"))
        used = [number for number, level in enumerate(levels, 1) if level.rows]
        return cls(
            rows=sum(level.rows for level in levels),
            slots=sum(level.slots for level in levels),
            capacity=capacity,
            levels=levels,
            highest_level=max(used, default=0),
            **counts,
        )


@dataclass(frozen=True, slots=True)
class Resized:
    """Fate of the rows of a resized table."""

    moved: int
    """Rows in the resized table."""
    expired: int
    """Rows that had expired and were dropped."""
    dropped: int
    """Live rows that did not fit: the least recently accessed ones."""
