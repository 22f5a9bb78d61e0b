"""A client's unasked reports on its queues: that they are deep, or that something waits too long.

In process the scheduler sees every message. Here a client looks at what it put itself: of one
message in each quarter of `slow_wait` it remembers the id, and asks after it when that is over.
Of what it leased and holds too long it asks who waits for that, for who put it may be gone.
A key that is stuck is stuck for all that stands on it, so one of them is enough. A look costs one
il1_stats, one il1_explain of each message remembered so long, and where the queue is deep one
il1_hot and, if a key is in nearly all messages, an il1_scan of some; there is none while nothing
is put.
"""

from __future__ import annotations

import collections
import math
import time
from collections.abc import Sequence
from typing import Any

from interlock import watch as log
from interlock.engine import wire_queue as wire
from interlock.engine.operations import Operations
from interlock.engine.records import Stored
from interlock.engine.request import Request
from interlock.engine.session import Session

LONGEST = 15.0
"""Seconds between two looks at most."""
_EXPLAINED = 20
_WAITS = {"waiting", "ready", "backing_off", "held"}


class Watch:
    """The messages that one handle of a queue has put and not yet asked after."""

    def __init__(
        self, operations: Operations, slow_wait: float, warn_depth: int, warn_lane_depth: int
    ) -> None:
        self._operations = operations
        self.slow_wait = slow_wait
        self._warn_depth = warn_depth
        self._warn_lane_depth = warn_lane_depth
        self._depth_told = 0
        self._lanes_told: dict[bytes, int] = {}
        self._put: collections.deque[tuple[int, float]] = collections.deque(maxlen=8)
        self._every = min(slow_wait / 4, LONGEST) if slow_wait else LONGEST
        self.next_put = self._next_kept = 0.0
        """The time from which `noted` wants to know of a put, by time.monotonic()."""
        if not (slow_wait or warn_depth or warn_lane_depth):
            self.next_put = math.inf
        self.due: float | None = None
        """The time of the next look, by time.monotonic(); None: not before the next put."""

    def noted(self, id: int) -> bool:
        """Note that a message was put.

        Returns whether there is a look to come that there was not before.
        """
        now = time.monotonic()
        if now < self.next_put:
            return False
        self.next_put = now + self._every
        if now >= self._next_kept:
            # Four of them, whatever the limit, and so none is forgotten before it is asked after.
            self._next_kept = now + self.slow_wait / 4
            self._put.append((id, now))
        if self.due is not None:
            return False
        self.due = now + self._every
        return True

    def look(self, session: Session[Any]) -> Request[None]:
        """Report what there is to say."""
        self.due = None
        events: list[tuple[Any, ...]] = []
        counted = yield from self._operations.stats(session)
        yield from self._depths(session, counted["unsettled"], events)
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
        # One step of il1_hot, not all of it: some lanes, of thousands.
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

    def _held_alone(self, session: Session[Any], keys: Sequence[bytes]) -> Request[bytes | None]:
        """Return the one of these keys that nearly all messages hold exclusively, by a sample.

        Those that only read a key run side by side.
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

    None: none has. Who put it may be gone, and then nobody else says so.
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
"""Of a message that is handled too long, on so many it is looked for who waits."""
NEARLY_ALL = 0.9
"""Of all messages: so many on one key are said to be serialised by it."""
_SAMPLED = 16
"""Messages by which it is judged how a key is held."""
_PAGES = 8
"""Calls for them at most: what a server goes through is not messages only."""
_LANES = 100
"""Keys that are named at most, until the queue is not deep any more."""
