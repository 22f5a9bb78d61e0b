"""The asyncio face of a queue."""

from __future__ import annotations

import asyncio
import collections
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from interlock import _core
from interlock.message import AsyncLease, Keys
from interlock.retry import Seconds

if TYPE_CHECKING:
    from interlock.queue import KeyedQueue

__all__ = ["AsyncQueue"]

T = TypeVar("T")
R = TypeVar("R")

Kind = Literal["any", "keyed", "unkeyed"]


class AsyncQueue(Generic[T]):
    """A queue's asyncio face: the same messages, awaited.

    Cancelling a call that waits loses nothing. Any number of event loops, and threads on the other
    face, may use one queue. What never waits (``explain``, ``cancel``, ``pause``, ``stats``, ...) is
    on the queue itself.
    """

    __slots__ = ("queue",)

    def __init__(self, queue: KeyedQueue[T]) -> None:
        self.queue = queue

    async def put(
        self,
        payload: T,
        *,
        timeout: Seconds | None = None,
        keys: Keys | None = None,
        shared: Keys | None = None,
        priority: int | None = None,
        delay: Seconds | None = None,
        dedup: str | None = None,
        barrier: bool = False,
        quiet: bool = False,
    ) -> int:
        """Puts a message, waiting for room; see ``KeyedQueue.put``."""
        queue = self.queue
        id = queue._try_put(payload, keys, shared, priority, delay, dedup, barrier, quiet)
        if id is not None:
            return id
        named = {
            "keys": _kept(keys),
            "shared": _kept(shared),
            "priority": priority,
            "delay": delay,
            "dedup": dedup,
            "barrier": barrier,
            "quiet": quiet,
        }
        return (await _wait(queue, lambda wait: wait.put_many([payload], [named]), timeout))[0]

    def put_nowait(self, payload: T, **options: Any) -> int:
        """See ``KeyedQueue.put_nowait``."""
        return self.queue.put_nowait(payload, **options)

    async def put_many(
        self, items: Iterable[T], *, timeout: Seconds | None = None, **options: Any
    ) -> list[int]:
        """Puts a batch, whole or not at all; see ``KeyedQueue.put_many``."""
        from interlock.queue import batch_options

        payloads = list(items)
        named = batch_options(payloads, **options)
        return await _wait(self.queue, lambda wait: wait.put_many(payloads, named), timeout)

    async def get(
        self, *, kind: Kind | None = None, timeout: Seconds | None = None
    ) -> AsyncLease[T]:
        """Waits for a message; see ``KeyedQueue.get``."""
        queue = self.queue
        lease = queue._try_get_async(kind)
        if lease is not None:
            return lease
        return await _wait(queue, lambda wait: wait.get_async(kind or "any"), timeout)

    def get_nowait(self, *, kind: Kind | None = None) -> AsyncLease[T]:
        """See ``KeyedQueue.get_nowait``."""
        lease = self.queue._try_get_async(kind)
        if lease is None:
            from interlock.errors import Empty

            raise Empty("no message is ready")
        return lease

    async def get_many(
        self, limit: int, *, kind: Kind | None = None, timeout: Seconds | None = None
    ) -> list[AsyncLease[T]]:
        """Waits for at least one message, and takes at most ``limit``."""
        if limit < 1:
            raise ValueError(f"get_many(): limit is {limit}; allowed: 1 or more")
        return await _wait(
            self.queue, lambda wait: wait.get_many_async(limit, kind or "any"), timeout
        )

    async def ack_many(self, leases: Iterable[AsyncLease[T]]) -> None:
        """Settles all these leases; the first lost one is raised when the others are settled."""
        self.queue.ack_many(list(leases))

    async def join(self, timeout: Seconds | None = None) -> None:
        """Waits until nothing is unsettled; see ``KeyedQueue.join``."""
        from interlock.queue import not_drained

        try:
            await _wait(self.queue, lambda wait: wait.drained() or None, timeout)
        except Exception as error:
            from interlock.errors import Empty

            if isinstance(error, Empty):
                raise not_drained(self.queue) from None
            raise

    def qsize(self) -> int:
        """Messages that are not leased."""
        return self.queue.qsize()

    def empty(self) -> bool:
        """No message is queued that is not leased."""
        return self.queue.empty()

    def full(self) -> bool:
        """A put would have to wait."""
        return self.queue.full()

    def shutdown(self, immediate: bool = False) -> list[Any]:
        """See ``KeyedQueue.shutdown``."""
        return self.queue.shutdown(immediate)

    def __repr__(self) -> str:
        return f"<AsyncQueue of {self.queue!r}>"


def _kept(keys: Keys | None) -> Keys | None:
    # An iterator was used up by the first look; whoever waits must be able to look again.
    return tuple(keys) if hasattr(keys, "__next__") else keys  # type: ignore[arg-type]


async def _wait(
    queue: KeyedQueue[Any], look: Callable[[_core.Waiter], R | None], timeout: Seconds | None
) -> R:
    """Looks, and looks again when called, until there is something or the time is up."""
    loop = asyncio.get_running_loop()
    place = _Place(loop)
    wait = _core.Waiter(queue, place.call, timeout)
    try:
        while True:
            # Made before the look: a call may come from another thread at once.
            future = place.future = loop.create_future()
            found = look(wait)
            if found is not None:
                return found
            left = wait.left
            if left is None:
                await future
                continue
            alarm = loop.call_later(left, _resume, future)
            try:
                await future
            finally:
                alarm.cancel()
    finally:
        wait.give_up()


class _Place:
    """Where a queue calls one waiting coroutine, from whatever thread."""

    __slots__ = ("_bridge", "_thread", "future")

    future: asyncio.Future[None]

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._bridge = _bridge_of(loop)
        self._thread = threading.get_ident()

    def call(self) -> None:
        if threading.get_ident() == self._thread:
            _resume(self.future)
        else:
            self._bridge.post(self.future)


class _Bridge:
    """Brings calls of other threads to a loop: a burst of them wakes it once.

    ``call_soon_threadsafe`` writes to a pipe each time; here only the first of a burst does.
    """

    __slots__ = ("_armed", "_futures", "_loop", "__weakref__")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._armed = False
        self._futures: collections.deque[asyncio.Future[None]] = collections.deque()

    def post(self, future: asyncio.Future[None]) -> None:
        self._futures.append(future)
        if self._armed:
            return
        self._armed = True
        loop = self._loop()
        try:
            if loop is None:
                raise RuntimeError("the event loop is gone")
            loop.call_soon_threadsafe(self._run)
        except RuntimeError:
            # Closed: the queue learns of it and calls somebody else.
            self._armed = False
            self._futures.clear()
            raise

    def _run(self) -> None:
        # Disarm first: what is posted from here on arms again, and nothing is left lying.
        self._armed = False
        while self._futures:
            _resume(self._futures.popleft())


def _resume(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


_bridges: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Bridge] = (
    weakref.WeakKeyDictionary()
)


def _bridge_of(loop: asyncio.AbstractEventLoop) -> _Bridge:
    bridge = _bridges.get(loop)
    if bridge is None:
        bridge = _bridges.setdefault(loop, _Bridge(loop))
    return bridge
