"""Calls on threads: the calling thread runs its request on its own session.

The counterpart for asyncio is `loop`. One more thread renews a client's leases and returns those
that were dropped.
"""

from __future__ import annotations

import contextlib
import queue as _queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from interlock.client.connection.call import Engine
from interlock.client.request import Abandoned, Ask, AskAll, Broken, Nap, Refused, Request
from interlock.client.requests.lease_renewal import LeaseRenewer
from interlock.client.requests.thread_puts import ThreadPuts
from interlock.client.session import Session
from interlock.client.transport.memory_link import MemoryLink
from interlock.client.transport.thread_link import Link
from interlock.errors import EngineUnavailable, InterlockError, ShutDown
from interlock.message import Put
from interlock.runtime import forks
from interlock.runtime.threads import start_thread
from interlock.watch import log

if TYPE_CHECKING:
    from interlock.client.requests.queue_handle import Handle

P = ParamSpec("P")
R = TypeVar("R")
Make = Callable[Concatenate[Session[Any], P], Request[R]]
Leave = Callable[[Request[Any]], None]
"""Sent into a request whose caller leaves in the middle of it; its cleanup runs elsewhere."""
_LONGEST = 3600.0
_AGAIN = 0.5
"""Seconds after which an unreachable engine is tried again."""


