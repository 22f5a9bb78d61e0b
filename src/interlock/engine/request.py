"""A request to an engine, described once for threads and for asyncio.

It is a generator: it yields what has to be done with the world, an `Ask` or a `Nap`, is sent what
came of it, and returns the answer. Two drivers run it, one that blocks and one that awaits;
everything else, what is sent when, repeated how often and given up when, is in requests.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

R = TypeVar("R")

Argument = str | bytes | int
Reply = Any
"""Of a function a list of bytes; of other commands what they answer."""


@dataclass(slots=True)
class Ask:
    """Send a command to a server, and give its reply; raises Broken or Refused into the request."""

    address: str
    command: tuple[Argument, ...]
    timeout: float
    """Seconds for connecting, sending and the whole reply."""
    before: tuple[Argument, ...] = ()
    """A command that waits, sent in one go with `command`, which the server takes up when that
    is over: so what it was woken for comes without another round trip. Its reply is not given."""
    nudge: float = 0
    """Seconds after which the server is sent a PING behind it, if the first of the two is not
    replied to; 0: none. Redis looks for commands whose wait is over when anything comes in, else
    ten times a second."""


@dataclass(slots=True)
class AskAll(Ask):
    """Send commands in one go, and give their replies, errors as Refused among them.

    For threads alone. Raises Broken into the request where not all replies came in time.
    """

    commands: tuple[tuple[Argument, ...], ...] = ()


@dataclass(slots=True)
class Nap:
    """Do nothing for so many seconds."""

    seconds: float


Request = Generator["Ask | Nap", Reply, R]


class Broken(Exception):
    """No reply came: the connection could not be made, was lost, or the time was up."""

    def __init__(self, reason: str, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent
        """The command may have been done."""


class Refused(Exception):
    """The server replied with an error; its text."""

    @property
    def code(self) -> str:
        """The first word."""
        return str(self).partition(" ")[0]


class Abandoned(Exception):
    """Raised into a request whose caller has gone: it undoes what nobody will look at, and ends.

    What it still yields then is done in the background.
    """
