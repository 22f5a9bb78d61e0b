"""The free places of a pool, as the owner counts them: those for any message, and those that are
kept for messages without keys."""

from __future__ import annotations

from interlock.message import Kind

__all__ = ["Places"]


class Places:
    """Counts how many handlers are idle, and what kind of messages they may take.

    Places are taken before messages are leased, so that nothing is leased that no handler is idle
    for; only while handlers are quick, see ``BatchRunner`` and ``Pool.queues``, is there more.
    """

    def __init__(self, size: int, unkeyed: int) -> None:
        self._size: dict[Kind, int] = {"any": size - unkeyed, "unkeyed": unkeyed}
        self._free: dict[Kind, int] = {"any": 0, "unkeyed": 0}
        self._there = 0

    def free(self, kind: Kind) -> int:
        """Return how many are free; below 0 where places went while handlers were in them."""
        return self._free[kind]

    def size(self, kind: Kind) -> int:
        """Return how many there are when all of the pool are there."""
        return self._size[kind]

    def take(self, kind: Kind, most: int) -> int:
        """Take up to so many; return how many were taken."""
        taken = max(0, min(self._free[kind], most))
        self._free[kind] -= taken
        return taken

    def overdraw(self, kind: Kind, count: int) -> None:
        """Take so many more than there are: of a pool that queues."""
        self._free[kind] -= count

    def give(self, kind: Kind, count: int) -> None:
        """Give places back."""
        self._free[kind] += count

    def moved(self, count: int) -> None:
        """So many have come, or are gone: those for messages without keys come first and go
        last."""
        unkeyed = self._size["unkeyed"]
        before = min(self._there, unkeyed)
        self._there += count
        kept = min(self._there, unkeyed) - before
        self._free["unkeyed"] += kept
        self._free["any"] += count - kept
