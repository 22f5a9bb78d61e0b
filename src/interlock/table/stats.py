"""The rows of a table by count, and what has come to pass in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Level", "Resized", "TableStats"]


@dataclass(frozen=True, slots=True)
class Level:
    """One of the four rows of buckets."""

    slots: int
    rows: int
    """Live rows in it."""


@dataclass(frozen=True, slots=True)
class TableStats:
    """The rows of a table, and what has come to pass in it since it was made, in all processes."""

    rows: int
    """Live rows."""
    slots: int
    capacity: int
    """Rows that it surely holds."""
    levels: tuple[Level, ...]
    highest_level: int
    """The last of the four rows of buckets that holds a row, from 1; 0 in an empty table."""
    expired: int
    """Rows that have expired and whose slot nobody has needed yet."""
    moves: int
    """Rows that made room for another by moving."""
    overwritten_expired: int
    """Expired rows whose slot another key got."""
    overwritten: int
    """Live rows that were overwritten, for the table was full."""
    retries: int
    """Reads that were made again, for a write came between."""
    recovered: int
    """Writers that died within a write, which others finished or undid."""
    held: int
    """Slots and buckets that a writer holds just now."""
    writers: int
    """Threads that have written and live."""
    bytes: int
    """The memory of the table."""
    slot_bytes: int
    """The memory of a slot, with its tag."""

    @classmethod
    def of(cls, capacity: int, counts: dict[str, Any]) -> TableStats:
        """Return the statistics of what the native table counts."""
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
    """Fate of the rows of a table that was resized."""

    moved: int
    """Rows that are in it."""
    expired: int
    """Rows that had expired, and are gone."""
    dropped: int
    """Live rows for which there was no room: those that were accessed longest ago."""
