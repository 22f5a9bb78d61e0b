"""The counts of all queues of an engine, in as few round trips as it takes."""

from __future__ import annotations

import time
from fnmatch import fnmatchcase

from interlock.engine import wire_queue
from interlock.engine.operator import Operator
from interlock.engine.request import Refused

__all__ = ["QueueCounts"]

FRESH = 1.0
"""Seconds for which the names of queues are taken as they were."""
SHARE = 20
"""Times as long as it took to list them, if that is longer: on a Redis all its keys are looked at,
which may be millions, and others want to be served too."""


class QueueCounts:
    """The queues that there are, and their counts; of one who looks again and again."""

    def __init__(self, pattern: str = "*") -> None:
        """Look at queues whose names match the glob alone."""
        self._pattern = pattern
        self._names: list[str] = []
        self._listed = 0.0
        self._named: list[bytes] = []
        self._names_of_counts: list[str] = []
        self._known: dict[str, tuple[list[bytes], dict[str, int]]] = {}

    def names(self, operator: Operator) -> list[str]:
        """Return the names of the queues, sorted, as they were a moment ago."""
        began = time.monotonic()
        if began >= self._listed:
            found = operator.queues()
            self._names = [name for name in found if fnmatchcase(name, self._pattern)]
            ended = time.monotonic()
            self._listed = ended + max(FRESH, SHARE * (ended - began))
        return self._names

    def stats(self, operator: Operator) -> dict[str, dict[str, int]]:
        """Return the counts of the queues, by name, in the order of the names.

        What only looks like a queue, or is not for this user, is left out. The counts of a queue
        are the same object as long as they are the same.
        """
        names, known = self.names(operator), self._known
        found: dict[str, tuple[list[bytes], dict[str, int]]] = {}
        for name, reply in zip(names, operator.each("stats", names), strict=True):
            if isinstance(reply, Refused):
                continue
            before = known.get(name)
            # Most queues are as they were, and to compare costs less than to read.
            if before is not None and before[0] == reply:
                found[name] = before
            else:
                found[name] = reply, self._numbers(reply)
        self._known = found
        return {name: stats for name, (_, stats) in found.items()}

    def _numbers(self, reply: list[bytes]) -> dict[str, int]:
        """Parse the counts of a queue."""
        if reply[::2] != self._named:
            # The first one; or what is wrong with it is said.
            found = wire_queue.numbers(reply)
            self._named, self._names_of_counts = reply[::2], list(found)
            return found
        # All of a server have the same names, so only numbers are to be read.
        return dict(zip(self._names_of_counts, map(int, reply[1::2]), strict=True))
