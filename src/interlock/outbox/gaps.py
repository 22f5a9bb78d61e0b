"""The relay's position in the order of commits, and the gaps behind it.

A number is drawn while its transaction commits, so a lower one may become visible after a higher
one. Such a gap is watched until every transaction that could fill it has ended, as snapshots
show it: no waiting time is involved. An unrelated transaction that stays open costs nothing,
because gaps are read again only when one of the transactions that may own them ends.

This is about order too: a transaction that waited for another, or saw its changes, draws its number
after that one has become visible to every later snapshot. So the rows of one snapshot, in the order
of their numbers, never lack an earlier row on which a later one depends. Therefore gaps and new
rows must be read in one statement.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Gaps", "Snapshot"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The transactions that had not ended at one time, as pg_current_snapshot() says it."""

    low: int
    """All transactions below it had ended."""
    high: int
    """No transaction from it on had ended."""
    running: frozenset[int]
    """Those between that had not ended."""

    @classmethod
    def parse(cls, text: str) -> Snapshot:
        """Return it from the form ``low:high:running,…``."""
        low, high, running = text.split(":")
        return cls(int(low), int(high), frozenset(map(int, running.split(","))) if running
                   else frozenset())  # fmt: skip

    def open(self, owners: Owners) -> Owners:
        """Return which of these transactions had not ended."""
        still = frozenset(
            one for one in owners.known if one in self.running or one >= self.high
        )  # fmt: skip
        first = max(owners.first, self.high)
        if owners.first < self.high:
            passed = (one for one in self.running if owners.first <= one < owners.end)
            still = still.union(passed)
        return Owners(still, min(first, owners.end), owners.end)


@dataclass(frozen=True, slots=True)
class Owners:
    """Transactions that may own the numbers of a gap: some by their numbers, and a range of those
    that a snapshot could not list because none of them had ended."""

    known: frozenset[int]
    first: int
    end: int

    def __bool__(self) -> bool:
        return bool(self.known) or self.first < self.end


@dataclass(slots=True)
class Watched:
    """Gaps that were found in one snapshot."""

    ranges: list[tuple[int, int]]
    owners: Owners


class Gaps:
    """The highest number that was read, and the gaps below it."""

    def __init__(self) -> None:
        self.mark = 0
        self._watched: list[Watched] = []

    @property
    def count(self) -> int:
        """The number of gaps that may still be filled."""
        return sum(len(each.ranges) for each in self._watched)

    def due(self, snapshot: Snapshot) -> bool:
        """Return whether a transaction that may own a gap has ended since the gap was last read."""
        return any(snapshot.open(each.owners) != each.owners for each in self._watched)

    def ranges(self) -> tuple[list[int], list[int]]:
        """Return the first and the last numbers of the gaps, for a statement that reads them."""
        found = [one for each in self._watched for one in each.ranges]
        return [low for low, _ in found], [high for _, high in found]

    def read(
        self, numbers: Iterable[int], snapshot: Snapshot, whole: bool
    ) -> list[tuple[int, int]]:
        """Note what one statement read of the gaps, and above the mark, in order.

        Args:
            numbers: numbers of the rows, ascending.
            whole: it read everything in the gaps.

        Returns the new gaps; they are to be watched, see ``watch``.
        """
        new: list[tuple[int, int]] = []
        filled: list[int] = []
        for number in numbers:
            if number <= self.mark:
                filled.append(number)
                continue
            if number > self.mark + 1:
                new.append((self.mark + 1, number - 1))
            self.mark = number
        if filled:
            self._fill(filled)
        if whole:
            for each in self._watched:
                each.owners = snapshot.open(each.owners)
        self._watched = [each for each in self._watched if each.owners and each.ranges]
        return new

    def watch(self, ranges: list[tuple[int, int]], snapshot: Snapshot, bound: int) -> None:
        """Watch new gaps.

        Args:
            snapshot: that of the statement which found them.
            bound: the number of a transaction that began after that statement: a snapshot lists no
                running transactions from its end on, and one of those may own a gap.
        """
        running = frozenset(one for one in snapshot.running if one < bound)
        self._watched.append(Watched(ranges, Owners(running, snapshot.high, bound)))

    def _fill(self, numbers: list[int]) -> None:
        for each in self._watched:
            ranges: list[tuple[int, int]] = []
            for low, high in each.ranges:
                first = bisect.bisect_left(numbers, low)
                for number in numbers[first : bisect.bisect_right(numbers, high)]:
                    if low < number:
                        ranges.append((low, number - 1))
                    low = number + 1
                if low <= high:
                    ranges.append((low, high))
            each.ranges = ranges
