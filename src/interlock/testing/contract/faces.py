"""One interface to both faces of a queue, so that a body is written once.

Every call is awaited. On the sync face it runs before the await could suspend, so a body runs
without an event loop; on the asyncio face the face's awaitables are awaited.
"""

import inspect
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Any

from interlock import Empty, LeaseLost, ShutDown

Seconds = float | timedelta


class LeaseFace:
    """A lease whose settling is awaited on both faces."""

    def __init__(self, lease: Any, aio: bool) -> None:
        self._lease = lease
        self._aio = aio
        self.id: int = lease.id
        self.payload: Any = lease.payload
        self.attempt: int = lease.attempt
        self.token: int = lease.token
        self.queue: str = lease.queue

    def __repr__(self) -> str:
        return f"<lease of {self.id}, attempt {self.attempt}, payload {self.payload!r}>"

    @property
    def keys(self) -> frozenset[bytes]:
        keys: frozenset[bytes] = self._lease.keys
        return keys

    @property
    def shared(self) -> frozenset[bytes]:
        shared: frozenset[bytes] = self._lease.shared
        return shared

    @property
    def lost(self) -> bool:
        lost: bool = self._lease.lost
        return lost

    async def ack(self) -> None:
        await self._settle("ack")

    async def nack(
        self, delay: Seconds | None = None, error: BaseException | str | None = None
    ) -> None:
        await self._settle("nack", delay, error)

    async def reject(self, reason: str) -> None:
        await self._settle("reject", reason)

    async def release(self) -> None:
        await self._settle("release")

    async def extend(self, seconds: Seconds) -> None:
        await self._settle("extend", seconds)

    def drop(self) -> None:
        """Lose the last reference to the lease without settling it."""
        self._lease = None

    async def discard(self) -> None:
        """Ack unless it is settled: a trial's cleanup of leftover leases."""
        if self._lease is not None:
            with suppress(LeaseLost):
                await self.ack()

    async def __aenter__(self) -> Any:
        if self._aio:
            return await self._lease.__aenter__()
        return self._lease.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        if self._aio:
            swallow = await self._lease.__aexit__(kind, error, traceback)
        else:
            swallow = self._lease.__exit__(kind, error, traceback)
        return bool(swallow)

    async def _settle(self, name: str, *args: Any) -> None:
        answer = getattr(self._lease, name)(*args)
        if self._aio:
            assert inspect.isawaitable(answer), f"AsyncLease.{name}() must be awaited"
            answer = await answer
        assert answer is None


