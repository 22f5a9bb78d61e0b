"""The last messages that this process handled on each key: a later one may have waited for them.

Only messages whose handling is traced are noted, so that the others cost nothing. The result is
therefore true but incomplete: a message may have waited behind others as well.
"""

from __future__ import annotations

import collections
import threading
from typing import Generic, NamedTuple, TypeVar

from interlock.worker.message.execution import TaskLease

__all__ = ["Predecessor", "Predecessors"]

T = TypeVar("T")
_Lane = tuple[str, bytes]


class Predecessor(NamedTuple, Generic[T]):
    """A message that was handled on a key."""

    id: int
    key: bytes
    note: T
    """The value passed to ``Predecessors.ended``."""


class _Ended(NamedTuple, Generic[T]):
    id: int
    alone: bool
    """True if it held the key alone."""
    at: int
    """Time of its end, µs, by the clock of the engine."""
    note: T


class Predecessors(Generic[T]):
    """The last messages of the most recently used keys. Thread-safe."""

    def __init__(self, most_keys: int = 10_000, most_of_key: int = 8) -> None:
        self._most_keys = most_keys
        self._most_of_key = most_of_key
        self._lock = threading.Lock()
        self._lanes: collections.OrderedDict[_Lane, collections.deque[_Ended[T]]] = (
            collections.OrderedDict()
        )

    def ended(self, lease: TaskLease, seconds: float, note: T) -> None:
        """Note a handled message with its duration; call it before the message is settled."""
        at = lease.token + int(seconds * 1e6)
        with self._lock:
            for key in lease.keys | lease.shared:
                lane = lease.queue, key
                found = self._lanes.get(lane)
                if found is None:
                    found = self._lanes[lane] = collections.deque(maxlen=self._most_of_key)
                found.append(_Ended(lease.id, key in lease.keys, at, note))
                self._lanes.move_to_end(lane)
            while len(self._lanes) > self._most_keys:
                self._lanes.popitem(last=False)

    def of(self, lease: TaskLease) -> list[Predecessor[T]]:
        """Return the messages that were handled while this one waited, on a key that one of the two
        holds alone; each once, the last first."""
        found: dict[int, tuple[int, Predecessor[T]]] = {}
        with self._lock:
            for key in lease.keys | lease.shared:
                for one in self._lanes.get((lease.queue, key), ()):
                    alone = one.alone or key in lease.keys
                    if alone and one.at > lease.sequence and one.id != lease.id:
                        found[one.id] = one.at, Predecessor(one.id, key, one.note)
        return [one for _, one in sorted(found.values(), key=lambda each: -each[0])]
