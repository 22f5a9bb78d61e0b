"""A caller: a consumer's name, the number of its last call, and its connections.

A session is taken for one call of a queue's method and returned when that is answered, so that each
has one call in flight at a time, as the wire requires.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from interlock.client.request import Broken, Request

if TYPE_CHECKING:
    from interlock.client.requests.lease_renewal import LeaseRenewer
    from interlock.client.transport.thread_link import Link


class AnyLink(Protocol):
    """A link of either face."""

    interrupted: bool
    once: bool
    """Its connection is not remade."""

    @property
    def is_open(self) -> bool:
        """It has a connection, as far as it knows."""

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
        """End the call in flight."""

    def close(self) -> None:
        """Close the connection."""

    def forget(self) -> None:
        """Close the copy that a fork has made."""


L = TypeVar("L", bound=AnyLink)


class Session(Generic[L]):
    """One consumer. Only the thread or task that has taken it uses it, except for `interrupt`."""

    def __init__(
        self,
        consumer: bytes,
        link: Callable[[str], L],
        renewer: LeaseRenewer,
        once: bool = False,
    ) -> None:
        self.consumer = consumer
        self.renewer = renewer
        """The leases taken on it are held there."""
        self.calls = 0
        """The number of its last call; the caller increments it."""
        self.interrupted = False
        """The present user of the session is to stop waiting."""
        self.undoing = False
        """It returns what an interrupted call may have leased: nothing interrupts that."""
        self.undo: Request[None] | None = None
        """The request that undoes one that Ctrl-C interrupted."""
        self.once = once
        """It has one connection, which is not remade: once that is lost, all its calls fail."""
        self.links: dict[str, L] = {}
        self.waiting: Link | None = None
        """The connection with a sent command whose reply has not been received yet."""
        self._link = link

    def link(self, address: str) -> L:
        """Return the connection to a server."""
        found = self.links.get(address)
        if found is None:
            if self.once and self.links:
                raise Broken("the session has lost its server", sent=False)
            found = self.links[address] = self._link(address)
            found.once = self.once
            # An interruption that came before it found no connection to end.
            if self.interrupted:
                found.interrupted = True
        return found

    def check(self, address: str) -> None:
        """Close the connection to a server that has closed its end, before sending on it."""
        if address in self.links:
            self.links[address].check()

    def drop(self, address: str) -> None:
        """Close the connection to a server, so that a new one is made."""
        if address in self.links:
            self.links[address].close()

    def interrupt(self) -> None:
        """End the present wait, from any thread."""
        if self.undoing:
            return
        self.interrupted = True
        for link in list(self.links.values()):
            link.interrupt()
        if self.undoing:
            # It began meanwhile, and may have looked before this.
            self._resume()

    def rest(self) -> None:
        """End an interruption: the session was returned."""
        self.undoing = False
        self._resume()

    def begin_undoing(self) -> None:
        """End an interruption, and let none begin until the session is returned."""
        self.undoing = True
        self._resume()

    def _resume(self) -> None:
        if self.interrupted:
            self.interrupted = False
            for link in self.links.values():
                link.interrupted = False

    def close(self) -> None:
        """Close its connections."""
        for link in self.links.values():
            link.close()
