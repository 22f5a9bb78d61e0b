"""The asyncio face of a queue."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import inspect
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from interlock import _core, errors
from interlock.consumer import check, failed, give_back, revoke, settle
from interlock.message import (
    AsyncLease,
    AsyncLeaseBatch,
    Key,
    Keys,
    Kind,
    Message,
    Put,
    _current,
    _handlers,
)
from interlock.retry import Seconds, seconds
from interlock.runtime import forks
from interlock.runtime.concurrency import Behind, Names
from interlock.runtime.frames import as_text

if TYPE_CHECKING:
    from interlock.queue import KeyedQueue

__all__ = ["AsyncQueue"]

T = TypeVar("T")
R = TypeVar("R")

_BREATHE = 16


class Full(errors.Full, asyncio.QueueFull):
    """The queue has no room for the put (leased messages count)."""


class Empty(errors.Empty, asyncio.QueueEmpty):
    """No message is ready."""


if sys.version_info >= (3, 13):

    class ShutDown(errors.ShutDown, asyncio.QueueShutDown):
        """The queue is shut down: a put raises it immediately, a get when no unsettled message is
        left."""

else:
    ShutDown = errors.ShutDown


def of_asyncio(error: errors.InterlockError) -> errors.InterlockError:
    for kind, own in ((errors.Full, Full), (errors.Empty, Empty), (errors.ShutDown, ShutDown)):
        if isinstance(error, kind):
            return own(*error.args)
    return error


class AsyncQueue(_core.AsyncFace[T], Generic[T]):
    """A queue's asyncio face: the same messages, awaited.

    Cancelling a waiting call loses nothing. Any number of event loops, and threads on the other
    face, may use one queue. Calls that never wait (``explain``, ``cancel``, ``pause``, ``stats``)
    are on the queue itself. Calls mean the same as there, and raise the same errors.
    """

    __slots__ = ()
    queue: KeyedQueue[T]

    async def put(
        self,
        payload: T,
        *,
        timeout: Seconds | None = None,
        keys: Keys | None = None,
        shared: Keys | None = None,
        priority: int = 0,
        delay: Seconds = 0,
        dedup: str | None = None,
        barrier: bool = False,
        quiet: bool = False,
        limit: Names | None = None,
        group: str | None = None,
        behind: Behind | None = None,
        coalesce: Key | None = None,
        debounce: Seconds | None = None,
        longest: Seconds | None = None,
    ) -> int:
        """Put a message, waiting for room; see ``KeyedQueue.put``. Returns its id."""
        if timeout is not None:
            _check(timeout, "put()")
        queue = self.queue
        try:
            if coalesce is None and debounce is None and longest is None:
                put = queue._try_put(
                    payload,
                    keys,
                    shared,
                    priority,
                    delay,
                    dedup,
                    barrier,
                    quiet,
                    limit,
                    group,
                    behind,
                )
            else:
                put = queue._try_put_in_full(
                    payload, keys, shared, priority, delay, dedup, barrier, quiet, limit, group,
                    behind, coalesce, debounce, longest,
                )  # fmt: skip
            if isinstance(put, int):
                return put
            return (await _put(queue, put, timeout))[0]
        except (errors.Full, errors.ShutDown) as error:
            raise of_asyncio(error) from None

    async def put_known(
        self,
        payload: T,
        *,
        timeout: Seconds | None = None,
        keys: Keys | None = None,
        shared: Keys | None = None,
        priority: int = 0,
        delay: Seconds = 0,
        dedup: str | None = None,
        barrier: bool = False,
        quiet: bool = False,
        limit: Names | None = None,
        group: str | None = None,
        behind: Behind | None = None,
        coalesce: Key | None = None,
        debounce: Seconds | None = None,
        longest: Seconds | None = None,
    ) -> Put:
        """See ``KeyedQueue.put_known``."""
        if timeout is not None:
            _check(timeout, "put_known()")
        batch = self.queue._batch_of_one(
            payload, keys, shared, priority, delay, dedup, barrier, quiet, limit, group,
            behind, coalesce, debounce, longest,
        )  # fmt: skip
        try:
            look = _put_look(self.queue, batch, timeout, lambda wait: wait.put_known(batch))
            return Put(*await _wait(self.queue, look, timeout))
        except (errors.Full, errors.ShutDown) as error:
            raise of_asyncio(error) from None

    def put_nowait(
        self,
        payload: T,
        *,
        keys: Keys | None = None,
        shared: Keys | None = None,
        priority: int = 0,
        delay: Seconds = 0,
        dedup: str | None = None,
        barrier: bool = False,
        quiet: bool = False,
        limit: Names | None = None,
        group: str | None = None,
        behind: Behind | None = None,
        coalesce: Key | None = None,
        debounce: Seconds | None = None,
        longest: Seconds | None = None,
    ) -> int:
        """See ``KeyedQueue.put_nowait``."""
        try:
            return self.queue.put(
                payload,
                False,
                keys=keys,
                shared=shared,
                priority=priority,
                delay=delay,
                dedup=dedup,
                barrier=barrier,
                quiet=quiet,
                limit=limit,
                group=group,
                behind=behind,
                coalesce=coalesce,
                debounce=debounce,
                longest=longest,
            )
        except (errors.Full, errors.ShutDown) as error:
            raise of_asyncio(error) from None

    async def put_many(
        self,
        items: Iterable[T],
        *,
        timeout: Seconds | None = None,
        keys: Keys | Callable[[T], Keys] | None = None,
        shared: Keys | Callable[[T], Keys] | None = None,
        priority: int = 0,
        delay: Seconds = 0,
        dedup: Callable[[T], str | None] | None = None,
        quiet: bool = False,
        each_keys: Iterable[Keys | None] | None = None,
        each_shared: Iterable[Keys | None] | None = None,
        limit: Names | Callable[[T], Names | None] | None = None,
        group: str | Callable[[T], str | None] | None = None,
        behind: Behind | Callable[[T], Behind | None] | None = None,
        coalesce: Key | Callable[[T], Key | None] | None = None,
        debounce: Seconds | None = None,
        longest: Seconds | None = None,
    ) -> list[int]:
        """Put a batch, whole or not at all; see ``KeyedQueue.put_many``. Returns the ids."""
        if timeout is not None:
            _check(timeout, "put_many()")
        queue = self.queue
        batch = queue._batch(
            items, keys, shared, priority, delay, dedup, quiet, each_keys, each_shared, limit,
            group, behind, coalesce, debounce, longest,
        )  # fmt: skip
        try:
            return await _put(queue, batch, timeout)
        except (errors.Full, errors.ShutDown) as error:
            raise of_asyncio(error) from None

    async def get(self, *, timeout: Seconds | None = None, kind: Kind = "any") -> AsyncLease[T]:
        """Wait for a message; see ``KeyedQueue.get``."""
        if timeout is not None:
            _check(timeout, "get()")
        queue = self.queue
        try:
            lease = queue._try_get_async(kind)
            if lease is not None:
                return lease
            return await _next(queue, kind, timeout)
        except (errors.Empty, errors.ShutDown) as error:
            raise of_asyncio(error) from None

    def get_nowait(self, *, kind: Kind = "any") -> AsyncLease[T]:
        """See ``KeyedQueue.get_nowait``."""
        try:
            lease = self.queue._try_get_async(kind)
        except errors.ShutDown as error:
            raise of_asyncio(error) from None
        if lease is None:
            raise Empty("no message is ready")
        return lease

    async def get_many(
        self, limit: int, *, timeout: Seconds | None = None, kind: Kind = "any"
    ) -> AsyncLeaseBatch[T]:
        """Wait for at least one message, and take at most ``limit``; see ``LeaseBatch``."""
        if timeout is not None:
            _check(timeout, "get_many()")
        try:
            return await _wait(self.queue, lambda wait: wait.get_many_async(limit, kind), timeout)
        except (errors.Empty, errors.ShutDown) as error:
            raise of_asyncio(error) from None

    async def ack_many(self, leases: Iterable[AsyncLease[T]]) -> None:
        """Settle all these leases, or a batch; then raise the error of the first lost lease."""
        self.queue.ack_many(leases)  # type: ignore[arg-type]

    async def consume(
        self,
        handler: Callable[[T], Awaitable[object]],
        *,
        threads: int = 1,
        timeout: Seconds | None = None,
        kind: Kind = "any",
    ) -> None:
        """Await ``handler(payload)`` for every message, until the queue is shut down and drained.

        As ``KeyedQueue.consume``, with a task for each thread: ``threads`` is the number of
        handlers that run concurrently. Cancelling it cancels the handlers; their messages return to
        the queue unchanged, at the same attempt.
        """
        await _consume(self.queue, handler, threads, timeout, kind)

    async def join(self, timeout: Seconds | None = None) -> None:
        """Wait until every message is settled; see ``KeyedQueue.join``."""
        if timeout is None:
            self.queue._check_join()
        else:
            _check(timeout, "join()")
        try:
            await _wait(self.queue, lambda wait: wait.drained() or None, timeout)
        except TimeoutError:
            raise self.queue._not_drained() from None

    def qsize(self) -> int:
        """Return the number of messages that are not leased."""
        return self.queue.qsize()

    def empty(self) -> bool:
        """Return True if every queued message is leased."""
        return self.queue.empty()

    def full(self) -> bool:
        """Return True if a put would have to wait."""
        return self.queue.full()

    def shutdown(self, immediate: bool = False) -> list[Message[T]]:
        """See ``KeyedQueue.shutdown``."""
        return self.queue.shutdown(immediate)

    def task_done(self) -> NoReturn:
        """Raise TypeError: a message is settled through its lease."""
        self.queue.task_done()

    @property
    def is_shutdown(self) -> bool:
        """True once ``shutdown`` was called: puts are refused, and unsettled messages drain."""
        return self.queue.is_shutdown

    @property
    def unfinished_tasks(self) -> int:
        """Number of unsettled messages: those that ``join`` waits for."""
        return self.queue.unfinished_tasks

    @property
    def maxsize(self) -> int:
        """Maximum number of unsettled messages; 0 means no bound."""
        return self.queue.maxsize

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.queue!r}>"


_core.quicken(AsyncQueue)


def _check(timeout: Seconds, call: str) -> None:
    seconds(timeout, f"{call}: timeout")


async def _next(
    queue: KeyedQueue[T], kind: Kind, timeout: Seconds | None, *, to_the_end: bool = False
) -> AsyncLease[T]:
    return await _wait(queue, lambda wait: wait.get_async(kind, to_the_end), timeout)


async def _put(queue: KeyedQueue[Any], batch: _core.Batch, timeout: Seconds | None) -> list[int]:
    look = _put_look(queue, batch, timeout, lambda wait: wait.put(batch))
    return await _wait(queue, look, timeout)


def _put_look(
    queue: KeyedQueue[Any],
    batch: _core.Batch,
    timeout: Seconds | None,
    put: Callable[[_core.Waiter], R | None],
) -> Callable[[_core.Waiter], R | None]:
    task = asyncio.current_task()

    def look(wait: _core.Waiter) -> R | None:
        placed = put(wait)
        if placed is None and timeout is None and wait.lacks_room():
            # At the point where it would wait, not before: a put that finds room never deadlocks.
            queue._check_room(batch.call, id(task))
        return placed

    return look


async def _wait(
    queue: KeyedQueue[Any], look: Callable[[_core.Waiter], R | None], timeout: Seconds | None
) -> R:
    """Try now, and on each call, until there is a result or the time is up."""
    loop = asyncio.get_running_loop()
    place = _Place(loop)
    wait = place.wait = _core.Waiter(queue, place.call, timeout, id(loop))
    try:
        while True:
            # Made before the first try: a call may come from another thread immediately.
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


# -- Consumers ------------------------------------------------------------------------------------


async def _consume(
    queue: KeyedQueue[T],
    handler: Callable[[T], Awaitable[object]],
    threads: int,
    timeout: Seconds | None,
    kind: Kind,
) -> None:
    limit = check(handler, threads, timeout, kind)
    if threads > 1:
        queue._several_getters()

    async def work() -> None:
        done = 0
        _handlers.add(asyncio.current_task())
        while await _handle_next(queue, handler, limit, kind):
            done += 1
            if done % _BREATHE == 0:
                # A handler that awaits nothing must not keep its whole loop from running.
                await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for _ in range(threads):
            group.create_task(work())


async def _handle_next(
    queue: KeyedQueue[T],
    handler: Callable[[T], Awaitable[object]],
    timeout: float | None,
    kind: Kind,
) -> bool:
    task = asyncio.current_task()
    assert task is not None
    try:
        lease = queue._try_get_async(kind, id(task))
        if lease is None:
            lease = await _next(queue, kind, None, to_the_end=True)
    except errors.ShutDown:
        return False
    alarm = None
    if timeout is not None:
        # Before the lease becomes the current one: the loop keeps the alarm's context for long,
        # even after it was cancelled.
        loop = asyncio.get_running_loop()
        alarm = loop.call_later(timeout, _revoke, queue, lease, timeout, task)
    token = _current.set(lease)
    try:
        await called(handler, lease.payload)
    except (KeyboardInterrupt, SystemExit, GeneratorExit) as error:
        failed(queue, lease, error)
        raise
    except asyncio.CancelledError as error:
        if task.cancelling():
            give_back(lease)
            raise
        # Something that the handler awaited was cancelled; the consumer was not, and continues.
        failed(queue, lease, error, "was cancelled")
    except BaseException as error:
        failed(queue, lease, error)
    else:
        settle(lease.ack)
    finally:
        if alarm is not None:
            alarm.cancel()
        # A task collected with its loop ends in another context than the one it began in.
        with contextlib.suppress(ValueError):
            _current.reset(token)
    if task.cancelling():
        # The handler kept the exception to itself.
        raise asyncio.CancelledError
    return True


async def called(handler: Callable[[Any], Awaitable[object]], payload: object) -> None:
    """Await a handler of a message. A child process that it has forked ends here."""
    began = forks.count
    try:
        done = handler(payload)
        if inspect.isawaitable(done):
            await done
    except BaseException as error:
        forks.end_if_forked(began, error)
        raise
    forks.end_if_forked(began)


def _revoke(
    queue: KeyedQueue[Any], lease: AsyncLease[Any], timeout: float, task: asyncio.Task[Any]
) -> None:
    revoke(queue, lease, timeout, stack_of(task))


def stack_of(task: asyncio.Task[Any]) -> str:
    """Return the stack of a task, down to its handler's frame.

    The task reports only its outermost coroutine; the handler is further in.
    """
    frames = []
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None:
            frames.append((frame, frame.f_lineno))
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return as_text(frames) or "(no handler runs there)\n"


# -- How a queue calls a coroutine ----------------------------------------------------------------


class _Place:
    """Calls one waiting coroutine for a queue, from any thread."""

    __slots__ = ("_bridge", "_loop", "_thread", "future", "wait")

    future: asyncio.Future[None]
    wait: _core.Waiter

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._bridge = _bridge_of(loop)
        self._loop = loop
        self._thread = threading.get_ident()

    def call(self) -> None:
        # The short way only from a task of this loop. A signal handler or a destructor also runs in
        # this thread while the loop sleeps, and the loop would not notice.
        here = threading.get_ident() == self._thread
        if here and asyncio.current_task(self._loop) is not None:
            _resume(self.future)
        else:
            self._bridge.post(self)


class _Bridge:
    """Brings other threads' calls to a loop: a burst of calls wakes it once.

    ``call_soon_threadsafe`` writes to a pipe each time; here only the first of a burst does.
    """

    __slots__ = ("__weakref__", "_armed", "_loop", "_places")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._armed = False
        self._places: collections.deque[_Place] = collections.deque()

    def post(self, place: _Place) -> None:
        self._places.append(place)
        if self._armed and not self._loop.is_closed():
            return
        self._armed = True
        try:
            self._loop.call_soon_threadsafe(self._run)
        except BaseException:
            # The loop is closed. The queue learns of it from the error, and calls another waiter;
            # it must do the same for the waiters that were called before and did not run.
            self._armed = False
            while self._places:
                other = self._places.popleft()
                if other is not place:
                    other.wait.give_up()
            raise

    def _run(self) -> None:
        # Disarm first: calls posted from here on arm again, and none is left over.
        self._armed = False
        while self._places:
            _resume(self._places.popleft().future)


def _resume(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


# By the loop's identity, which is unique as long as the bridge exists. Waiters keep their bridge,
# and nothing else keeps a loop that was closed with some of them.
_bridges: weakref.WeakValueDictionary[int, _Bridge] = weakref.WeakValueDictionary()


def _bridge_of(loop: asyncio.AbstractEventLoop) -> _Bridge:
    bridge = _bridges.get(id(loop))
    if bridge is None:
        bridge = _bridges[id(loop)] = _Bridge(loop)
    return bridge
