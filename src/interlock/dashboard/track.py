"""Events of one queue, asked for while a page shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interlock.dashboard.access import Access


class Track:
    """The last events of a queue."""

    def __init__(self, access: Access, queue: str, ring: Callable[[], None]) -> None:
        self.queue = queue
        self.pages = 0

    def begin(self) -> int:
        """Return the place of a page that begins now."""
        return 0

    def since(self, place: int) -> tuple[int, list[bytes]]:
        """Return the new place of a page, and the messages it has not had."""
        return place, []

    def close(self) -> None:
        """Stop asking."""
