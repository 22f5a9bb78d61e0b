"""Events of a user, one after the other: all that happens to one goes through the user's lane.

The lane is the key of a queue on the hub. Every gateway takes from the queue, but of one user's
events there is only ever one in work, and they come in the order in which they were put.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec
from msgspec import Struct

from frames import Badge, Message, Missed, ToApp
from inbox import Inbox
from interlock import current_lease
from state import State
from topics import Topics

QUEUE = "events"
BATCH = 100
"""Messages in a frame of those that were missed."""


class Written(Struct, tag=True):
    """Somebody wrote to the user."""

    user: str
    sender: str
    text: str


class Back(Struct, tag=True):
    """The user looks at the app, over this connection, and has seen what is up to ``after``."""

    user: str
    after: int
    gateway: str
    connection: str


class Looked(Struct, tag=True):
    """The app has shown the messages up to this one."""

    user: str
    number: int


Event = Written | Back | Looked


class Routed(Struct):
    """A frame on its way to a user's gateway, by that one's topic."""

    user: str
    frame: ToApp | None
    """None: the user has come to another gateway."""
    connection: str | None = None
    """For this connection alone."""


encode = msgspec.json.encode
routed = msgspec.json.Decoder(Routed)


class Delivery:
    """Handles events."""

    def __init__(self, state: State, inbox: Inbox, topics: Topics) -> None:
        self._state = state
        self._inbox = inbox
        self._topics = topics

    async def handle(self, event: Event) -> None:
        """Do what an event asks for. It may have been half done, by a gateway that was killed."""
        match event:
            case Written():
                await self._written(event)
            case Back():
                await self._back(event)
            case Looked():
                self._inbox.see(event.user, event.number)
                await self._to(event.user, Badge(self._count(event.user)))

    async def _written(self, event: Written) -> None:
        lease = current_lease()
        # First of all: a later reader finds it in the inbox.
        number = self._inbox.add(str(lease.id), event.user, event.sender, event.text)
        unread = 0
        if lease.attempt == 1:
            with suppress(KeyError):  # logged out
                # The other columns of the row may be changed meanwhile, by any process.
                unread = self._state.users.incr(event.user, "unread")
        else:
            # It is unknown whether the previous one came this far, so its count is computed again.
            unread = self._count(event.user)
        user = self._state.users.get(event.user)
        if user is not None:
            shown = Message(number, event.sender, event.text)
            await self._to(event.user, Badge(unread) if user.background else shown)

    async def _back(self, event: Back) -> None:
        self._inbox.see(event.user, event.after)
        self._count(event.user)
        after, last = event.after, False
        while not last:
            missed = self._inbox.after(event.user, after, BATCH)
            last = len(missed) < BATCH
            after = missed[-1].number if missed else after
            frame = Routed(event.user, Missed(missed, last), event.connection)
            await self._topics.publish(event.gateway, encode(frame))

    async def _to(self, name: str, frame: ToApp) -> None:
        """Send a frame to where a user is. Nothing waits for a user who is not connected."""
        user = self._state.users.get(name)
        if user is not None and self._state.is_connected(user):
            await self._topics.publish(user.gateway, encode(Routed(name, frame)))

    def _count(self, user: str) -> int:
        """Set the unread count to what the inbox says, which no other event changes meanwhile."""
        unread = self._inbox.unread(user)
        with suppress(KeyError):
            self._state.users.set_column(user, "unread", unread)
        return unread
