"""The asyncio face of a client on one event loop: its sessions, leases and the task for them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from interlock.engine.call import Engine
from interlock.engine.handle import Handle
from interlock.engine.renewal import LeaseRenewer
from interlock.engine.request import Abandoned, Request
from interlock.engine.session import Session, finish_async, run_async
from interlock.errors import EngineUnavailable, ShutDown

R = TypeVar("R")
_log = logging.getLogger("interlock.queue")
_FAREWELL = 1.0
"""Seconds for which a cancelled call waits until what it leased is given back; then that goes on
without it."""
_AGAIN = 0.5
"""Seconds after which an engine that was not there is tried again."""


class Home:
    """One loop's part of a client. Only that loop uses it, but for `ring` and `wake`."""

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self._engine = engine
        self._loop = loop
        self._free: list[Session[Any]] = []
        self._busy: dict[Session[Any], Handle | None] = {}
        self._bell = asyncio.Event()
        self._settling = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.renewer = LeaseRenewer(self.ring)

    async def run(
        self, make: Callable[[Session[Any]], Request[R]], handle: Handle | None, shown: str
    ) -> R:
        """Runs a request on a session of its own."""
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._renew_leases(), name="interlock-leases")
        session = (
            self._free.pop()
            if self._free
            else Session(self._engine.consumer(), self._engine.async_link)
        )
        self._busy[session] = handle
        left: list[Request[Any]] = []
        mine = True
        try:
            if self.renewer.has_abandoned:
                await self._settle_abandoned(session)
            return await run_async(make(session), session, left.append)
        except Abandoned:
            raise ShutDown(f"this handle of {shown} is closed") from None
        except asyncio.CancelledError:
            if left:
                task = self._loop.create_task(self._finish(left.pop(), session))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                mine = False
                # So that what was leased is there again when the cancelled call has ended.
                until = self._loop.time() + _FAREWELL
                while not task.done() and (left_over := until - self._loop.time()) > 0:
                    # Cancelled again, as a task group does: it ends soon enough.
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.wait([task], timeout=left_over)
            raise
        finally:
            if mine:
                self._give(session)

    def ring(self) -> None:
        """Has the task look; from any thread, and out of destructors."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._bell.set)

    def wake(self, handle: Handle | None) -> None:
        """Ends the waits of a handle that is closed, None: of all; from any thread."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._interrupt, handle)

    async def close(self) -> None:
        """Ends what waits, gives back what was dropped, closes the connections."""
        self._interrupt(None)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._engine.target.timeout)
        while self._free:
            self._free.pop().close()

    def _interrupt(self, handle: Handle | None) -> None:
        for session, user in list(self._busy.items()):
            if handle is None or user is handle:
                session.interrupt()

    def _give(self, session: Session[Any]) -> None:
        self._busy.pop(session, None)
        session.rest()
        if self._task is None or self._task.done():
            # The loop ends, or this was closed.
            session.close()
        else:
            self._free.append(session)

    async def _finish(self, request: Request[Any], session: Session[Any]) -> None:
        await finish_async(request, session)
        self._give(session)

    async def _renew_leases(self) -> None:
        session: Session[Any] = Session(self._engine.consumer(), self._engine.async_link)
        try:
            while True:
                self._bell.clear()
                left = await self._look(session)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._bell.wait()
        finally:
            # asyncio.run cancels this task when the loop ends without a word: nobody else closes.
            for other in [session, *self._free]:
                other.close()

    async def _settle_abandoned(self, session: Session[Any]) -> None:
        async with self._settling:
            await run_async(self.renewer.settle_abandoned(session), session)

    async def _look(self, session: Session[Any]) -> float | None:
        try:
            await self._settle_abandoned(session)
            return await run_async(self.renewer.tick(session), session)
        except EngineUnavailable as error:
            _log.warning("%s", error)
        except Exception:
            _log.exception("leases could not be renewed")
        return _AGAIN
