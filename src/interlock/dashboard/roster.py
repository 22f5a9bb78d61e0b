"""Workers that have announced themselves, asked for while a page shows them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.dashboard.frame import frame
from interlock.engine.operator import Operator
from interlock.engine.request import Refused
from interlock.errors import InterlockError

if TYPE_CHECKING:
    from interlock.dashboard.access import Access
    from interlock.dashboard.figures import Figures

_log = logging.getLogger("interlock.dashboard")

EVERY = 2.0
"""Seconds between two looks."""
SHARE = 10
"""Times as long as a look took, if that is longer."""
PAGE = 512
"""Workers of one answer."""
MOST = 2_000
"""Workers that are shown."""


class Roster:
    """All workers, by the queue at which they announced themselves."""

    def __init__(self, access: Access, ring: Callable[[], None]) -> None:
        self.pages = 0
        self.version = 0
        """Rises when there is a new message."""
        self.message = b""
        self._access = access
        self._ring = ring
        self._task = asyncio.create_task(self._watch(), name="interlock-dashboard-workers")

    def close(self) -> None:
        """Stop asking."""
        self._task.cancel()

    async def _watch(self) -> None:
        while True:
            began = time.monotonic()
            try:
                found = await self._access.watch(workers, self._access.figures)
            except InterlockError:
                # The one who looks at the counts tells of it.
                pass
            except Exception:
                _log.exception("the workers could not be listed")
            else:
                self.message = frame("workers", found)
                self.version += 1
                self._ring()
            took = time.monotonic() - began
            await asyncio.sleep(max(EVERY - took, SHARE * took))


def workers(operator: Operator, figures: Figures) -> list[dict[str, Any]]:
    """Return what workers said of themselves, `MOST` at most."""
    parse = _parser()
    if parse is None:
        return []
    names = figures.names(operator)
    found: list[dict[str, Any]] = []
    for queue, reply in zip(names, operator.each("workers", names, "", PAGE), strict=True):
        if isinstance(reply, Refused) or not reply:
            continue
        some = parse(reply)
        # Where there may be more they are asked for, one page after the other.
        found += map(told, [queue] * len(some), some)
        if len(some) > 1 and len(found) < MOST:
            known = {one["id"] for one in found if one["queue"] == queue}
            more = operator.workers(queue) if _is_cut(reply, some) else []
            found += (one for one in map(told, [queue] * len(more), more) if one["id"] not in known)
        if len(found) >= MOST:
            break
    return found[:MOST]
