"""A queue on an engine as the suite asks for it, and what none outside the process can hold."""

from __future__ import annotations

from typing import Any

from interlock.engine.aio import AsyncRemoteQueue
from interlock.engine.client import Client
from interlock.engine.queue import RemoteQueue

CAPABILITIES: dict[int | str, str] = {
    "08_there_is_no_deadline_unless_asked_for": (
        "across processes a lease lasts 30 s unless it is renewed (clause 8)"
    ),
    "08_extend_gives_a_deadline_to_a_lease_without_one": (
        "across processes a lease lasts 30 s unless it is renewed (clause 8)"
    ),
}


class Queue(RemoteQueue[Any]):
    """A remote queue whose `shutdown` is what an engine has in its place: `seal`."""

    def __init__(self, client: Client, name: str, options: dict[str, Any]) -> None:
        options = dict(options)
        options.pop("sizeof", None)
        # A case moves the clock by hours; leases do not run out unless it asks for that.
        options.setdefault("lease", 3 * 365 * 86_400)
        super().__init__(client, client._handle_of(name, Any, options))  # type: ignore[arg-type]

    @property
    def aio(self) -> AsyncRemoteQueue[Any]:
        return AsyncQueue(self._client.aio, self._handle)

    def shutdown(self, immediate: bool = False) -> list[Any]:
        self.seal()
        if immediate:
            self.purge()
        return []


class AsyncQueue(AsyncRemoteQueue[Any]):
    """The same on the asyncio face."""

    async def shutdown(self, immediate: bool = False) -> list[Any]:
        await self.seal()
        if immediate:
            await self.purge()
        return []
