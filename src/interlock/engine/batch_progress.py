"""A leased batch while its messages are handled one after the other, on one thread.

The thread takes each message from ``waiting`` before it begins it. So another, which sees that a
handler takes long, or that all is to stop, can take the rest away at any moment: what both would
have is in that queue, and each place comes out of it once. The last thing in it is END: whoever
takes that has what comes after the batch.
"""

from __future__ import annotations

import collections

from interlock.engine.batch import LeasedBatch

__all__ = ["END", "BatchProgress"]

END = 0
"""No message begins at this place of a reply."""


class BatchProgress:
    """The messages of a batch that have not begun, and the one that has."""

    __slots__ = ("at", "batch", "waiting")

    def __init__(self, batch: LeasedBatch) -> None:
        self.batch = batch
        self.waiting: collections.deque[int] = collections.deque(batch.places)
        self.waiting.append(END)
        self.at = END
        """The message that is handled, or was last."""

    def rest(self) -> tuple[list[int], bool]:
        """Take what has not begun; return whether END was among it."""
        found: list[int] = []
        while True:
            try:
                at = self.waiting.popleft()
            except IndexError:
                return found, False
            if at == END:
                return found, True
            found.append(at)
