"""The topics of the hub, one for each gateway; by redis-py, as any client of Redis will do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff


class Topics:
    """Connections to the hub: one that subscribes, and some to publish."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        # It must not connect again unseen: what was published meanwhile would be missing, and its
        # apps would not know. It ends, and they come back to another gateway, which catches up.
        # (Any: redis-py does not say of what its messages are.)
        self._hub: Any = Redis(host=host, port=int(port), retry=Retry(NoBackoff(), 0))
        self._subscriber: Any = self._hub.pubsub()

    async def publish(self, gateway: str, message: bytes) -> None:
        """Give a message to a gateway. When this returns the hub has given it its place."""
        await self._hub.publish(f"gateway:{gateway}", message)

    async def subscribe(self, gateway: str) -> None:
        """Subscribe to a gateway's topic; what is published from now on will come."""
        await self._subscriber.subscribe(f"gateway:{gateway}")
        await self._subscriber.get_message(timeout=20)  # the hub's confirmation

    async def messages(self) -> AsyncIterator[bytes]:
        """Give what is published, for as long as the hub is there."""
        async for message in self._subscriber.listen():
            if message["type"] == "message":
                yield message["data"]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await self._subscriber.aclose()
        await self._hub.aclose()
