"""The counts of all queues of an engine, in as few round trips as it takes."""

from __future__ import annotations

import heapq
import time
from collections.abc import Mapping
from fnmatch import fnmatchcase

from interlock.engine import wire, wire_queue
from interlock.engine.operator import Operator
from interlock.engine.request import Refused
from interlock.roots import Roots

__all__ = ["QueueCounts"]

FRESH = 1.0
"""Seconds for which the names of queues are taken as they were."""
SHARE = 20
"""Times as long as it took to list them, if that is longer: on a Redis all its keys are looked at,
which may be millions, and others want to be served too."""
STALLED = 20
"""Queues of which it is counted how many messages are blocked."""
ROOTS = 5
"""Roots of each, those with the deepest lanes."""
WALK = 2_000
"""Messages that are counted behind each."""
SLOW = 60.0
"""Seconds after which a running handler counts as one that blocks."""


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
        self._ahead = 0.0
        """Seconds by which the engine's clock is before this machine's."""
        self._roots: dict[str, tuple[float, Roots | None]] = {}
        """Until when they are taken as they were."""

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
        are the same object as long as they are the same; `now` tells at which time they were.
        """
        names, known = self.names(operator), self._known
        found: dict[str, tuple[list[bytes], dict[str, int]]] = {}
        for name, reply in zip(names, operator.each("stats", names), strict=True):
            if isinstance(reply, Refused):
                continue
            # An engine of an older release does not tell its time.
            if reply[-2:-1] == [b"time"]:
                self._ahead = int(reply[-1]) / 1e6 - time.time()
                reply = reply[:-2]
            before = known.get(name)
            # Most queues are as they were, and to compare costs less than to read.
            if before is not None and before[0] == reply:
                found[name] = before
            else:
                found[name] = reply, self._numbers(reply)
        self._known = found
        return {name: stats for name, (_, stats) in found.items()}

    def now(self) -> float:
        """Return the engine's time, seconds since 1970, as `stats` found it to run."""
        return time.time() + self._ahead

    def stalls(
        self, operator: Operator, counts: Mapping[str, Mapping[str, int]], walk: int = WALK
    ) -> dict[str, Roots]:
        """Return what holds messages up in the queues where most wait, by their names.

        A queue that took long is asked again only after a multiple of that: to count its messages
        holds up a Redis for as long as it takes.

        Args:
            counts: what `stats` returned, of all or of some queues.
            walk: messages that are counted behind a root, 1 to 2,000.
        """
        waiting = [name for name, one in counts.items() if one.get("waiting")]
        now = time.monotonic()
        self._roots = {name: one for name, one in self._roots.items() if now < one[0]}
        asked = [name for name in waiting if name not in self._roots]
        replies = operator.each("roots", asked, wire.micros(SLOW), 1)
        for name, reply in zip(asked, replies, strict=True):
            # An engine of an older release does not tell.
            if isinstance(reply, Refused) or not wire_queue.roots_found(reply).roots:
                self._roots[name] = now, None
        stalled = [name for name in asked if name not in self._roots]
        for name in heapq.nlargest(STALLED, stalled, key=lambda name: counts[name]["waiting"]):
            began = time.monotonic()
            roots = operator.roots(name, ROOTS, SLOW, walk)
            ended = time.monotonic()
            self._roots[name] = ended + max(FRESH, SHARE * (ended - began)), roots
        found = {name: self._roots[name][1] for name in waiting if name in self._roots}
        return {name: roots for name, roots in sorted(found.items()) if roots}

    def _numbers(self, reply: list[bytes]) -> dict[str, int]:
        """Parse the counts of a queue."""
        if reply[::2] != self._named:
            # The first one; or what is wrong with it is said.
            found = wire_queue.numbers(reply)
            self._named, self._names_of_counts = reply[::2], list(found)
            return found
        # All of a server have the same names, so only numbers are to be read.
        return dict(zip(self._names_of_counts, map(int, reply[1::2]), strict=True))