class ThreadSessions:
    """The sessions of a client. Any thread may use it, before and after a fork."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.alive = True
        """False once it is closed."""
        self._forks = forks.count
        self._free: list[Session[Any]] = []
        # The sessions in use, by handle, so that closing a handle can wake them.
        self._busy: dict[Session[Any], Handle | None] = {}
        # Held while calls are ended, which is rare; returning a session waits for it only then.
        # (Reentrant, because a signal handler may do so in the middle.)
        self._ending = threading.RLock()
        self._ends = False
        self._in_memory = engine.memory is not None
        self._puts: weakref.WeakSet[ThreadPuts] = weakref.WeakSet()
        self._lease_thread = LeaseThread(engine)
        self.renewer = self._lease_thread.renewer

    def put(self, user: Handle, *arguments: Any, **named: Any) -> Put:
        """Put one message, together with those that other threads put; see `Handle`."""
        if self._in_memory or (self._engine.parks and not user.linger):
            # Memory answers at once, and a hub sooner than threads hand over to each other.
            return self.run(user, user.put, *arguments, **named)
        if not self.alive:
            raise self._client_closed()
        asked = user.put_arguments(*arguments, **named)
        puts = user.thread_puts.get(forks.count)
        if puts is None:
            made = ThreadPuts(
                lambda sends: self.run(user, user.put_together, sends),
                lambda message, end, bounded: self.run(
                    user, user.put_message, message, end, bounded
                ),
                self._engine.target.timeout,
                user.linger,
            )
            # Of two threads that each make one, both use the first.
            puts = user.thread_puts.setdefault(forks.count, made)
            self._puts.add(puts)
        return puts.put(*asked)

    def run(
        self, user: Handle | None, make: Make[P, R], *arguments: P.args, **named: P.kwargs
    ) -> R:
        """Run the request that `make` makes of a session and the arguments.

        Closing the handle `user` ends it.

        Raises:
            ShutDown: this, or the handle, is closed.
        """
        session = self._taken(user)
        left: list[Request[Any]] = []
        try:
            if self.renewer.abandoned:
                self._lease_thread.settle_abandoned(session)
            request = make(session, *arguments, **named)
            return _steps(request, session, _START, left.append)
        except Abandoned:
            raise self._closed() from None
        finally:
            self._ended(session, left)

    def begin(
        self, user: Handle | None, make: Make[P, R], *arguments: P.args, **named: P.kwargs
    ) -> Callable[[], R]:
        """Run a request up to its first reply; return the function that runs the rest, once, on any
        thread."""
        session = self._taken(user)
        try:
            if self.renewer.abandoned:
                self._lease_thread.settle_abandoned(session)
            request = make(session, *arguments, **named)
            step = _begun(request, session)
        except BaseException:
            self._ended(session, [])
            raise

        def rest() -> R:
            left: list[Request[Any]] = []
            try:
                return _steps(request, session, step, left.append)
            except Abandoned:
                raise self._closed() from None
            finally:
                self._ended(session, left)

        return rest

    def once(self) -> Session[Any]:
        """Return a session with one connection, which is not remade: a call that finds it lost
        raises EngineUnavailable, and so do all further calls. For `drive`; the caller closes it."""
        return Session(self._engine.consumer(), self._engine.link, self.renewer, once=True)

    def interrupt(self, user: Handle) -> None:
        """End the calls of a handle."""
        with self._ending:
            self._ends = True
            try:
                for session, one in list(self._busy.items()):
                    if one is user:
                        session.interrupt()
            finally:
                self._ends = False
        for puts in list(user.thread_puts.values()):
            puts.end(self._closed())

    def close(self) -> None:
        """End all calls, and close the connections."""
        self.alive = False
        for session, user in list(self._busy.items()):
            if user is not None:
                user.closed = True
            session.interrupt()
        for puts in list(self._puts):
            puts.end(self._closed())
        self._lease_thread.stop()
        while self._free:
            self._free.pop().close()

    def _taken(self, user: Handle | None) -> Session[Any]:
        if not self.alive:
            raise self._client_closed()
        if self._forks != forks.count:
            self._forked()
        try:
            session = self._free.pop()
        except IndexError:
            session = Session(self._engine.consumer(), self._engine.link, self.renewer)
        self._busy[session] = user
        return session

    def _ended(self, session: Session[Any], left: list[Request[Any]]) -> None:
        """Take back the session of a finished caller.

        A request that the caller has left is finished on it first, on another thread.
        """
        if left or session.undo is not None:
            # Ctrl-C, for instance: it waits neither for the engine nor for a thread to start, as
            # threading.Thread does, with a lock that a second one could leave taken.
            start_thread(self._finish, left, session)
            return
        if self._busy.pop(session, _NOT_THERE) is _NOT_THERE:
            # Taken before a fork: it belongs to the parent.
            return
        if self._ends and self._forks == forks.count:
            # It may be about to be interrupted, which must not affect its next user.
            with self._ending:
                pass
        if session.interrupted or session.undoing:
            session.rest()
        if self.alive:
            self._free.append(session)
        else:
            session.close()

    def _finish(self, left: list[Request[Any]], session: Session[Any]) -> None:
        """Finish a request whose caller has left, or the request that undoes it."""
        undo, session.undo = session.undo, None
        with contextlib.suppress(Abandoned, InterlockError):
            if left:
                _steps(left[0], session, _THROW, None)
            if undo is not None:
                _steps(undo, session, _START, None)
        self._ended(session, [])

    def _closed(self) -> ShutDown:
        return ShutDown(f"this handle of {self._engine.target.shown} is closed")

    def _client_closed(self) -> ShutDown:
        return ShutDown(f"the client of {self._engine.target.shown} is closed")

    def _forked(self) -> None:
        """Begin anew in a child: the parent's connections and consumers are not its own."""
        self._forks = forks.count
        self._engine.forked()
        for session in [*self._free, *self._busy]:
            for link in session.links.values():
                link.forget()
        self._free, self._busy = [], {}
        self._ending, self._ends = threading.RLock(), False
        self._lease_thread = LeaseThread(self._engine)
        self.renewer = self._lease_thread.renewer


