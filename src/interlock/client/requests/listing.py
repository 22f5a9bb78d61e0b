"""Pages of one listing: ids that the scan for a page found beyond it.

A server stores its messages unordered, so a page of the smallest ids takes a scan of all. The scan
keeps the ids after its page, and later pages are read by id. New messages have larger ids than all
earlier ones, so later pages miss nothing.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable
from itertools import groupby

from interlock.client.request import Request
from interlock.client.wire import admin as wire_queue
from interlock.client.wire.records import Stored
from interlock.runtime.limits import MAX_BATCH

Wanted = Callable[[Stored], bool]
_MOST = 1 << 20
"""Ids kept of one scan, the smallest ones; 8 bytes each."""
_LISTINGS = 4
"""Concurrent listings of one queue."""
_IDLE = 60.0
"""Seconds for which a listing waits for its next page."""
_FEWEST = 32
"""Messages requested at a time: messages of a page that were settled meanwhile cost no call
each."""

Place = tuple[bytes | None, object, int]
"""The requested key and state, and the last id of the previous page."""


class Found:
    """The smallest ids that a scan finds."""

    def __init__(self) -> None:
        self._ids = array("Q")

    def add(self, some: Iterable[Stored]) -> None:
        """Add those of a reply."""
        self._ids.extend(one.id for one in some)
        if len(self._ids) >= 2 * _MOST:
            self._ids = _rising(self._ids)

    def rising(self) -> array[int]:
        """Return them, each once."""
        return _rising(self._ids)


class Listings:
    """The listings of a queue that may continue.

    Any thread may call it, without a lock: at worst one listing is forgotten, and its next page
    takes a scan.
    """

    def __init__(self) -> None:
        self._kept: dict[Place, tuple[float, array[int]]] = {}

    def find(self, place: Place) -> array[int]:
        """Return the ids after a page, ascending; empty if they are not known."""
        end, ids = self._kept.get(place, (0.0, None))
        return ids if ids is not None and time.monotonic() < end else array("Q")

    def moved(self, old: Place, new: Place, ids: array[int]) -> None:
        """Remember the ids after the present page, and forget those after the previous one."""
        now = time.monotonic()
        kept = {at: one for at, one in self._kept.items() if one[0] > now and at != old}
        kept.pop(new, None)
        if ids and ids[-1] > new[-1]:
            kept[new] = now + _IDLE, ids
        self._kept = dict(list(kept.items())[-_LISTINGS:])


def page(
    call: wire_queue.Call, ids: array[int], after: int, limit: int, wanted: Wanted
) -> Request[list[Stored]]:
    """Return the first wanted messages among the ascending ids above one."""
    found: list[Stored] = []
    at = bisect_right(ids, after)
    while at < len(ids) and len(found) < limit:
        asked = ids[at : at + min(max(limit - len(found), _FEWEST), MAX_BATCH)]
        last, some = yield from wire_queue.scan_ids(call, 0, asked)
        found += filter(wanted, some)
        at += bisect_right(asked, last) if last else len(asked)
    return found[:limit]


def _rising(ids: array[int]) -> array[int]:
    """Return the smallest ids, each once."""
    return array("Q", [id for id, _ in groupby(sorted(ids))][:_MOST])
