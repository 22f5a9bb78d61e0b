"""Changes that this node has seen and its primary has not: kept until the stream has them again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from interlock.cluster.entry import Change


class Offers:
    """Changes to be given to the primary, and those given that have not come back yet."""

    def __init__(self) -> None:
        self._waiting: deque[Change] = deque()
        self._given: deque[tuple[int, list[Change]]] = deque()
        self._token = 0

    def __bool__(self) -> bool:
        return bool(self._waiting or self._given)

    @property
    def waits(self) -> bool:
        """Some are to be given."""
        return bool(self._waiting)

    def add(self, changes: Iterable[Change]) -> None:
        """Keep changes for the primary."""
        self._waiting.extend(changes)

    def take(self, most: int) -> list[Change]:
        """Return the first that are to be given; `given` or `back` follows."""
        return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    def back(self, changes: list[Change]) -> None:
        """Keep what could not be given."""
        self._waiting.extendleft(reversed(changes))

    def given(self, token: int, seq: int, changes: list[Change]) -> None:
        """Note that a primary has them, in the changes up to `seq`."""
        if token != self._token:
            self.back(changes)
            return
        self._given.append((seq, changes))

    def begin(self, token: int) -> None:
        """Give all of it to a new primary."""
        self._token = token
        for _, changes in self._given:
            self._waiting.extend(changes)
        self._given.clear()

    def seen(self, seq: int) -> None:
        """Note that the stream has all up to a number."""
        while self._given and self._given[0][0] <= seq:
            self._given.popleft()
