"""A caller: a consumer's name, the number of its last call, and its connections.

A session is taken for one call of a queue's method and given back when that is answered, so that
each has one call under way at a time, as the wire asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from interlock.engine.request import Request
from interlock.engine.transport.threads import Link

if TYPE_CHECKING:
    from interlock.engine.renewal import LeaseRenewer


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
        """Send a command, and return its reply or an awaitable of it; see `Ask`."""

    def check(self) -> None:
        """Close the connection if the server has closed it already."""

    def interrupt(self) -> None:
        """End the call under way."""

    def close(self) -> None:
        """Close the connection."""

    def forget(self) -> None:
        """Close what a fork has copied."""


L = TypeVar("L", bound=AnyLink)


class Session(Generic[L]):
    """One consumer. Only who has taken it uses it, but for `interrupt`."""

    def __init__(self, consumer: bytes, link: Callable[[str], L], renewer: LeaseRenewer) -> None:
        self.consumer = consumer
        self.renewer = renewer
        """The leases that are taken on it are held there."""
        self.calls = 0
        """The number of its last call; who makes one raises it."""
        self.interrupted = False
        """Whoever it was taken by is to stop waiting."""
        self.undo: Request[None] | None = None
        """A request that undoes one in the middle of which Ctrl-C came."""
        self.links: dict[str, L] = {}
        self.waiting: Link | None = None
        """The connection on which a command was sent whose reply nobody has received yet."""
        self._link = link

    def link(self, address: str) -> L:
        """Return the connection to a server."""
        found = self.links.get(address)
        if found is None:
            found = self.links[address] = self._link(address)
        return found

    def check(self, address: str) -> None:
        """Close the connection to a server that has closed it, before something is sent on it."""
        if address in self.links:
            self.links[address].check()

    def drop(self, address: str) -> None:
        """Close the connection to a server, which is to be made anew."""
        if address in self.links:
            self.links[address].close()

    def interrupt(self) -> None:
        """End the wait under way, from any thread."""
        self.interrupted = True
        for link in list(self.links.values()):
            link.interrupt()

    def rest(self) -> None:
        """End an interruption: it was given back, or is to undo something."""
        if self.interrupted:
            self.interrupted = False
            for link in self.links.values():
                link.interrupted = False

    def close(self) -> None:
        """Close its connections."""
        for link in self.links.values():
            link.close()
