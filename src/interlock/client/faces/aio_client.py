"""The client of an engine, for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from interlock.client.faces.aio_queue import AsyncRemoteQueue
from interlock.client.faces.aio_table import AsyncRemoteTable
from interlock.client.requests.loop_calls import LoopSessions
from interlock.client.requests.queue_handle import Handle
from interlock.retry import Seconds
from interlock.table.row import Row

if TYPE_CHECKING:
    from interlock.client.faces.client import Client
    from interlock.client.faces.options import QueueOptions
    from interlock.client.row_requests import OnFull

T = TypeVar("T")
W = TypeVar("W", bound=Row)


class AsyncClient:
    """The asyncio face of a ``Client``; any number of event loops may use one."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._sessions = LoopSessions(client._engine, client._sessions)

    @property
    def url(self) -> str:
        """The client's URL without its password."""
        return self._client.url

    @overload
    def queue(
        self, name: str, type: type[T], **options: Unpack[QueueOptions]
    ) -> AsyncRemoteQueue[T]: ...
    @overload
    def queue(self, name: str, **options: Unpack[QueueOptions]) -> AsyncRemoteQueue[Any]: ...
    def queue(
        self, name: str, type: Any = Any, **options: Unpack[QueueOptions]
    ) -> AsyncRemoteQueue[Any]:
        """Return the queue of this name; see ``Client.queue``."""
        return AsyncRemoteQueue(self, self._client._handle_of(name, type, options))

    def table(
        self,
        name: str,
        row: type[W],
        *,
        capacity: int = 100_000,
        key_size: int = 32,
        ttl: Seconds | None = None,
        on_full: OnFull = "evict",
    ) -> AsyncRemoteTable[W]:
        """Return the state table of this name; see ``Client.table``."""
        return self._client.table(
            name, row, capacity=capacity, key_size=key_size, ttl=ttl, on_full=on_full
        ).aio

    async def close(self) -> None:
        """End the waiting calls on the running loop, and close its connections."""
        await self._sessions.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
        self._client.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.url}>"

    def _close_handle(self, handle: Handle) -> None:
        self._client._close_handle(handle)
