"""Numbered writes: sent to one node of a log after another, each is done once.

A write has the name of its session, the number of its call and a deadline in log time. It is sent
again with the same three. A node then answers that it is done, that its deadline is over, that it
never will be done, or that this is not known yet. Where its deadline is over, it is sent under its
number with a later one.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from interlock.client.connection.call import NODE
from interlock.client.request import Argument, Ask, Refused, Request
from interlock.client.wire.bad_reply import nonsense

if TYPE_CHECKING:
    from interlock.client.session import Session


class Numbers:
    """State of numbered writes at the nodes of one table, for all threads and loops of a client."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._takes: dict[str, float] = {}
        """By node: 0 if it takes numbers, else the time at which to ask it again."""
        self._times: dict[str, tuple[int, float]] = {}
        """The log time in ms that each node answered last, and when, by the monotonic clock."""
        self._owed: dict[bytes, tuple[int, frozenset[str]]] = {}
        """Names of sessions with a write that may still come to a log: the number that ends it, and
        the data centre of that log."""

    def taken(self, session: Session[Any], node: str, within: float) -> Request[bool]:
        """Return whether a node takes numbers. Raises as `look`."""
        until = self._takes.get(node)
        if until is None or 0 < until <= time.monotonic():
            return (yield from self.look(session, node, within))
        return not until

    def look(self, session: Session[Any], node: str, within: float) -> Request[bool]:
        """Ask a node for the log's time; False: it takes no numbers.

        Afterwards it shows everything that any node of its data centre had answered before.

        Raises:
            Refused, Broken: it cannot answer now.
        """
        if self._takes.get(node, 0) > time.monotonic():
            return False
        try:
            found = yield Ask(NODE + node, ("TABLE", "TIME", self._table), within)
        except Refused as error:
            if error.code not in ("NOLOG", "NOPERM") and "unknown subcommand" not in str(error):
                raise
            self._takes[node] = time.monotonic() + ASKED_AGAIN
            return False
        if not isinstance(found, int):
            raise nonsense(found)
        self._times[node] = found, time.monotonic()
        self._takes[node] = 0
        return True

    def forget(self, node: str) -> None:
        """Ask a node again before the next write: its time, or whether it takes numbers."""
        self._takes.pop(node, None)

    def deadline(self, node: str, within: float) -> int:
        """Return the time of a node's log `within` seconds from now, in ms."""
        found, at = self._times[node]
        return found + int((time.monotonic() - at + min(within, FURTHEST)) * 1000)

    def owe(self, session: Session[Any], dcs: frozenset[str]) -> None:
        """Note that the outcome of the session's last write is unknown, in that data centre."""
        session.calls += 1
        self._owed[session.consumer] = session.calls, dcs

    def settle(
        self, session: Session[Any], node: str, dcs: frozenset[str], within: float
    ) -> Request[None]:
        """Make sure that no write with an unknown outcome is done later than what follows.

        A log takes no number of a client below its last one, so a barrier with a higher number
        ends the write. Writes that were sent in another data centre stay owed.

        Raises:
            Refused, Broken: the node did not confirm it.
        """
        for name, owed in list(self._owed.items()):
            number, there = owed
            if not there & dcs:
                continue
            deadline = self.deadline(node, within)
            ends = numbered(name, number, deadline, ("TABLE", "BARRIER", self._table))
            try:
                yield Ask(NODE + node, ends, within)
            except Refused as error:
                if error.code not in ("LATE", "NOREPLY"):
                    raise
            if self._owed.get(name) == owed:
                self._owed.pop(name, None)


class Write:
    """One write: its number, once it has one, and whether it may be under way."""

    def __init__(self, numbers: Numbers, command: tuple[Argument, ...]) -> None:
        self._numbers = numbers
        self._command = command
        self._number: int | None = None
        self._numbered: tuple[Argument, ...] | None = None
        self.session: Session[Any] | None = None
        """The session under whose name and number it may be under way."""
        self.dcs = frozenset[str]()
        """The data centre whose log knows its number: to another log it would be another write."""

    @property
    def has_number(self) -> bool:
        """Return whether it has a number that no node has refused for good."""
        return self._number is not None

    def words(
        self, session: Session[Any], node: str, dcs: frozenset[str], left: float
    ) -> tuple[Argument, ...]:
        """Return what is sent to a node of a data centre: the same until it is postponed.

        `left`: the seconds that the call has.
        """
        if self._number is None or not self.dcs & dcs:
            session.calls += 1
            self._number = session.calls
            self._numbered = None
            self.dcs = dcs
        if self._numbered is None:
            # The rest of the time is for finding out whether it was done.
            deadline = self._numbers.deadline(node, left * DONE_WITHIN)
            self._numbered = numbered(session.consumer, self._number, deadline, self._command)
        self.session = session
        return self._numbered

    def ended(self) -> None:
        """Note that it is done, or never will be under this number."""
        self._number = self._numbered = self.session = None

    def postpone(self) -> None:
        """Note that its deadline is over: it is sent under its number with a later one."""
        self._numbered = None

    def refused(self) -> None:
        """Note that it is not under way; it may be sent again."""
        self.session = None

    def leave(self) -> None:
        """Note that the caller has left: if it may be under way, its outcome is unknown."""
        if self.session is not None:
            self._numbers.owe(self.session, self.dcs)
            self.session = None


def numbered(
    name: bytes, number: int, deadline: int, command: tuple[Argument, ...]
) -> tuple[Argument, ...]:
    """Return a command under a number of a client."""
    return ("TABLE", "CLIENT", name, number, deadline, *command)


ASKED_AGAIN = 60.0
"""Seconds after which a node that took no numbers is asked again."""
FURTHEST = 50.0
"""Maximum seconds to a deadline: nodes take up to a minute."""
DONE_WITHIN = 0.6
"""Share of a call's time in which its write is done or not at all."""
