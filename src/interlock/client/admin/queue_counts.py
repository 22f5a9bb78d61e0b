"""The counts of all queues of an engine, in as few round trips as possible."""

from __future__ import annotations

import heapq
import time
from collections.abc import Mapping
from fnmatch import fnmatchcase

from interlock.client.admin.operator import Operator
from interlock.client.request import Refused
from interlock.client.wire import admin as wire_queue
from interlock.client.wire import messages as wire
from interlock.roots import Found, Roots

__all__ = ["QueueCounts"]

FRESH = 1.0
"""Seconds for which the list of queues is reused."""
SHARE = 20
"""The same as a multiple of the time that listing took, if that is longer: on Redis a listing scans
all keys, which may be millions, and other clients need the server too."""
STALLED = 20
"""Number of queues for which blocked messages are counted."""
ROOTS = 5
"""Roots of each such queue, those with the deepest lanes."""
WALK = 2_000
"""Maximum number of messages counted behind each."""
SLOW = 60.0
"""Seconds after which a running handler counts as blocking."""
KINDS = ("leased", "backing_off", "held", "paused")
"""Counts of what can block messages; a queue in which all are 0 has no roots."""


class QueueCounts:
    """The existing queues and their counts, for a repeated reader."""

    def __init__(self, pattern: str = "*") -> None:
        """Include only queues whose names match the glob."""
        self._pattern = pattern
        self._names: list[str] = []
        self._listed = 0.0
        self._named: list[bytes] = []
        self._names_of_counts: list[str] = []
        self._known: dict[str, tuple[list[bytes], dict[str, int]]] = {}
        self._ahead = 0.0
        """Seconds by which the engine's clock is ahead of this machine's."""
        self._roots: dict[str, tuple[float, Roots | None]] = {}
        """Time until which the list is reused."""

    def names(self, operator: Operator) -> list[str]:
        """Return the names of the queues, sorted, from a recent listing."""
        began = time.monotonic()
        if began >= self._listed:
            found = operator.queues()
            self._names = [name for name in found if fnmatchcase(name, self._pattern)]
            ended = time.monotonic()
            self._listed = ended + max(FRESH, SHARE * (ended - began))
        return self._names

    def stats(self, operator: Operator) -> dict[str, dict[str, int]]:
        """Return the counts of the queues, by name, in the order of the names.

        Keys that only look like a queue, and queues that the user may not read, are left out. The
        counts of a queue are the same object while they are equal; `now` gives their time.
        """
        names, known = self.names(operator), self._known
        found: dict[str, tuple[list[bytes], dict[str, int]]] = {}
        for name, reply in zip(names, operator.each("stats", names), strict=True):
            if isinstance(reply, Refused):
                continue
            # An engine of an older release does not report its time.
            if reply[-2:-1] == [b"time"]:
                self._ahead = int(reply[-1]) / 1e6 - time.time()
                reply = reply[:-2]
            before = known.get(name)
            # Most queues are unchanged, and comparing is cheaper than parsing.
            if before is not None and before[0] == reply:
                found[name] = before
            else:
                found[name] = reply, self._numbers(reply)
        self._known = found
        return {name: stats for name, (_, stats) in found.items()}

    def now(self) -> float:
        """Return the engine's time, seconds since 1970, extrapolated from the last `stats`."""
        return time.time() + self._ahead

    def roots(
        self, operator: Operator, counts: Mapping[str, Mapping[str, int]], most: int
    ) -> dict[str, Found]:
        """Return the roots, at most `most` of each queue, by queue name.

        Only a queue that can have roots by its counts is asked. A queue of an engine of an older
        release, which does not report roots, is left out.
        """
        asked = [name for name, one in counts.items() if any(one.get(kind, 1) for kind in KINDS)]
        replies = operator.each("roots", asked, wire.micros(SLOW), most)
        return {
            name: wire_queue.roots_found(reply)
            for name, reply in zip(asked, replies, strict=True)
            if not isinstance(reply, Refused)
        }

    def stalls(
        self,
        operator: Operator,
        counts: Mapping[str, Mapping[str, int]],
        walk: int = WALK,
        known: Mapping[str, Found] | None = None,
    ) -> dict[str, Roots]:
        """Return what blocks messages in the queues where most wait, by queue name.

        A queue that took long is asked again only after a multiple of that time, because counting
        its messages blocks Redis meanwhile.

        Args:
            counts: what `stats` returned, of all or of some queues.
            walk: maximum number of messages counted behind a root, 1 to 2,000.
            known: what `roots` returned for these counts; None: it is called.
        """
        waiting = [name for name, one in counts.items() if one.get("waiting")]
        now = time.monotonic()
        self._roots = {name: one for name, one in self._roots.items() if now < one[0]}
        asked = [name for name in waiting if name not in self._roots]
        if known is None:
            known = self.roots(operator, {name: counts[name] for name in asked}, 1)
        stalled = [name for name in asked if name in known and known[name].roots]
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
            # The first reply; an error in it is reported.
            found = wire_queue.numbers(reply)
            self._named, self._names_of_counts = reply[::2], list(found)
            return found
        # All queues of a server have the same names, so only the numbers are parsed.
        return dict(zip(self._names_of_counts, map(int, reply[1::2]), strict=True))
