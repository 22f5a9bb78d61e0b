"""The relay's report on itself, in the row of ``outbox_meta``: for status, metrics and explain."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interlock.outbox.postgres.position import Position

__all__ = ["Report"]

SOON = 1.0
"""Seconds after which a change is written."""
ALWAYS = 5.0
"""Seconds after which the report is written again unchanged: each write leaves a dead row."""


class Report:
    """The position of the relay that has the lock, and the reason why it waits."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._written: tuple[int, int, str | None] | None = None
        """Position, number of gaps, reason to wait."""
        self._written_at = 0.0
        self.position: Position | None = None
        """The position in the present session of the engine."""
        self.turned = time.monotonic()
        """The last call of ``write``."""
        self.write(None)

    def write(self, waits: str | None) -> None:
        """Note that the relay works, and write that from time to time.

        Args:
            waits: why it puts nothing now; None: it puts what there is.

        Raises what the database's library raises.
        """
        now = self.turned = time.monotonic()
        gaps = None if self.position is None else self.position.gaps
        found = (gaps.mark, gaps.count, waits) if gaps else (0, 0, waits)
        pause = ALWAYS if found == self._written else SOON
        if self._written is not None and now < self._written_at + pause:
            return
        self._written, self._written_at = found, now
        self._connection.report(process(), *found)

    def __str__(self) -> str:
        position, gaps, waits = self._written or (0, 0, None)
        text = f"position {position}, {gaps} gaps"
        return f"{text}, waits: {waits}" if waits else text


def process() -> str:
    return f"{socket.gethostname()} pid {os.getpid()}"
