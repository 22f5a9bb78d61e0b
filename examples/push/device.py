"""An app on somebody's telephone, without the telephone: what the page does, in Python."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

import frames


class Device:
    """A user's app. Comes back when its gateway is gone, and sends again what was not answered."""

    def __init__(self, user: str, urls: list[str], *, is_nervous: bool = False) -> None:
        self.user = user
        self.is_nervous = is_nervous
        """True if it sends all messages twice, as if it had lost each answer."""
        self.messages: list[frames.Message] = []
        """All that it has shown, in order."""
        self.badge = 0
        self.gateway = ""
        self.online: list[tuple[str, str, bool]] = []
        self._urls = urls
        self.unsent: dict[str, frames.Send] = {}
        """Messages that no gateway has confirmed, by their ref."""
        self._is_background = False
        self._socket: ClientConnection | None = None
        self._changed = asyncio.Condition()
        self._task = asyncio.create_task(self._run())

    async def send(self, to: str, text: str) -> None:
        """Send a message, now or when there is a connection again."""
        frame = frames.Send(to, text, uuid.uuid4().hex)
        self.unsent[frame.ref] = frame
        for _ in range(1 + self.is_nervous):
            await self._tell(frame)

    async def background(self) -> None:
        """Put the telephone into a pocket."""
        self._is_background = True
        await self._tell(frames.Background())

    async def foreground(self) -> None:
        """Look at it again."""
        self._is_background = False
        await self._tell(frames.Foreground(self._after))

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(30), self._changed:
            await self._changed.wait_for(is_so)

    async def close(self) -> None:
        """Turn the telephone off."""
        self._task.cancel()
        await asyncio.wait([self._task])

    @property
    def _after(self) -> int:
        return self.messages[-1].number if self.messages else 0

    async def _run(self) -> None:
        turn = 0
        while True:
            try:
                async with connect(self._urls[turn % len(self._urls)]) as self._socket:
                    login = frames.Login(
                        self.user, f"device-of-{self.user}", 666, self._after, self._is_background
                    )
                    await self._socket.send(frames.encode(login).decode())
                    for frame in list(self.unsent.values()):
                        await self._tell(frame)
                    async for text in self._socket:
                        await self._take(frames.to_app.decode(text))
            except (OSError, ConnectionClosed):
                pass
            self._socket = None
            turn += 1
            await asyncio.sleep(0.05)

    async def _take(self, frame: frames.ToApp) -> None:
        match frame:
            case frames.Welcome(gateway, urls, _):
                self.gateway, self._urls = gateway, urls
            case frames.Sent(ref):
                self.unsent.pop(ref, None)
            case frames.Message():
                await self._show([frame])
            case frames.Missed(messages):
                await self._show(messages)
            case frames.Badge(unread):
                self.badge = unread
            case frames.Online(users):
                self.online = users
        async with self._changed:
            self._changed.notify_all()

    async def _show(self, messages: list[frames.Message]) -> None:
        """Show what is new: a message may be repeated, but never before one with a lower number."""
        new = [message for message in messages if message.number > self._after]
        self.messages += new
        if new:
            await self._tell(frames.Seen(self._after))

    async def _tell(self, frame: frames.FromApp) -> None:
        try:
            if self._socket is not None:
                await self._socket.send(frames.encode(frame).decode())
        except ConnectionClosed:
            pass  # messages that must not be lost are sent again over the next connection
