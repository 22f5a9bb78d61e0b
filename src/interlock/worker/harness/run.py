"""Runs the handlers of a test worker immediately, in the caller's thread or task."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from interlock.message import _current
from interlock.worker.message.execution import Invocation, Outcome, TaskLease, judge

__all__ = ["HandlerRuns"]

R = TypeVar("R")
Ran = tuple[Outcome, BaseException | None]


class HandlerRuns:
    """Runs handlers, and counts the running ones."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        """The loop of the lifespan, on its own thread, where coroutine functions run too.

        None: no loop is running, or it is the caller's.
        """
        self._running = 0
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def inside(self) -> bool:
        """The caller is a handler."""
        return _depth.get() > 0

    @property
    def others(self) -> bool:
        """A handler runs that is not an ancestor of the caller."""
        return self._running > _depth.get()

    def run(self, invocation: Invocation, held: TaskLease) -> Ran:
        """Run one in this thread; if a loop runs here, run a coroutine function on another
        thread."""
        with self._begun(held):
            try:
                result = self._awaited(invocation) if invocation.is_async else invocation.run()
            except BaseException as error:
                return judge(invocation.retry, held, error), error
        return Outcome("ack", result), None

    async def arun(self, invocation: Invocation, held: TaskLease) -> Ran:
        """Run one in this task; a plain function too, although it blocks the task."""
        with self._begun(held):
            try:
                if not invocation.is_async:
                    result = invocation.run()
                elif self.loop is None or self.loop is asyncio.get_running_loop():
                    result = await invocation.arun()
                else:
                    result = await asyncio.wrap_future(_on(self.loop, invocation.arun()))
            except BaseException as error:
                task = asyncio.current_task()
                if isinstance(error, asyncio.CancelledError) and task and task.cancelling():
                    # The test is over, or gives up; its message is no longer needed.
                    raise
                return judge(invocation.retry, held, error), error
        return Outcome("ack", result), None

    async def another_ended(self) -> None:
        """Wait until a handler has ended."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    @contextmanager
    def _begun(self, held: TaskLease) -> Iterator[None]:
        self._running += 1
        token, depth = _current.set(held), _depth.set(_depth.get() + 1)
        try:
            yield
        finally:
            _current.reset(token)
            _depth.reset(depth)
            self._running -= 1

    def settled(self) -> None:
        """Wake the waiters after a handler has ended and its message is settled."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            future.get_loop().call_soon_threadsafe(_done, future)

    def _awaited(self, invocation: Invocation) -> bytes | None:
        if self.loop is not None:
            return _on(self.loop, invocation.arun()).result()
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(invocation.arun())
        return _elsewhere(lambda: asyncio.run(invocation.arun()))


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _on(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, R]) -> Future[R]:
    """Run a coroutine on the loop of another thread, in a copy of this context."""
    context = contextvars.copy_context()
    # Its task is made there, in the context of the call.
    return context.run(asyncio.run_coroutine_threadsafe, coroutine, loop)


def _elsewhere(call: Callable[[], R]) -> R:
    found: list[R] = []
    raised: list[BaseException] = []

    def work() -> None:
        try:
            found.append(call())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(work,))
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return found[0]


_depth = contextvars.ContextVar("interlock_test_handlers", default=0)
"""The number of handlers that this context is nested in."""
