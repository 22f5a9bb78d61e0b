"""The states of all rows at one node, what it shows of them, and the changes that came last."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from interlock.cluster.entry import Change
from interlock.cluster.projection import Projection
from interlock.cluster.stamps import hybrid
from interlock.cluster.state import TableRules

logger = logging.getLogger("interlock.cluster")
NOTHING: Mapping[bytes, bytes] = {}


class Replica:
    """Joins changes to states, and writes what comes of it into the shared table."""

    def __init__(self, rules: TableRules, projection: Projection, *, tail: int = 100_000) -> None:
        self.rules = rules
        self.projection = projection
        self.states: dict[bytes, bytes] = {}
        """By key; deleted and expired rows too, for a while."""
        self.tombstones = 0
        """As many as the last sweep found."""
        self.dropped = 0
        """Tombstones that went before their time, for there were too many."""
        self._tail: deque[tuple[int, Sequence[Change]]] = deque()
        self._tail_length = 0
        self._tail_limit = tail
        self._sweep: list[bytes] = []
        self._swept = 0

    def __len__(self) -> int:
        return len(self.states) - self.tombstones

    def apply(
        self,
        seq: int,
        changes: Sequence[Change],
        now_ms: int,
        known: Mapping[bytes, bytes] | None = None,
    ) -> list[Change]:
        """Join the changes up to the number `seq`; return keys and states of rows that changed.

        `known`: rows of which it was found before what comes of them.
        """
        changed = self.join(changes, now_ms, known or {})
        self._tail.append((seq, changes))
        self._tail_length += len(changes)
        while self._tail_length > self._tail_limit and len(self._tail) > 1:
            self._tail_length -= len(self._tail.popleft()[1])
        return changed

    def join(
        self, changes: Iterable[Change], now_ms: int, known: Mapping[bytes, bytes] = NOTHING
    ) -> list[Change]:
        """Join changes that have no number here, as those of a snapshot."""
        states, join = self.states, self.rules.join
        changed: dict[bytes, bytes] = {}
        for key, delta in changes:
            before = states.get(key)
            try:
                after = known.get(key) or join(before, delta)
            except Exception:
                # All nodes come upon it, and all pass over it.
                logger.exception("a change of row %r cannot be joined: it is left out", key)
                continue
            if after is not before:
                states[key] = changed[key] = after
        rows = list(changed.items())
        self.projection.put_many(rows, now_ms)
        return rows

    def old(self, keys: Iterable[bytes], now_ms: int) -> Iterator[bytes]:
        """Yield those of the keys whose rows are older than a tombstone may be."""
        before = hybrid(now_ms - self.rules.age_ms)
        for key in keys:
            state = self.states.get(key)
            if state is not None and self.rules.newest(state)[0] < before:
                yield key

    def forget(self, keys: Iterable[bytes]) -> list[Change]:
        """Forget rows that are nowhere else; return them as the last tombstones of their keys."""
        rows: list[Change] = []
        for key in keys:
            state = self.states.pop(key)
            stamp, dc = self.rules.newest(state)
            rows.append((key, self.rules.deleted((stamp + 1, dc))))
        self.projection.put_many(rows, 0)
        return rows

    def load(self, rows: Sequence[Change], now_ms: int) -> None:
        """Take states of which there are none yet, and show them."""
        self.states.update(rows)
        self.projection.put_many(rows, now_ms)

    def since(self, seq: int, last: int) -> list[Change] | None:
        """Return the changes behind a number, up to the last; None: not all of them are kept."""
        if seq == last:
            return []
        # What came by a snapshot, or from a database, has no numbers here.
        if seq > last or not self._tail or self._tail[0][0] - len(self._tail[0][1]) > seq:
            return None
        found: list[Change] = []
        for last, changes in self._tail:
            if last > seq:
                found += changes
        return found

    def forget_tail(self) -> None:
        """Forget the numbers of changes: they count anew."""
        self._tail.clear()
        self._tail_length = 0

    def sweep(self, now_ms: int, most: int, slots: int = 500) -> None:
        """Forget tombstones whose time is over, or that are more than `most`; some rows a call."""
        if not self._sweep:
            self.tombstones, self._swept = self._swept, 0
            self._sweep = list(self.states)
        rules, states = self.rules, self.states
        excess = self.tombstones - most
        for _ in range(min(slots, len(self._sweep))):
            key = self._sweep.pop()
            state = states.get(key)
            if state is None or rules.is_alive(rules.cells(state), now_ms):
                continue
            if 0 < rules.forgettable_at(state) <= now_ms:
                del states[key]
            elif excess > 0:
                del states[key]
                excess -= 1
                self.dropped += 1
            else:
                self._swept += 1
        if not self._sweep:
            self.tombstones = self._swept
