"""The nodes of a cluster as a client knows them, and the one that it uses: its home.

A client reads and writes at one node, so that it reads its own writes. It moves when that node
fails, drains or falls behind, and measures now and then whether another is nearer. It remembers the
nodes while the engine is down.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from interlock.client.connection.call import NODE
from interlock.client.request import Abandoned, Ask, Broken, Refused, Request
from interlock.client.rows.announcements import Announcement, Directory
from interlock.client.rows.numbered_writes import Numbers
from interlock.errors import EngineUnavailable

if TYPE_CHECKING:
    from interlock.client.connection.call import Engine
    from interlock.client.session import Session


class Members:
    """The nodes that serve one table, for all threads and loops of a client."""

    def __init__(
        self, engine: Engine, cluster: str, table: str, dc: str, linearizable: bool = False
    ) -> None:
        self.linearizable = linearizable
        """Each read shows everything that any node answered before it began."""
        self.numbers = Numbers(table)
        self._directory = Directory(engine, cluster)
        self._table = table
        self._dcs = frozenset({dc}) if dc else frozenset[str]()
        """The data centre that is preferred: the one asked for, or else that of the first home."""
        self._known: Sequence[Announcement] = ()
        self._places: dict[str, frozenset[str]] = {}
        """By address; more than one name only where a node is announced twice."""
        self._home = ""
        self._even = True
        """See `even`."""
        self._moved_before = False
        self._look_at = 0.0
        self._choose_at = 0.0
        self._looking_until = 0.0
        self._shunned: dict[str, tuple[float, float]] = {}
        """By address: until when it is passed over, and for how long the last time."""
        self._trips: dict[str, float] = {}
        self.trouble = ""
        """Reason why the client has no home."""
        self.wrote = False
        """The client has written, which another home may not have applied."""

    @property
    def cluster(self) -> str:
        """Its name."""
        return self._directory.cluster

    @property
    def known(self) -> Sequence[Announcement]:
        """The nodes as they were last announced."""
        return self._known

    def home(self, session: Session[Any], until: float) -> Request[str]:
        """Return the address of the node to ask; empty if none is known: see `trouble`.

        `until`: end of the call's time, by the monotonic clock.
        """
        now = time.monotonic()
        if self._home and now < self._look_at:
            return self._home
        if not self._home or now >= self._looking_until:
            yield from self._look(session, now, until)
            yield from self._choose(session, until)
        return self._home

    def even(self, address: str) -> bool:
        """Return whether a node surely has everything this client read and wrote elsewhere."""
        return self._even or address != self._home

    def dcs(self, address: str) -> frozenset[str]:
        """Return the data centre of a node, as it was last announced."""
        return self._places.get(address, frozenset())

    def within(self, dcs: frozenset[str], home: str) -> str:
        """Return a node of a data centre, `home` if it is there; empty if none can be asked."""
        if dcs & self.dcs(home):
            return home
        now = time.monotonic()
        others = [one.address for one in self._known if one.dc in dcs]
        others = [address for address in others if not self._is_shunned(address, now)]
        if others:
            return random.choice(others)
        self.doubt()
        return ""

    def answered(self, address: str, *, wrote: bool) -> None:
        """Note a reply of a node. A reply to a write shows that it has all earlier ones."""
        if self._shunned:
            self._shunned.pop(address, None)
        if wrote:
            self.wrote = True
        if address != self._home:
            # The client moved during this call: the home may lack what the call read or wrote.
            self._even = False
        elif wrote:
            self._even = True

    def levelled(self, address: str) -> None:
        """Note that a node has everything the others had."""
        if address == self._home:
            self._even = True

    def failed(self, address: str) -> bool:
        """Pass a node over for a while; return whether another may be asked at once."""
        now = time.monotonic()
        until, last = self._shunned.get(address, (0.0, 0.0))
        if until <= now:
            # Several calls that were under way there are one failure.
            last = min(last * 2, LONGEST_SHUN) if last else FIRST_SHUN
            self._shunned[address] = now + last, last
        if self._home == address:
            self._home = ""
        return any(not self._is_shunned(one.address, now) for one in self._known)

    def doubt(self) -> None:
        """Read the announcements again before the next call: nodes may drain, or be new."""
        self._look_at = 0.0

    # -- Choosing -----------------------------------------------------------------------------

    def _look(self, session: Session[Any], now: float, until: float) -> Request[None]:
        """Read the announcements; keep the known nodes if the engine does not answer."""
        # If a node is known, do not wait for an engine that is down.
        left = until - now
        within = min(left, QUICK) if self._home or self._known else left
        self._looking_until = now + within
        try:
            found = yield from self._directory.announced(session, max(within, 0.001))
        except EngineUnavailable as error:
            self.trouble = str(error)
        else:
            serving = [one for one in found if one.table in ("", self._table)]
            self.trouble = self._said(found, serving)
            # An engine that restarted empty has lost the announcements, not the nodes.
            self._known = serving or self._known
            places: dict[str, frozenset[str]] = {}
            for one in serving:
                places[one.address] = places.get(one.address, frozenset()) | {one.dc}
            self._places |= places
        self._looking_until = 0.0
        self._look_at = time.monotonic() + EACH * random.uniform(0.8, 1.2)

    def _said(self, found: list[Announcement], serving: list[Announcement]) -> str:
        if serving:
            return ""
        if found:
            tables = ", ".join(sorted({one.table for one in found}))
            return (
                f"no node of cluster {self.cluster!r} serves table {self._table!r}; they serve "
                f"{tables}"
            )
        return f"no node of cluster {self.cluster!r} has announced itself"

    def _choose(self, session: Session[Any], until: float) -> Request[None]:
        """Choose the home: among the nearest nodes of the best class at random."""
        now = time.monotonic()
        classes: dict[tuple[bool, ...], list[Announcement]] = {}
        for one in self._known:
            classes.setdefault(self._class(one, now), []).append(one)
        # Nodes that failed come last: better to ask one of them than none.
        for kind in sorted(classes):
            some = classes[kind]
            at_home = any(one.address == self._home for one in some)
            if at_home and now < self._choose_at:
                return
            near = yield from self._near(session, some, until)
            if any(one.address == self._home for one in near) and now < self._choose_at:
                return  # another thread has chosen meanwhile
            if near:
                self._move(random.choice(near).address)
                self._choose_at = now + AGAIN * random.uniform(0.8, 1.2)
                return

    def _class(self, one: Announcement, now: float) -> tuple[bool, ...]:
        """Return a sort key: reasons against a node, the strongest first."""
        return (
            self._is_shunned(one.address, now),
            one.role == "joining",
            one.draining,
            bool(self._dcs) and one.dc not in self._dcs,
            one.lag_ms > LAGS,
        )

    def _near(
        self, session: Session[Any], some: list[Announcement], until: float
    ) -> Request[list[Announcement]]:
        """Return the nodes that are about as near as the nearest one."""
        if len(some) > 1:
            # In a large cluster, measure some only.
            some = random.sample(some, min(len(some), MEASURED))
            for one in some:
                yield from self._measure(session, one.address, until)
            some = [one for one in some if one.address in self._trips]
        if not some:
            return []
        best = min(self._trips.get(one.address, 0.0) for one in some)
        return [one for one in some if self._trips.get(one.address, 0.0) <= best * 2 + NOISE]

    def _measure(self, session: Session[Any], address: str, until: float) -> Request[None]:
        self._trips.pop(address, None)
        left = until - time.monotonic()
        ask = Ask(NODE + address, ("PING",), max(min(QUICK, left / 2), 0.001))
        try:
            # The first call connects.
            yield ask
            began = time.monotonic()
            yield ask
            self._trips[address] = time.monotonic() - began
        except Refused:
            # It answers, and the call itself will get its error.
            self._trips[address] = QUICK
        except Broken:
            if session.interrupted:
                raise Abandoned from None
            self.failed(address)

    def _move(self, address: str) -> None:
        if address == self._home:
            return
        # Before the first home nothing was read or written.
        self._even = not self._moved_before
        self._moved_before = True
        self._dcs = self._dcs or self.dcs(address)
        self._home = address

    def _is_shunned(self, address: str, now: float) -> bool:
        found = self._shunned.get(address)
        return found is not None and now < found[0]


EACH = 10.0
"""Seconds after which the announcements are read again."""
AGAIN = 60.0
"""Seconds after which the home is chosen again, so that a restarted node gets its share."""
QUICK = 0.25
"""Seconds to wait where another node could be asked instead."""
FIRST_SHUN = 0.5
LONGEST_SHUN = 8.0
LAGS = 2000.0
"""Milliseconds of lag beyond which other nodes are preferred."""
NOISE = 0.0005
"""Difference of round trips, in seconds, that does not count."""
MEASURED = 8
"""Maximum number of nodes measured at once."""
