"""The scope of handlers: resources that a program sets up before the first handler and releases
after the last.

A scope is an asynchronous context manager. One task of one loop enters, holds and leaves it,
because resources such as a task group or a connection pool may require that.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from contextlib import AbstractAsyncContextManager

__all__ = ["LONGEST_LEAVE", "HeldScope", "Scope", "ScopeThread"]

_log = logging.getLogger("interlock.worker")

Scope = AbstractAsyncContextManager[object]


class HeldScope:
    """A scope, and the task that holds it."""

    def __init__(self, scope: Scope) -> None:
        self.entered: concurrent.futures.Future[None] = concurrent.futures.Future()
        """Done once the scope is entered; with the error of a scope that could not be."""
        self.ended = threading.Event()
        """The scope was left, or could not be entered."""
        self.begun = asyncio.Event()
        """``entered`` is done: for the loop that holds it."""
        self._scope = scope
        self._leaving = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def hold(self) -> None:
        """Enter the scope, and leave it on request. Never raises, not even when cancelled."""
        self._loop = asyncio.get_running_loop()
        try:
            async with self._scope:
                self.entered.set_result(None)
                self.begun.set()
                await self._leaving.wait()
        except BaseException as error:
            if not self.entered.done():
                self.entered.set_exception(error)
            elif not isinstance(error, asyncio.CancelledError):
                _log.exception("the lifespan of the app raised when it was left")
        finally:
            self.ended.set()
            self.begun.set()

    def leave(self) -> None:
        """Request that the scope is left; may be called by any thread, and more than once."""
        if self._loop is not None and not self.ended.is_set():
            self._loop.call_soon_threadsafe(self._leaving.set)

    def left(self, seconds: float) -> None:
        """Have the scope left on another thread's loop, and wait up to ``seconds`` for it."""
        try:
            self.leave()
        except RuntimeError:
            # Its loop is closed.
            return
        if self._loop is not None and not self.ended.wait(seconds):
            _log.error(
                "leaving the lifespan of the app takes more than %.3g s; not waiting any longer",
                seconds,
            )


class ScopeThread:
    """A scope on its own loop, which runs on a thread for as long as the scope is held."""

    def __init__(self, scope: Scope) -> None:
        """Enter the scope. Raises what that raises."""
        self.held = HeldScope(scope)
        self.loop: asyncio.AbstractEventLoop | None = None
        thread = threading.Thread(target=self._run, name="interlock-lifespan", daemon=True)
        thread.start()
        self.held.entered.result()

    def close(self, seconds: float) -> None:
        """Leave the scope, and wait up to ``seconds`` for it."""
        self.held.left(seconds)

    def _run(self) -> None:
        try:
            asyncio.run(self._hold())
        except BaseException as error:
            # No loop, for lack of descriptors; or a task that the program left there ended it.
            if not self.held.entered.done():
                self.held.entered.set_exception(error)
            else:
                _log.exception("a task on the loop of the lifespan ended it")
            self.held.ended.set()

    async def _hold(self) -> None:
        self.loop = asyncio.get_running_loop()
        await self.held.hold()


LONGEST_LEAVE = 10.0
"""Seconds to wait for the end of a scope."""
