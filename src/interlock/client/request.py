"""A request to an engine, described once for threads and for asyncio.

It is a generator: it yields each I/O operation, an `Ask` or a `Nap`, receives its outcome, and
returns the answer. Two drivers run it, one that blocks and one that awaits; everything else, such
as order, repetition and giving up, is in requests.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

R = TypeVar("R")

Argument = str | bytes | int
Reply = Any
"""A list of bytes for a function; the reply itself for other commands."""


@dataclass(slots=True)
class Ask:
    """Send a command to a server, and return its reply; raise Broken or Refused in the request."""

    address: str
    command: tuple[Argument, ...]
    timeout: float
    """Seconds for connecting, sending and the whole reply."""
    before: tuple[Argument, ...] = ()
    """A waiting command, sent together with `command`, which the server begins when the wait is
    over: so the result of a wake-up comes without another round trip. Its own reply is not
    returned."""
    nudge: float = 0
    """Seconds after which a PING is sent to the server, if the first of the two is not answered; 0:
    none. Redis looks for expired waits when any command arrives, otherwise ten times a second."""


@dataclass(slots=True)
class AskAll(Ask):
    """Send commands together, and return their replies, with errors as Refused.

    For threads alone. Raises Broken in the request if not all replies came in time.
    """

    commands: tuple[tuple[Argument, ...], ...] = ()


@dataclass(slots=True)
class Nap:
    """Sleep for this many seconds."""

    seconds: float


Request = Generator["Ask | Nap", Reply, R]


class Broken(Exception):
    """No reply came: the connection could not be made, was lost, or the time was over."""

    def __init__(self, reason: str, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent
        """The command may have taken effect."""


class Refused(Exception):
    """The server replied with an error; its text."""

    @property
    def code(self) -> str:
        """The first word."""
        return str(self).partition(" ")[0]


class Abandoned(Exception):
    """Raised in a request whose caller has left: it undoes unused effects, and ends.

    Operations that it still yields run in the background.
    """
