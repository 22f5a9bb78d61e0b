"""Live figures, as a stream of server-sent events to one page.

A page that reads slowly gets the newest state when it is ready for more, with the number of missed
events; a page that reads nothing for `PATIENCE` seconds is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from interlock.dashboard.login.sessions import Session
from interlock.dashboard.polling.engine_access import Access
from interlock.dashboard.polling.server_sent_event import frame

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

PATIENCE = 30.0
"""Seconds for which a page may read nothing."""
SILENCE = 10.0
"""Seconds after which a message is sent in any case, to notice closed pages."""
MOST = 256
"""Maximum open pages."""


class Stream:
    """The live connection of one page."""

    def __init__(
        self, access: Access, queue: str | None, workers: bool, session: Session | None
    ) -> None:
        self._access = access
        self._queue = queue
        self._workers = workers
        self._session = session
        self._news = asyncio.Event()
        self.ended = False

    def end(self) -> None:
        """End it, as the server's end and a logout do."""
        self.ended = True
        self._news.set()

    async def run(self, headers: list[tuple[bytes, bytes]], receive: Receive, send: Send) -> None:
        """Serve the page until it is closed."""
        gone = asyncio.create_task(self._until_gone(receive))
        session, watcher = self._session, self._access.watcher
        if session is not None:
            session.pages += 1
            session.ended.append(self.end)
        watcher.open(self._news)
        track = None if self._queue is None else watcher.follow(self._queue)
        roster = watcher.roster() if self._workers else None
        try:
            await self._serve(headers, send, track, roster)
        finally:
            gone.cancel()
            watcher.leave(self._news)
            if track is not None:
                watcher.unfollow(track)
            if roster is not None:
                watcher.leave_roster(roster)
            if session is not None:
                session.pages -= 1
                session.ended.remove(self.end)

    async def _serve(
        self, headers: list[tuple[bytes, bytes]], send: Send, track: Any, roster: Any
    ) -> None:
        watcher = self._access.watcher
        begin = {"type": "http.response.start", "status": 200, "headers": headers}
        await send(begin)
        tick, trouble, seen = 0, "", 0
        place = None if track is None else track.begin()
        chunk = b"retry: 1000\n\n"
        while not self.ended:
            if not await self._sent(send, chunk):
                return
            try:
                async with asyncio.timeout(SILENCE):
                    await self._news.wait()
            except TimeoutError:
                chunk = b": still here\n\n"
                continue
            self._news.clear()
            parts = []
            if watcher.trouble != trouble:
                trouble = watcher.trouble
                parts.append(frame("lost", {"error": trouble}) if trouble else frame("back", {}))
            if watcher.tick != tick:
                parts.append(watcher.stats_since(tick))
                tick = watcher.tick
            if track is not None:
                place, some = track.since(place)
                parts += some
            if roster is not None and roster.version != seen:
                seen = roster.version
                parts.append(roster.message)
            chunk = b"".join(parts)
        await self._sent(send, b"", more=False)

    async def _sent(self, send: Send, chunk: bytes, more: bool = True) -> bool:
        """Send; return False if the page does not read."""
        if more and not chunk:
            return True
        try:
            async with asyncio.timeout(PATIENCE):
                await send({"type": "http.response.body", "body": chunk, "more_body": more})
        except TimeoutError:
            await _abort(send)
            return False
        return True

    async def _until_gone(self, receive: Receive) -> None:
        with contextlib.suppress(Exception):
            while (await receive())["type"] != "http.disconnect":
                pass
        self.end()


async def _abort(send: Send) -> None:
    """Close a connection whose other end reads nothing, not even the end."""
    # uvicorn has no other way; without it the socket stays until the kernel times out.
    transport = getattr(getattr(send, "__self__", None), "transport", None)
    if transport is not None:
        transport.abort()
        await asyncio.sleep(0)