class LeaseThread:
    """A renewer, and the daemon thread that runs it; started when there is work.

    It has no reference to the client, so that collecting the client ends it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._bell: _queue.SimpleQueue[None] = _queue.SimpleQueue()
        self._started: dict[str, object] = {}
        self._stopped = False
        self._settling = threading.Lock()
        self.renewer = LeaseRenewer(self.ring, engine.renewals())

    def settle_abandoned(self, session: Session[Any]) -> None:
        """Settle the dropped leases, or wait until another thread has."""
        with self._settling:
            drive(self.renewer.settle_abandoned(session), session)

    def ring(self) -> None:
        """Make the thread check; takes no lock, because destructors call it too."""
        me = object()
        if self._started.setdefault("thread", me) is me:
            try:
                start_thread(self._renew_leases)
            except RuntimeError:
                # The interpreter is ending, or no thread can be started.
                self._started.pop("thread", None)
        self._bell.put(None)

    def stop(self) -> None:
        """End the thread."""
        self._stopped = True
        self.renewer.stop()
        self._bell.put(None)

    def _renew_leases(self) -> None:
        threading.current_thread().name = "interlock-leases"
        engine = self._engine
        session: Session[Any] = Session(engine.consumer(), engine.link, self.renewer)
        while not self._stopped:
            left = self._look(session)
            try:
                self._bell.get(timeout=None if left is None else min(left, _LONGEST))
            except _queue.Empty:
                continue
            while not self._bell.empty():
                self._bell.get()
        session.close()

    def _look(self, session: Session[Any]) -> float | None:
        # A separate function, so that no variable holds a lease while the thread sleeps.
        try:
            self.settle_abandoned(session)
            return drive(self.renewer.tick(session), session)
        except EngineUnavailable as error:
            log.warning("%s", error)
        except Exception:
            log.exception("leases could not be renewed")
        return _AGAIN


def drive(request: Request[R], session: Session[Any]) -> R:
    """Run a request on this thread."""
    return _steps(request, session, _START, None)


def _begun(request: Request[Any], session: Session[Any]) -> object:
    """Run a request up to its first reply, which is not waited for.

    Return `_SENT` if the command was sent, and otherwise the step that remains to be done, because
    no connection exists or it cannot send and receive separately; or `_End`.
    """
    try:
        step = request.send(None)
    except StopIteration as end:
        return _End(end.value)
    if isinstance(step, Ask) and not step.nudge:
        link = session.links.get(step.address) or session.link(step.address)
        if isinstance(link, Link) and link.send(step.command, step.timeout):
            session.waiting = link
            return _SENT
    return step


def _steps(request: Request[R], session: Session[Any], step: Any, leave: Leave | None) -> R:
    """Run a request on this thread, starting from a step."""
    began = forks.count
    try:
        if step is _START:
            step = request.send(None)
        elif step is _THROW:
            step = request.throw(Abandoned())
        elif step.__class__ is _End:
            found: R = step.value
            return found
        while True:
            try:
                if step is _SENT:
                    sent, session.waiting = session.waiting, None
                    assert sent is not None
                    answer = sent.receive()
                elif step.__class__ is Nap:
                    time.sleep(step.seconds)
                    answer = None
                elif step.__class__ is AskAll:
                    link = session.links.get(step.address) or session.link(step.address)
                    assert isinstance(link, Link | MemoryLink)
                    answer = link.ask_all(step.commands, step.timeout)
                else:
                    link = session.links.get(step.address) or session.link(step.address)
                    answer = link.ask(step.command, step.timeout, step.before, step.nudge)
            except (Broken, Refused) as error:
                if forks.count != began:
                    raise _of_the_parent() from None
                step = request.throw(error)
            except BaseException:
                if leave is not None and forks.count == began:
                    leave(request)
                raise
            else:
                if forks.count != began:
                    raise _of_the_parent()
                step = request.send(answer)
    except StopIteration as end:
        found = end.value
        return found


def _of_the_parent() -> EngineUnavailable:
    # The consumer, its numbers and its leases belong to the parent, which continues with them.
    return EngineUnavailable(
        "this process was forked in the middle of the call, which the parent continues; repeat "
        "it if the child needs one of its own",
        unknown=True,
    )


class _End:
    """The end of a request without an operation."""

    def __init__(self, value: Any) -> None:
        self.value = value


_NOT_THERE: Any = object()
_START: Any = object()
_THROW: Any = object()
_SENT: Any = object()
