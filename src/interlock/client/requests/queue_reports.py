"""A client's own reports on its queues: that they are deep, or that a message waits too long.

In process the scheduler sees every message. Here a client watches its own puts: of one message in
each quarter of `slow_wait` it keeps the id, and asks about it when that time is over. For its own
leases that it holds too long it asks which messages wait for them, because their senders may be
gone.

A blocked key blocks all its messages, so one of them is enough. A check costs one il1_stats, one
il1_explain for each id kept and, if the queue is deep, one il1_hot and, if nearly all messages
share a key, an il1_scan of some; if twice as many messages are parked as before, an il1_roots and
an il1_peek. Without puts, and messages that are held, there are no checks.
"""

from __future__ import annotations

import collections
import math
import time
from collections.abc import Sequence
from typing import Any

from interlock import watch as log
from interlock.client.request import Request
from interlock.client.requests.queue_admin import Operations
from interlock.client.session import Session
from interlock.client.wire import admin as wire
from interlock.client.wire.records import Stored

LONGEST = 15.0
"""Maximum seconds between two checks."""
_EXPLAINED = 20
_WAITS = {"waiting", "ready", "backing_off", "held", "parked"}


class Watch:
    """The messages that one handle of a queue has put and not yet asked about."""

    def __init__(
        self, operations: Operations, slow_wait: float, warn_depth: int, warn_lane_depth: int
    ) -> None:
        self._operations = operations
        self.slow_wait = slow_wait
        self._warn_depth = warn_depth
        self._warn_lane_depth = warn_lane_depth
        self._depth_told = 0
        self._lanes_told: dict[bytes, int] = {}
        self._parked_told = 0
        self._put: collections.deque[tuple[int, float]] = collections.deque(maxlen=8)
        self._every = min(slow_wait / 4, LONGEST) if slow_wait else LONGEST
        self.next_put = self._next_kept = 0.0
        """Time before which `noted` ignores puts, by time.monotonic()."""
        if not (slow_wait or warn_depth or warn_lane_depth):
            self.next_put = math.inf
        self.due: float | None = None
        """The time of the next check, by time.monotonic(); None: not before the next put."""

    def noted(self, id: int) -> bool:
        """Note that a message was put.

        Return whether this made a check due that was not due before.
        """
        now = time.monotonic()
        if now < self.next_put:
            return False
        self.next_put = now + self._every
        if now >= self._next_kept:
            # Four per limit, so that each is checked before it is replaced.
            self._next_kept = now + self.slow_wait / 4
            self._put.append((id, now))
        if self.due is not None:
            return False
        self.due = now + self._every
        return True

    def held(self) -> bool:
        """Note that a message is held: others may be parked behind it.

        Return whether this made a check due, or due earlier.
        """
        due = time.monotonic() + _SOON
        if self.next_put == math.inf or (self.due is not None and self.due <= due):
            return False
        self.due = due
        return True

    def look(self, session: Session[Any]) -> Request[None]:
        """Report what the check finds."""
        self.due = None
        events: list[tuple[Any, ...]] = []
        counted = yield from self._operations.stats(session)
        yield from self._depths(session, counted["unsettled"], events)
        yield from self._parked(session, counted, events)
        now = time.monotonic()
        while self._put and self.slow_wait and now - self._put[0][1] >= self.slow_wait:
            id, _ = self._put.popleft()
            explained = yield from self._operations.explain(session, "id", id, _EXPLAINED)
            if explained is not None and explained.nodes[0].state in _WAITS:
                events.append(("slow_wait", id, explained.nodes[0].age, 0, explained))
        if not counted["unsettled"]:
            self._put.clear()
        elif self._put:
            self.due = now + self._every
        if events:
            log.report(self._operations.name, events)

    def _depths(
        self, session: Session[Any], depth: int, events: list[tuple[Any, ...]]
    ) -> Request[None]:
        if self._warn_depth and depth < self._warn_depth // 2:
            self._depth_told = 0
        deep = self._warn_depth and depth >= max(self._warn_depth, 2 * self._depth_told)
        lanes = self._warn_lane_depth and depth >= self._warn_lane_depth
        if not deep and not lanes:
            self._lanes_told.clear()
            return
        # One step of il1_hot has the deepest lanes; all steps would cost too much.
        _, depths = yield from wire.hot(self._operations.on(session), b"0")
        if deep:
            self._depth_told = depth
            shared_by_all = [key for key, stand in depths.items() if stand >= NEARLY_ALL * depth]
            key = (yield from self._held_alone(session, shared_by_all)) if shared_by_all else None
            events.append(("depth", depth, key))
        for key, stand in depths.items():
            told = self._lanes_told.get(key, 0)
            deep = lanes and stand >= max(self._warn_lane_depth, 2 * told)
            if deep and len(self._lanes_told) < _LANES:
                self._lanes_told[key] = stand
                events.append(("lane_depth", key, stand))

    def _parked(
        self, session: Session[Any], counted: dict[str, int], events: list[tuple[Any, ...]]
    ) -> Request[None]:
        # An older library does not count them.
        parked = counted.get("parked", 0)
        if not parked or parked < 2 * self._parked_told:
            self._parked_told = self._parked_told if parked else 0
            return
        found = yield from wire.found_roots(self._operations.on(session), _ROOTS, LONGEST)
        for root in found.roots:
            if root.kind in ("held", "paused") and root.depth and root.key is not None:
                self._parked_told = parked
                keys: Sequence[bytes] = [root.key]
                waited = one = None
                if root.id is not None:
                    one = yield from wire.peek(self._operations.on(session), root.id)
                if one is not None:
                    # Which of them is not known: root.key has most of those that are not parked.
                    keys = (*one.keys, *one.shared)[:_KEYS]
                    failed = one.failures[0].time if one.failures else None
                    waited = None if failed is None else max(counted["time"] - failed, 0) / 1e6
                events.append(("parked", parked, keys, waited, root.id))
                return

    def _held_alone(self, session: Session[Any], keys: Sequence[bytes]) -> Request[bytes | None]:
        """Return the one of these keys that nearly all messages hold exclusively, from a sample.

        Messages that only read a key run side by side.
        """
        found: list[Stored] = []
        cursor = b"0"
        for _ in range(_PAGES):
            cursor, some = yield from wire.scan(self._operations.on(session), cursor, _SAMPLED)
            found += some
            if cursor == b"0" or len(found) >= _SAMPLED:
                break
        for key in keys:
            holders = sum(key in message.keys for message in found)
            if found and holders >= NEARLY_ALL * len(found):
                return key
        return None


