"""Listings from a server that stores its messages unordered, as Redis does.

A page of the smallest ids takes a scan of all. The scan keeps the ids that it found, and the next
pages are read by id. New messages have larger ids than all earlier ones, and no id is used again,
so later pages miss nothing. The ids of all messages also serve the next listings from the front: a
client scans again when it has shown all that the last scan found.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby

from interlock.client.request import Request
from interlock.client.wire import admin as wire_queue
from interlock.client.wire.records import Stored
from interlock.runtime.limits import MAX_BATCH

_MOST = 1 << 20
"""Ids kept of one scan, the smallest ones; 8 bytes each."""
_LISTINGS = 4
"""Concurrent listings of one queue."""
_IDLE = 60.0
"""Seconds for which a listing waits for its next page."""
_OLDEST = 600.0
"""Seconds after which all ids are scanned again: a server that restarted with older data may have
messages that were settled."""
_FEWEST = 32
"""Messages requested at a time: messages of a page that were settled meanwhile cost no call
each."""

_COPIED = 4096
"""Ids that are copied, at most, to forget one that is settled."""

Place = tuple[bytes | None, object, int]
"""The requested key and state, and the last id of the previous page."""


class Found:
    """The smallest ids that a scan finds."""

    def __init__(self) -> None:
        self._ids = array("Q")

    def add(self, some: Iterable[Stored]) -> None:
        """Add the messages of a reply."""
        self.extend(one.id for one in some)

    def extend(self, ids: Iterable[int]) -> None:
        """Add ids."""
        self._ids.extend(ids)
        if len(self._ids) >= 2 * _MOST:
            self._ids = _rising(self._ids)

    def rising(self) -> array[int]:
        """Return them, each once."""
        return _rising(self._ids)


@dataclass(frozen=True, slots=True)
class _Known:
    """The ids of all messages, ascending: those above `low` and up to `end`, some settled since."""

    low: int
    end: int
    ids: array[int]
    scanned: float
    """The time of the first scan."""
    used: float

    def serves(self, after: int) -> bool:
        """Return whether a page after this id can be read from these ids."""
        now = time.monotonic()
        return self.low <= after and now < min(self.used + _IDLE, self.scanned + _OLDEST)


class Listings:
    """The listings of a queue that may continue.

    Any thread may call it, without a lock: at worst one listing is forgotten, and its next page
    takes a scan.
    """

    def __init__(self) -> None:
        self._kept: dict[Place, tuple[float, array[int]]] = {}
        self._all: _Known | None = None

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

    def first(self, call: wire_queue.Call, after: int, limit: int) -> Request[list[Stored]]:
        """Return the unsettled messages with the smallest ids above one."""
        known = self._all
        if known is None or not known.serves(after):
            known = _Known(after, after, array("Q"), time.monotonic(), 0.0)
        shown: list[Stored] = []
        is_complete = False
        while True:
            behind = shown[-1].id if shown else after
            some, ids = yield from page(call, known.ids, behind, limit - len(shown))
            shown += some
            known = replace(known, ids=ids, used=time.monotonic())
            if len(shown) == limit or is_complete:
                break
            more, end = yield from larger(call, known.end)
            is_complete = len(more) < _MOST
            low = known.low
            if len(ids) + len(more) > _MOST:
                low, ids = known.end, array("Q")
            known = replace(known, low=low, end=end, ids=ids + more)
        self._all = known
        return shown


def larger(
    call: wire_queue.Call, least: int, state: object = None
) -> Request[tuple[array[int], int]]:
    """Return the ids above one, ascending, of all messages or those in a state, and the number up
    to which these are all."""
    found, cursor, end = Found(), b"", None
    while cursor != b"0":
        cursor, last, some = yield from wire_queue.scan_larger(
            call, cursor or b"0", MAX_BATCH, least, state
        )
        # The scan may miss a message put meanwhile and find a later one.
        end = last if end is None else end
        found.extend(id for id in some if id <= end)
    ids = found.rising()
    return ids, ids[-1] if len(ids) == _MOST else max(least, end or 0)


def page(
    call: wire_queue.Call, ids: array[int], after: int, limit: int, state: object = None
) -> Request[tuple[list[Stored], array[int]]]:
    """Return the first messages, of all or in a state, among the ascending ids above one, and the
    ids without those found to be settled, unless these are few."""
    found: list[Stored] = []
    unsettled = array("Q")
    first = at = bisect_right(ids, after)
    count = min(max(limit, _FEWEST), MAX_BATCH)
    while at < len(ids) and len(found) < limit:
        asked = ids[at : at + count]
        last, some = yield from wire_queue.scan_ids(call, 0, asked)
        unsettled.extend(one.id for one in some)
        found += [one for one in some if state in (None, one.state)]
        at += bisect_right(asked, last) if last else len(asked)
        # Most of them may be settled.
        count = min(2 * count, MAX_BATCH)
    # The copy costs in proportion to all ids.
    if (at - first - len(unsettled)) * _COPIED > len(ids):
        ids = ids[:first] + unsettled + ids[at:]
    return found[:limit], ids


def front(
    call: wire_queue.Call, limit: int, least: int, state: object
) -> Request[tuple[list[Stored], bool] | None]:
    """Return the messages with the smallest ids above one, at most `limit`, of all or of those in a
    state, and whether there are no others.

    Return None if the server would have to scan all. Servers with the feature ``front`` have it.
    """
    found: list[Stored] = []
    while True:
        count = min(limit - len(found), MAX_BATCH)
        end, ids = yield from wire_queue.scan_front(call, count, least, state)
        if end is None:
            return None
        some, _ = yield from page(call, array("Q", ids), least, count, state)
        found += some
        if not end or len(found) == limit:
            return found, not end
        least = end


def _rising(ids: array[int]) -> array[int]:
    """Return the smallest ids, each once."""
    return array("Q", [id for id, _ in groupby(sorted(ids))][:_MOST])
