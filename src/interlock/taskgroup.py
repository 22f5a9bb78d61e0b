"""``KeyedTaskGroup``: an ``asyncio.TaskGroup`` whose tasks carry keys."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any, TypeVar

from interlock.errors import Empty
from interlock.message import AsyncLease, Keys, _current
from interlock.queue import KeyedQueue

__all__ = ["KeyedTaskGroup"]

T = TypeVar("T")


class KeyedTaskGroup(asyncio.TaskGroup):
    """An ``asyncio.TaskGroup`` that starts a coroutine when its turn has come.

    Coroutines that share a key run in the order of ``create_task`` and never at the same time. As in
    asyncio, the first task that fails cancels all others of the group, those that wait for their
    turn too.

    Args:
        limit: most coroutines that run at once. Default: no limit.
    """

    def __init__(self, *, limit: int | None = None) -> None:
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool)):
            raise TypeError(f"KeyedTaskGroup(): limit is {type(limit).__name__}; allowed: int")
        if limit is not None and limit < 1:
            raise ValueError(f"KeyedTaskGroup(): limit is {limit}; allowed: 1 or more, or None")
        super().__init__()
        self._limit = limit
        self._running = 0
        self.queue: KeyedQueue[asyncio.Future[AsyncLease[Any]]] = KeyedQueue()

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        keys: Keys = (),
        shared: Keys = (),
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        """A task that runs ``coro`` when nothing before it conflicts, within the limit.

        Raises:
            TypeError, ValueError: a key is of a wrong type, empty, or too long.
            RuntimeError: the group is not entered, or is shutting down.
        """
        turn: asyncio.Future[AsyncLease[Any]] = asyncio.get_running_loop().create_future()
        try:
            id = self.queue.put(turn, keys=keys, shared=shared)
        except BaseException:
            coro.close()
            raise
        runner = self._run(coro, turn, id)
        try:
            task = super().create_task(runner, name=name, context=context)
        except BaseException:
            runner.close()
            coro.close()
            self.queue.cancel(id)
            raise
        # A task cancelled before its first step never runs a line of ``_run``.
        task.add_done_callback(lambda _: self._gone(coro, turn, id))
        self._start()
        return task

    async def _run(
        self, coro: Coroutine[Any, Any, T], turn: asyncio.Future[AsyncLease[Any]], id: int
    ) -> T:
        lease = await turn
        token = _current.set(lease)
        try:
            return await coro
        finally:
            _current.reset(token)

    def _gone(
        self, coro: Coroutine[Any, Any, Any], turn: asyncio.Future[AsyncLease[Any]], id: int
    ) -> None:
        coro.close()
        if turn.done() and not turn.cancelled():
            turn.result().ack()
            self._running -= 1
        else:
            turn.cancel()
            self.queue.cancel(id)
        self._start()

    def _start(self) -> None:
        while self._limit is None or self._running < self._limit:
            try:
                lease = self.queue.aio.get_nowait()
            except Empty:
                return
            self._running += 1
            if lease.payload.done():
                # Cancelled while it waited; its end has not come by yet.
                self._running -= 1
                lease.ack()
            else:
                lease.payload.set_result(lease)
