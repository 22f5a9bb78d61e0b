"""A caller: a consumer's name, the number of its last call, and its connections.

A session is taken for one call of a queue's method and given back when that is answered, so that
each has one call under way at a time, as the wire asks.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from interlock.engine import forks
from interlock.engine.request import Abandoned, Ask, Broken, Nap, Refused, Request
from interlock.engine.transport.threads import Link
from interlock.errors import EngineUnavailable, InterlockError

R = TypeVar("R")


class AnyLink(Protocol):
    """A link of either face."""

    interrupted: bool

    def ask(
        self,
        command: tuple[Any, ...],
        timeout: float,
        before: tuple[Any, ...] = (),
        nudge: float = 0,
    ) -> Any:
        """Sends a command, and gives its reply or makes it awaitable; see `Ask`."""

    def interrupt(self) -> None:
        """Ends the call under way."""

    def close(self) -> None:
        """Closes the connection."""

    def forget(self) -> None:
        """Closes what a fork has copied."""


L = TypeVar("L", bound=AnyLink)


class Session(Generic[L]):
    """One consumer. Only who has taken it uses it, but for `interrupt`."""

    def __init__(self, consumer: bytes, link: Callable[[str], L]) -> None:
        self.consumer = consumer
        self.interrupted = False
        """Whoever it was taken by is to stop waiting."""
        self.links: dict[str, L] = {}
        self.waiting: Link | None = None
        """The connection on which a command was sent whose reply nobody has received yet."""
        self._link = link
        self._calls = 0

    def number(self) -> int:
        """Of the next call."""
        self._calls += 1
        return self._calls

    def link(self, address: str) -> L:
        """The connection to a server."""
        found = self.links.get(address)
        if found is None:
            found = self.links[address] = self._link(address)
        return found

    def drop(self, address: str) -> None:
        """The connection to a server is to be made anew."""
        if address in self.links:
            self.links[address].close()

    def interrupt(self) -> None:
        """Ends the wait under way, from any thread."""
        self.interrupted = True
        for link in list(self.links.values()):
            link.interrupt()

    def rest(self) -> None:
        """It was given back, or is to undo something: an interruption is over."""
        if self.interrupted:
            self.interrupted = False
            for link in self.links.values():
                link.interrupted = False

    def close(self) -> None:
        """Closes its connections."""
        for link in self.links.values():
            link.close()


Leave = Callable[[Request[Any]], None]
"""Is given a request whose caller goes in the middle of it; what it undoes is done elsewhere."""


def run(request: Request[R], session: Session[Any], leave: Leave | None = None) -> R:
    """Runs a request on this thread."""
    return _run(request, session, leave)


def begin(request: Request[Any], session: Session[Any]) -> Ask | Nap | None:
    """Runs a request on this thread up to its first reply, which is not waited for.

    Answers None where the command is on its way, and otherwise the step that is still to be done:
    there is no connection, or one of a kind that cannot send and receive apart. `resume` does the
    rest.
    """
    step = request.send(None)
    if isinstance(step, Ask) and not step.nudge:
        link = session.link(step.address)
        if isinstance(link, Link) and link.send(step.command, step.timeout):
            session.waiting = link
            return None
    return step


def resume(
    request: Request[R], session: Session[Any], step: Ask | Nap | None, leave: Leave | None
) -> R:
    """Runs a request to its end after `begin`, which gave the step."""
    return _run(request, session, leave, None, step, begun=True)


def finish(request: Request[Any], session: Session[Any]) -> None:
    """Runs a request whose caller has gone to its end."""
    with contextlib.suppress(Abandoned, InterlockError):
        _run(request, session, None, Abandoned())


async def run_async(request: Request[R], session: Session[Any], leave: Leave | None = None) -> R:
    """Runs a request as part of a task."""
    return await _run_async(request, session, leave)


async def finish_async(request: Request[Any], session: Session[Any]) -> None:
    """Runs a request whose caller has gone to its end."""
    with contextlib.suppress(Abandoned, InterlockError):
        await _run_async(request, session, None, Abandoned())


def _run(
    request: Request[R],
    session: Session[Any],
    leave: Leave | None,
    thrown: BaseException | None = None,
    step: Ask | Nap | None = None,
    begun: bool = False,
) -> R:
    began = forks.count
    try:
        if not begun:
            step = request.send(None) if thrown is None else request.throw(thrown)
        while True:
            try:
                if step is None:
                    link, session.waiting = session.waiting, None
                    assert link is not None
                    answer = link.receive()
                elif isinstance(step, Nap):
                    time.sleep(step.seconds)
                    answer = None
                else:
                    link = session.links.get(step.address) or session.link(step.address)
                    answer = link.ask(step.command, step.timeout, step.before, step.nudge)
            except (Broken, Refused) as error:
                _check_forks(began)
                step = request.throw(error)
            except BaseException:
                if leave is not None and forks.count == began:
                    leave(request)
                raise
            else:
                _check_forks(began)
                step = request.send(answer)
    except StopIteration as end:
        found: R = end.value
        return found


def _check_forks(began: int) -> None:
    if forks.count != began:
        # The consumer, its numbers and what they lease are the parent's, and it goes on with them.
        raise EngineUnavailable(
            "this process was forked in the middle of the call, which the parent goes on with; "
            "make it again if the child is to make one of its own",
            unknown=True,
        )


async def _run_async(
    request: Request[R],
    session: Session[Any],
    leave: Leave | None,
    thrown: BaseException | None = None,
) -> R:
    try:
        step = request.send(None) if thrown is None else request.throw(thrown)
        while True:
            try:
                if isinstance(step, Nap):
                    await asyncio.sleep(step.seconds)
                    answer = None
                else:
                    link = session.link(step.address)
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
