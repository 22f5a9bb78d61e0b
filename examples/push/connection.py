"""A connection to an app: what it is owed waits in a bounded queue, so that nobody waits for it."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from frames import Message, Missed, ToApp, encode

OWED = 1000
"""Frames that may wait for an app."""


class Connection:
    """One app of a user who has logged in."""

    def __init__(self, user: str, socket: ServerConnection) -> None:
        self.user = user
        self.id = uuid.uuid4().hex
        self.is_live = False
        """True once it has all that came before: until then messages are among what it missed."""
        self._socket = socket
        self._owed = asyncio.Queue[ToApp](OWED)

    def show(self, frame: ToApp) -> None:
        """Send a frame, in its order, when the app can take it."""
        if isinstance(frame, Message) and not self.is_live:
            return
        if isinstance(frame, Missed) and frame.last:
            self.is_live = True
        try:
            self._owed.put_nowait(frame)
        except asyncio.QueueFull:
            # It reconnects, and gets from the inbox the messages that it has not seen.
            self.close("too slow")

    async def write(self) -> None:
        """Send what is owed, for as long as the connection lasts."""
        with suppress(ConnectionClosed):
            while True:
                await self._socket.send(encode(await self._owed.get()).decode())

    def close(self, why: str) -> None:
        """Close it without waiting for the app."""
        self._closing = asyncio.create_task(self._socket.close(4000, why))
