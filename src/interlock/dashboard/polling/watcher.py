"""The poller of the engine for all open pages of a login, while any is open.

Its data is held once, however many pages there are, and however slow they are: a page asks for the
changes since its last message, and gets the number of missed events.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from interlock.dashboard.polling.roster import Roster
from interlock.dashboard.polling.server_sent_event import frame
from interlock.dashboard.polling.track import Track
from interlock.dashboard.refusal import of
from interlock.errors import InterlockError

if TYPE_CHECKING:
    from interlock.dashboard.polling.engine_access import Access

_log = logging.getLogger("interlock.dashboard")

EVERY = 1.0
"""Seconds between two polls of the counts."""
SHARE = 3
"""Minimum pause after a poll, as a multiple of its duration, if that is longer."""
GONE = 1_000
"""Maximum deleted queues that are reported to pages."""


class Watcher:
    """Live figures of an engine, for the pages of one login."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._pages: set[asyncio.Event] = set()
        self._task: asyncio.Task[None] | None = None
        self._tracks: dict[str, Track] = {}
        self._roster: Roster | None = None
        self.tick = 0
        """Number of the last poll."""
        self.time = 0.0
        self.trouble = ""
        """Text of the engine's last failure; empty while it answers."""
        self._stats: dict[str, tuple[int, dict[str, int]]] = {}
        self._gone: deque[tuple[int, str]] = deque(maxlen=GONE)
        self._told: dict[int, bytes] = {}

    # -- Pages --------------------------------------------------------------------------------

    def open(self, news: asyncio.Event) -> None:
        """Add a page, whose event is set when there is a change, possibly immediately."""
        self._pages.add(news)
        if self._stats or self.trouble:
            news.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look(), name="interlock-dashboard-stats")

    def leave(self, news: asyncio.Event) -> None:
        """Remove a page; with the last one everything stops."""
        self._pages.discard(news)
        if not self._pages:
            self.close()

    def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        for track in self._tracks.values():
            track.close()
        self._tracks.clear()
        if self._roster is not None:
            self._roster.close()
            self._roster = None
        self._stats.clear()
        self._gone.clear()
        self._told.clear()
        self.trouble = ""

    def follow(self, queue: str) -> Track:
        """Return the events of a queue, which is polled until `unfollow`."""
        track = self._tracks.get(queue)
        if track is None:
            track = self._tracks[queue] = Track(self._access, queue, self.ring)
        track.pages += 1
        return track

    def unfollow(self, track: Track) -> None:
        """Note that one page less shows a queue."""
        track.pages -= 1
        if not track.pages:
            track.close()
            if self._tracks.get(track.queue) is track:
                del self._tracks[track.queue]

    def roster(self) -> Roster:
        """Return the workers, which are polled until as many have called `leave_roster`."""
        if self._roster is None:
            self._roster = Roster(self._access, self.ring)
        self._roster.pages += 1
        return self._roster

    def leave_roster(self, roster: Roster) -> None:
        """Note that one page less shows workers."""
        roster.pages -= 1
        if not roster.pages:
            roster.close()
            if self._roster is roster:
                self._roster = None

    def ring(self) -> None:
        """Notify all pages of a change."""
        for news in self._pages:
            news.set()

    # -- Counts -------------------------------------------------------------------------------

    def stats_since(self, tick: int) -> bytes:
        """Return the message with all counts that changed after a poll; 0 for all."""
        found = self._told.get(tick)
        if found is None:
            message: dict[str, Any] = {
                "time": self.time,
                "queues": [
                    (name, stats)
                    for name, (changed, stats) in self._stats.items()
                    if changed > tick
                ],
            }
            gone = [name for at, name in self._gone if at > tick and name not in self._stats]
            if tick and gone:
                message["gone"] = gone
            found = self._told[tick] = frame("stats", message)
        return found

    async def _look(self) -> None:
        counts = self._access.counts
        due = time.monotonic()
        while True:
            if await attempted(self, lambda: self._access.watch(counts.stats), self._take):
                self.ring()
            now = time.monotonic()
            due = max(due + EVERY, now + SHARE * (now - due))
            await asyncio.sleep(due - time.monotonic())

    def _take(self, found: dict[str, dict[str, int]]) -> None:
        self.tick += 1
        self.time = self._access.counts.now()
        self._told.clear()
        tick, known = self.tick, self._stats
        for name in [name for name in known if name not in found]:
            del known[name]
            self._gone.append((tick, name))
        for name, stats in found.items():
            before = known.get(name)
            if before is None or before[1] is not stats:
                known[name] = tick, stats


async def attempted(
    watcher: Watcher, ask: Callable[[], Awaitable[Any]], take: Callable[[Any], None]
) -> bool:
    """Poll the engine, and store the answer; note a failure.

    Returns True if there is a change to report.
    """
    before = watcher.trouble
    try:
        found = await ask()
    except InterlockError as error:
        watcher.trouble = str(of(error))
        return watcher.trouble != before
    except Exception:
        _log.exception("the dashboard could not query the engine")
        watcher.trouble = "the dashboard could not query the engine; its log says why"
        return watcher.trouble != before
    watcher.trouble = ""
    take(found)
    return True