class QueueFace:
    """A queue seen through one of its faces."""

    def __init__(self, queue: Any, aio: Any | None, keep: Callable[[LeaseFace], None]) -> None:
        self.raw = queue
        self.aio = aio
        self._keep = keep

    # Putting and getting.

    async def put(
        self, payload: Any = None, block: Any = True, timeout: Any = None, **options: Any
    ) -> int:
        if self.aio is None:
            return int(self.raw.put(payload, block, timeout, **options))
        if not block:
            return await self.put_nowait(payload, **options)
        return int(await self._call("put", payload, timeout=timeout, **options))

    async def put_known(self, payload: Any = None, *, timeout: Any = None, **options: Any) -> Any:
        return await self._call("put_known", payload, timeout=timeout, **options)

    async def put_nowait(self, payload: Any = None, **options: Any) -> int:
        return int(await self._call("put_nowait", payload, **options))

    async def put_many(
        self, payloads: Iterable[Any], block: Any = True, timeout: Any = None, **options: Any
    ) -> list[int]:
        waits = self._waits(block, timeout)
        ids: list[int] = await self._call("put_many", payloads, **waits, **options)
        return ids

    async def get(self, block: Any = True, timeout: Any = None, **options: Any) -> LeaseFace:
        if self.aio is None:
            return self._wrap(self.raw.get(block, timeout, **options))
        if not block:
            return await self.get_nowait(**options)
        return self._wrap(await self._call("get", timeout=timeout, **options))

    async def get_nowait(self, **options: Any) -> LeaseFace:
        return self._wrap(await self._call("get_nowait", **options))

    async def get_many(
        self, limit: int, block: Any = True, timeout: Any = None, **options: Any
    ) -> list[LeaseFace]:
        waits = self._waits(block, timeout)
        return [
            self._wrap(lease) for lease in await self._call("get_many", limit, **waits, **options)
        ]

    async def ack_many(self, leases: Iterable[LeaseFace]) -> None:
        await self._call("ack_many", [lease._lease for lease in leases])

    async def ready(self, **options: Any) -> list[LeaseFace]:
        """Lease everything leasable now, in the order of the leases."""
        leases = []
        with suppress(Empty, ShutDown):
            while True:
                leases.append(await self.get_nowait(**options))
        return leases

    async def loose(self) -> Any:
        """Return the engine's own lease, to be lost: only the caller has a reference to it."""
        return await self._call("get_nowait")

    async def one(self) -> LeaseFace:
        """Lease the one leasable message; fail on none and on a second."""
        leases = await self.ready()
        assert len(leases) == 1, f"exactly one message should be ready: {leases}"
        return leases[0]

    async def payloads(self) -> list[Any]:
        """Return the payloads of everything leasable now, and leave them leased."""
        return [lease.payload for lease in await self.ready()]

    async def handle(self) -> list[Any]:
        """Lease and ack one message after the other until none is ready; return the payloads."""
        payloads = []
        with suppress(Empty, ShutDown):
            while True:
                lease = await self.get_nowait()
                payloads.append(lease.payload)
                await lease.ack()
        return payloads

    async def consume(self, handler: Callable[[Any], Any], **options: Any) -> Any:
        return await self._call("consume", handler, **options)

    async def result(self, id: int) -> Any:
        return await self._call("result", id)

    # Watching.

    async def stats(self) -> Any:
        return await self._call("stats")

    async def explain(self, id: int | None = None, **options: Any) -> Any:
        return await (
            self._call("explain", **options) if id is None else self._call("explain", id, **options)
        )

    async def roots(self, *limit: int, **options: Any) -> Any:
        return await self._call("roots", *limit, **options)

    async def hot_keys(self, n: int) -> list[Any]:
        return list(await self._call("hot_keys", n))

    async def limits(self, n: int = 100) -> list[Any]:
        return list(await self._call("limits", n))

    async def qsize(self) -> int:
        return int(await self._call("qsize"))

    async def empty(self) -> bool:
        return bool(await self._call("empty"))

    async def configure(self, **options: Any) -> Any:
        return await self._call("configure", **options)

    async def full(self) -> bool:
        return bool(await self._call("full"))

    async def state(self, id: int) -> str:
        """Return the state of one unsettled message, as explain returns it."""
        state: str = (await self.explain(id)).nodes[0].state
        return state

    # Operating.

    async def cancel(self, id: int) -> bool:
        return self._flag(await self._call("cancel", id))

    async def revoke(self, id: int, **options: Any) -> bool:
        return self._flag(await self._call("revoke", id, **options))

    async def retry(self, id: int) -> bool:
        return self._flag(await self._call("retry", id))

    async def skip(self, id: int) -> bool:
        return self._flag(await self._call("skip", id))

    async def bury(self, id: int) -> bool:
        return self._flag(await self._call("bury", id))

    async def requeue(self, id: int) -> int:
        new: int = await self._call("requeue", id)
        return new

    async def discard(self, id: int) -> bool:
        return self._flag(await self._call("discard", id))

    async def purge(self, *what: Any, **of: Any) -> int:
        purged: int = await self._call("purge", *what, **of)
        return purged

    async def messages(self, *args: Any, **options: Any) -> list[Any]:
        return list(await self._call("messages", *args, **options))

    async def dead_letters(self, *args: Any, **options: Any) -> list[Any]:
        return list(await self._call("dead_letters", *args, **options))

    async def pause(self, *key: Any) -> bool:
        return self._flag(await self._call("pause", *key))

    async def resume(self, *key: Any) -> bool:
        return self._flag(await self._call("resume", *key))

    async def join(self, timeout: float | None = None) -> None:
        await self._call("join", timeout)

    async def shutdown(self, **options: Any) -> list[Any]:
        return list(await self._call("shutdown", **options))

    @staticmethod
    def _flag(answer: object) -> bool:
        assert isinstance(answer, bool), f"expected True or False: {answer!r}"
        return answer

    def _waits(self, block: bool, timeout: Any) -> dict[str, Any]:
        """Return the options of the wait for the face under test.

        The asyncio face, like asyncio.Queue, has no `block`; not waiting is a timeout of 0.
        """
        if self.aio is None:
            return {"block": block, "timeout": timeout}
        return {"timeout": timeout if block else 0}

    def _wrap(self, lease: Any) -> LeaseFace:
        wrapped = LeaseFace(lease, self.aio is not None)
        self._keep(wrapped)
        return wrapped

    async def _call(self, name: str, *args: Any, **options: Any) -> Any:
        """Call the face under test; calls that the asyncio face lacks go to the queue itself."""
        if self.aio is None:
            return getattr(self.raw, name)(*args, **options)
        answer = getattr(self.aio if hasattr(self.aio, name) else self.raw, name)(*args, **options)
        if inspect.isawaitable(answer):
            return await answer
        assert name not in _AWAITED, f"AsyncQueue.{name}() must be awaited"
        return answer


_AWAITED = frozenset({"put", "put_known", "get", "put_many", "get_many", "join"})
