"""Workers that have announced themselves, asked for while a page shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interlock.dashboard.access import Access


class Roster:
    """All workers."""

    def __init__(self, access: Access, ring: Callable[[], None]) -> None:
        self.pages = 0
        self.version = 0
        self.message = b""

    def close(self) -> None:
        """Stop asking."""
