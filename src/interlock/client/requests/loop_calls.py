"""Calls in asyncio: the calling task runs its request on its own session.

The counterpart for threads is `sessions`. Each event loop has its sessions, its leases and the task
that renews them.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from interlock.aio import of_asyncio
from interlock.client.connection.call import Engine
from interlock.client.request import Abandoned, Broken, Nap, Refused, Request
from interlock.client.requests.lease_renewal import LeaseRenewer
from interlock.client.requests.loop_puts import LoopPuts
from interlock.client.session import Session
from interlock.errors import EngineUnavailable, InterlockError, ShutDown
from interlock.message import Put
from interlock.watch import log

if TYPE_CHECKING:
    from interlock.client.requests.queue_handle import Handle
    from interlock.client.requests.thread_calls import ThreadSessions

P = ParamSpec("P")
R = TypeVar("R")
Make = Callable[Concatenate[Session[Any], P], Request[R]]
Leave = Callable[[Request[Any]], None]
"""Sent into a request whose caller leaves in the middle of it; its cleanup runs elsewhere."""
_FAREWELL = 1.0
"""Seconds for which a cancelled call waits until its leases are returned; then that continues
without it."""
_ALWAYS = 1e9
"""Seconds, longer than a loop lives."""
_AGAIN = 0.5
"""Seconds after which an unreachable engine is tried again."""


class LoopSessions:
    """The sessions of a client in its event loops; any number of them may use it."""

    def __init__(self, engine: Engine, threads: ThreadSessions) -> None:
        self._engine = engine
        self._threads = threads
        self._in_memory = engine.memory is not None
        self._homes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Home] = (
            weakref.WeakKeyDictionary()
        )

    @property
    def alive(self) -> bool:
        """False once the client is closed."""
        return self._threads.alive

    @property
    def renewer(self) -> LeaseRenewer:
        """The leases of the running loop."""
        return self._home().renewer

    async def run(
        self, user: Handle | None, make: Make[P, R], *arguments: P.args, **named: P.kwargs
    ) -> R:
        """Run the request that `make` makes of a session and the arguments.

        See `ThreadSessions.run`. If cancelled, it returns the messages that the request leased.
        """
        try:
            if not self._threads.alive:
                raise ShutDown(f"the client of {self._engine.target.shown} is closed")
            return await self._home().run(user, lambda on: make(on, *arguments, **named))
        except InterlockError as error:
            raise of_asyncio(error) from error.__cause__

    async def put(self, user: Handle, *arguments: Any, **named: Any) -> Put:
        """Put one message, together with those that other tasks of the loop put; see `Handle`."""
        if self._in_memory:
            # It answers at once: nothing would gather.
            return await self.run(user, user.put, *arguments, **named)
        if not self._threads.alive:
            raise of_asyncio(ShutDown(f"the client of {self._engine.target.shown} is closed"))
        asked = user.put_arguments(*arguments, **named)
        loop = asyncio.get_running_loop()
        puts = user.loop_puts.get(loop)
        if puts is None:
            puts = user.loop_puts[loop] = LoopPuts(
                lambda sends: self.run(user, user.put_together, sends),
                lambda message, end, bounded: self.run(
                    user, user.put_message, message, end, bounded
                ),
                self._engine.target.timeout,
                user.linger,
            )
            self._home().puts.add(puts)
        try:
            return await puts.put(*asked)
        except InterlockError as error:
            raise of_asyncio(error) from error.__cause__

    def interrupt(self, user: Handle | None) -> None:
        """End the calls of a handle, or with None all calls; from any thread."""
        for home in list(self._homes.values()):
            home.wake(user)

    async def close(self) -> None:
        """End the waiting calls on the running loop, and close its connections."""
        home = self._homes.pop(asyncio.get_running_loop(), None)
        if home is not None:
            await home.close()

    def _home(self) -> Home:
        loop = asyncio.get_running_loop()
        home = self._homes.get(loop)
        if home is None:
            home = self._homes[loop] = Home(self._engine, loop)
        return home


class _Life:
    """Held only by a timer of a loop. When the loop is closed, its leases are no longer renewed
    natively."""

    def __init__(self, renewer: LeaseRenewer) -> None:
        self._renewer = renewer

    def last(self) -> None:
        """Do nothing: the timer exists to hold this object."""

    def __del__(self) -> None:
        self._renewer.stop()


class Home:
    """One loop's part of a client. Only that loop uses it, except for `ring` and `wake`."""

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self._engine = engine
        self._loop = loop
        self._free: list[Session[Any]] = []
        self._busy: dict[Session[Any], Handle | None] = {}
        self._bell = asyncio.Event()
        self._settling = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.puts: weakref.WeakSet[LoopPuts] = weakref.WeakSet()
        self.renewer = LeaseRenewer(self.ring, engine.renewals())
        # A loop may be closed silently: its tasks are not cancelled then, but its timers are
        # released.
        loop.call_later(_ALWAYS, _Life(self.renewer).last)

    async def run(self, user: Handle | None, make: Callable[[Session[Any]], Request[R]]) -> R:
        """Run a request on a session of its own."""
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._renew_leases(), name="interlock-leases")
        session = (
            self._free.pop()
            if self._free
            else Session(self._engine.consumer(), self._engine.async_link, self.renewer)
        )
        self._busy[session] = user
        left: list[Request[Any]] = []
        mine = True
        try:
            if self.renewer.abandoned:
                await self._settle_abandoned(session)
            return await drive(make(session), session, left.append)
        except Abandoned:
            raise self._closed() from None
        except asyncio.CancelledError:
            if left:
                task = self._loop.create_task(self._finish(left.pop(), session))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                mine = False
                # So that the leased messages are available again when the cancelled call has ended.
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
        """Make the task check; from any thread, and from destructors."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._bell.set)

    def wake(self, user: Handle | None) -> None:
        """End the waits of a closed handle, or with None all waits, and stop renewing; from any
        thread."""
        if user is None:
            self.renewer.stop()
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._interrupt, user)

    async def close(self) -> None:
        """End the waits, return dropped leases, close the connections."""
        self._interrupt(None)
        self.renewer.stop()
        if self._task is not None:
            await asyncio.wait([self._task])
            self._task = None
        sending = {one.task for one in self.puts if one.task is not None}
        if self._tasks or sending:
            await asyncio.wait(self._tasks | sending, timeout=self._engine.target.timeout)
        while self._free:
            self._free.pop().close()

    def _interrupt(self, user: Handle | None) -> None:
        if user is None and self._task is not None:
            self._task.cancel()
        for session, one in list(self._busy.items()):
            if user is None or one is user:
                session.interrupt()
        own = None if user is None else user.loop_puts.get(self._loop)
        for puts in list(self.puts):
            if user is None or puts is own:
                puts.end(self._closed())

    def _closed(self) -> ShutDown:
        return ShutDown(f"this handle of {self._engine.target.shown} is closed")

    def _give(self, session: Session[Any]) -> None:
        self._busy.pop(session, None)
        if session.interrupted or session.undoing:
            session.rest()
        if self._task is None or self._task.done():
            # The loop ends, or this object was closed.
            session.close()
        else:
            self._free.append(session)

    async def _finish(self, request: Request[Any], session: Session[Any]) -> None:
        """Finish a request whose caller has left."""
        with contextlib.suppress(Abandoned, InterlockError):
            await drive(request, session, thrown=Abandoned())
        self._give(session)

    async def _renew_leases(self) -> None:
        engine = self._engine
        session: Session[Any] = Session(engine.consumer(), engine.async_link, self.renewer)
        try:
            while True:
                self._bell.clear()
                left = await self._look(session)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._bell.wait()
        finally:
            # asyncio.run cancels this task when the loop ends silently: nobody else closes it, and
            # the held leases expire.
            self.renewer.rest()
            for other in [session, *self._free]:
                other.close()

    async def _settle_abandoned(self, session: Session[Any]) -> None:
        async with self._settling:
            await drive(self.renewer.settle_abandoned(session), session)

    async def _look(self, session: Session[Any]) -> float | None:
        try:
            await self._settle_abandoned(session)
            return await drive(self.renewer.tick(session), session)
        except EngineUnavailable as error:
            log.warning("%s", error)
        except Exception:
            log.exception("leases could not be renewed")
        return _AGAIN


async def drive(
    request: Request[R],
    session: Session[Any],
    leave: Leave | None = None,
    thrown: BaseException | None = None,
) -> R:
    """Run a request as part of a task."""
    try:
        step = request.send(None) if thrown is None else request.throw(thrown)
        while True:
            try:
                if isinstance(step, Nap):
                    await asyncio.sleep(step.seconds)
                    answer = None
                else:
                    link = session.links.get(step.address) or session.link(step.address)
                    answer = await link.ask(step.command, step.timeout, step.before, step.nudge)
            except (Broken, Refused) as error:
                step = request.throw(error)
            except BaseException:
                if leave is not None:
                    leave(request)
                raise
            else:
                step = request.send(answer)
    except StopIteration as end:
        found: R = end.value
        return found
