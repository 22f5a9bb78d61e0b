"""Events of one queue, polled while a page shows it, and kept for slow pages.

They are held once, as the bytes to send, in batches as they came. A page has a place among them; a
page whose place was dropped gets the number of missed events.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.dashboard.refusal import of
from interlock.errors import EngineUnavailable, InterlockError
from interlock.explanation import key_names

if TYPE_CHECKING:
    from interlock.client.admin.operator import Operator
    from interlock.client.wire.events import Events
    from interlock.dashboard.polling.engine_access import Access

_log = logging.getLogger("interlock.dashboard")

SHORTEST = 0.1
"""Seconds between two polls while events come."""
LONGEST = 0.5
"""The same after a quiet time."""
SLOWER = 1.3
"""Factor by which the pause grows after each empty answer."""
COUNT = 512
"""Events of one answer."""
WATCHED = 5.0
"""Seconds for which the engine keeps collecting without a further poll."""
AGAIN = 1.0
"""Seconds after which an engine that did not answer is polled again."""
KEPT = 1 << 20
"""Bytes of events that are kept for slow pages; the last batch always is."""


class Track:
    """The last events of a queue."""

    def __init__(self, access: Access, queue: str, ring: Callable[[], None]) -> None:
        self.queue = queue
        self.pages = 0
        self._access = access
        self._ring = ring
        # For each batch its number, its counts of events and of missing ones, and its bytes.
        self._batches: deque[tuple[int, int, bytes]] = deque()
        self._size = 0
        self._number = 0
        self._dropped = 0
        """Events of all batches before the first that is kept."""
        self._counted = 0
        """Events of all batches."""
        self._task = asyncio.create_task(self._watch(), name="interlock-dashboard-events")

    def begin(self) -> tuple[int, int]:
        """Return the place of a page that begins now."""
        return self._number, self._counted

    def since(self, place: tuple[int, int]) -> tuple[tuple[int, int], list[bytes]]:
        """Return the new place of a page, and its unsent messages."""
        number, counted = place
        if number == self._number:
            return place, []
        batches = [data for at, _, data in self._batches if at > number]
        if counted < self._dropped:
            # Number of events that are in none of them.
            lost: dict[str, Any] = {"last": None, "missed": self._dropped - counted, "events": []}
            batches.insert(0, frame_of(msgspec.json.encode(lost)))
        return self.begin(), batches

    def close(self) -> None:
        """Stop polling."""
        self._task.cancel()
        self._batches.clear()

    async def _watch(self) -> None:
        after: int | None = None
        pause = SHORTEST
        while True:
            try:
                found = await self._access.watch(_asked, self.queue, after)
            except EngineUnavailable:
                # The poller of the counts reports it. Events meanwhile are missed.
                pause = AGAIN
            except (InterlockError, ValueError) as error:
                self._add({"last": after, "missed": 0, "events": [], "error": str(of(error))}, 0)
                return
            except Exception:
                _log.exception("the events of a queue could not be read")
                return
            else:
                if found.events or (found.missed and after is not None):
                    told = len(found.events) + found.missed
                    self._add(_message(found), told)
                    pause = SHORTEST
                else:
                    pause = min(pause * SLOWER, LONGEST)
                # Behind the returned events, not behind the last one: there may be more.
                after = found.events[-1].number if found.events else found.last
            await asyncio.sleep(pause)

    def _add(self, message: dict[str, Any], events: int) -> None:
        data = frame_of(msgspec.json.encode(message))
        self._number += 1
        self._counted += events
        self._batches.append((self._number, events, data))
        self._size += len(data)
        while self._size > KEPT and len(self._batches) > 1:
            _, count, gone = self._batches.popleft()
            self._size -= len(gone)
            self._dropped += count
        self._ring()


def frame_of(data: bytes) -> bytes:
    """Return the message with events that are JSON already."""
    return b"event: events\ndata: %b\n\n" % data


def _asked(operator: Operator, queue: str, after: int | None) -> Events:
    return operator.events(queue, after, COUNT, WATCHED)


def _message(found: Events) -> dict[str, Any]:
    return {
        "last": found.last,
        "missed": found.missed,
        "events": [
            (
                one.number,
                one.time,
                one.kind,
                str(one.id),
                one.attempt,
                one.token,
                one.consumer,
                one.error,
                key_names(one.keys),
                key_names(one.shared),
            )
            for one in found.events
        ],
    }
