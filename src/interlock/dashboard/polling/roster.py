"""Announced workers, polled while a page shows them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from interlock.dashboard.directory import all_workers
from interlock.dashboard.polling.server_sent_event import frame
from interlock.errors import InterlockError

if TYPE_CHECKING:
    from interlock.dashboard.polling.engine_access import Access

_log = logging.getLogger("interlock.dashboard")

EVERY = 2.0
"""Seconds between two polls."""
SHARE = 10
"""Multiple of a poll's duration, if that is longer."""


class Roster:
    """All workers, by the queue of their announcement."""

    def __init__(self, access: Access, ring: Callable[[], None]) -> None:
        self.pages = 0
        self.version = 0
        """Rises with each new message."""
        self.message = b""
        self._access = access
        self._ring = ring
        self._task = asyncio.create_task(self._watch(), name="interlock-dashboard-workers")

    def close(self) -> None:
        """Stop polling."""
        self._task.cancel()

    async def _watch(self) -> None:
        while True:
            began = time.monotonic()
            try:
                found = await self._access.watch(all_workers, self._access.counts)
            except InterlockError:
                # The poller of the counts reports it.
                pass
            except Exception:
                _log.exception("the workers could not be listed")
            else:
                self.message = frame("workers", found)
                self.version += 1
                self._ring()
            took = time.monotonic() - began
            await asyncio.sleep(max(EVERY - took, SHARE * took))