def behind(
    operations: Operations, session: Session[Any], id: int, slow_wait: float
) -> Request[tuple[Any, ...] | None]:
    """Return the event of the first message that has waited too long for a key that this one holds.

    None: no message has. Its sender may be gone, and then no other client reports it.
    """
    holder = yield from wire.peek(operations.on(session), id)
    if holder is None or holder.state != "leased":
        return None
    waiting: dict[int, float] = {}
    for key in (*holder.keys, *holder.shared)[:_KEYS]:
        explained = yield from operations.explain(session, "key", key, _EXPLAINED)
        for node in explained.nodes if explained is not None else ():
            if node.state == "waiting" and node.age >= slow_wait:
                waiting[node.id] = node.age
    if not waiting:
        return None
    first = min(waiting)
    explained = yield from operations.explain(session, "id", first, _EXPLAINED)
    return "slow_wait", first, waiting[first], len(waiting) - 1, explained


_KEYS = 4
"""Number of keys of a long-running message that are searched for waiters."""
NEARLY_ALL = 0.9
"""Share of all messages: with this many on one key, they count as serialised by it."""
_SAMPLED = 16
"""Number of messages sampled to judge how a key is held."""
_PAGES = 8
"""Maximum number of calls for them: a server's scan step covers other fields too."""
_SOON = 1.0
"""Seconds from a message that is held to the check."""
_ROOTS = 16
"""Maximum number of roots among which the one is searched behind which messages are parked."""
_LANES = 100
"""Maximum number of keys that are named until the queue is no longer deep."""
