"""Logins that wait for their password check: their order, and which are refused.

A check is slow on purpose, so there is one at a time, and a client that asks often must not hold up
the rest. Addresses take turns. Addresses with a successful login come first, then unknown ones,
last those that fail: these get a check once in a while.

The turn of an address is a round: one login of each name that waits there. Names without a user
need no check of their own, so however many there are, they do not delay a user who shares the
address. Nor do they reveal which accounts exist: a round has as many checks as it has names,
`MOST_LOOKS` at most, and all its wrong passwords are answered together, at its end.

At one address a limited number of passwords of one name may wait; a further login is refused with a
request to retry, which does not reveal whether its password is right. A login whose password waits
already shares its check.
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Asker = tuple[int, int, int]


@dataclass(eq=False)
class Login:
    """A password that waits for its check."""

    askers: list[Asker]
    """The logins that sent it."""

    origin: str
    """The unit that takes turns: an IPv4 address, the /64 of an IPv6 one, a unix socket's path."""

    name: bytes
    password: bytes
    known: bool = True
    """True if a user has this name. If not, name and password may be digests."""

    @property
    def pair(self) -> tuple[bytes, bytes]:
        """The pair that decides the answer."""
        return self.name, self.password


@dataclass
class Round:
    """The turn of an address: logins that need a check, and those whose name no user has."""

    known: list[Login]
    unknown: list[Login]

    @property
    def looks(self) -> int:
        """Number of checks, which does not depend on the users known among them."""
        return min(len(self.known) + len(self.unknown), MOST_LOOKS)

    def only(self, waits: Callable[[Login], bool]) -> Round:
        """Return the same without the closed connections."""
        return Round(*([one for one in part if waits(one)] for part in (self.known, self.unknown)))


class Logins:
    """The waiting logins. Not safe for threads by itself.

    `waiting` bounds the logins of one name at an address; `failures` is the number of wrong
    passwords within a minute after which an address counts as failing; both may change. `now`
    returns seconds.
    """

    def __init__(
        self, waiting: int, failures: int, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.waiting = waiting
        self.failures = failures
        self._now = now
        # By address, and within it by name, each in the order of turns.
        self._lines: OrderedDict[str, OrderedDict[bytes, deque[Login]]] = OrderedDict()
        self._count = 0
        self._good: OrderedDict[str, None] = OrderedDict()
        self._failed: OrderedDict[str, deque[float]] = OrderedDict()

    def __len__(self) -> int:
        return self._count

    def add(self, login: Login) -> list[Login]:
        """Add it, and return the logins that have no place, possibly including it."""
        lines = self._lines.setdefault(login.origin, OrderedDict())
        line = lines.setdefault(login.name, deque())
        for known in line:
            if known.password == login.password:
                known.askers += login.askers
                return []
        line.append(login)
        self._count += 1
        if len(line) > self.waiting:
            self._remove(login)
            return [login]
        if self._count > MOST_WAITING:
            # The longest of the lowest class: a crowd of addresses displaces its own.
            worst = max(self._lines, key=lambda one: (self._rank(one), _size(self._lines[one])))
            return [self._drop(worst)]
        return []

    def is_full(self, login: Login) -> bool:
        """Return True if no further login of this name may wait at its address."""
        line = self._lines.get(login.origin, OrderedDict()).get(login.name, ())
        return self._count >= MOST_WAITING or len(line) >= self.waiting

    def forget(self, origin: str, waits: Callable[[Login], bool]) -> None:
        """Remove the closed connections of an address."""
        for line in list(self._lines.get(origin, OrderedDict()).values()):
            for login in [one for one in line if not waits(one)]:
                self._remove(login)

    def next(self) -> Round | float | None:
        """Return the next round, or the seconds until there is one.

        None: no login waits.
        """
        ready = {origin: self._ready_in(origin) for origin in self._lines}
        if not ready:
            return None
        now = [origin for origin, pause in ready.items() if pause <= 0]
        if not now:
            return min(ready.values())
        # The first of the highest class: `min` keeps the order of turns.
        origin = min(now, key=self._rank)
        return self._take(origin)

    def looked(self, logins: Sequence[Login], right: bool, looks: int = 1) -> list[Login]:
        """Note the result of a number of checks, and return the logins with the same password.

        The result holds for them too.
        """
        pairs = {login.pair for login in logins}
        same = [one for one in self._all() if one.pair in pairs]
        for one in same:
            self._remove(one)
        for one in (*logins, *same):
            if right:
                self._good[one.origin] = None
                self._good.move_to_end(one.origin)
            else:
                self._fail(one.origin, looks)
        if len(self._good) > MOST_REMEMBERED:
            self._good.popitem(last=False)
        return same

    def _fail(self, origin: str, looks: int) -> None:
        times = self._failed.setdefault(origin, deque())
        # Each check of a round is the periodic one of a failing address.
        times.append(self._now() + (looks - 1) * PAUSE)
        # No more of them than decide.
        while len(times) > max(self.failures, 1):
            times.popleft()
        self._failed.move_to_end(origin)
        if len(self._failed) > MOST_REMEMBERED:
            self._failed.popitem(last=False)

    def _fails(self, origin: str) -> bool:
        times = self._failed.get(origin)
        if times is None or self.failures == 0 or len(times) < self.failures:
            return False
        return times[0] > self._now() - MINUTE

    def _rank(self, origin: str) -> int:
        return 1 - (origin in self._good) + self._fails(origin)

    def _ready_in(self, origin: str) -> float:
        if not self._fails(origin):
            return 0.0
        return self._failed[origin][-1] + PAUSE - self._now()

    def _take(self, origin: str) -> Round:
        lines, found = self._lines[origin], Round([], [])
        for name in list(lines):
            login = lines[name][0]
            if login.known and len(found.known) == MOST_LOOKS:
                # Later logins have to wait too, or the time would reveal the known names.
                break
            (found.known if login.known else found.unknown).append(login)
            self._remove(login)
            # Behind all others, for its next turn.
            if name in lines:
                lines.move_to_end(name)
        if origin in self._lines:
            self._lines.move_to_end(origin)
        return found

    def _drop(self, origin: str) -> Login:
        """Remove the last of the longest line of an address, and return it.

        Of equal ones remove an unknown name's: a user who shares the address keeps the place.
        """
        lines = self._lines[origin].values()
        line = max(lines, key=lambda line: (len(line), not line[-1].known))
        login = line[-1]
        self._remove(login)
        return login

    def _remove(self, login: Login) -> None:
        lines = self._lines[login.origin]
        line = lines[login.name]
        line.remove(login)
        self._count -= 1
        if not line:
            del lines[login.name]
        if not lines:
            del self._lines[login.origin]

    def _all(self) -> list[Login]:
        return [one for lines in self._lines.values() for line in lines.values() for one in line]


def origin_of(host: str) -> str:
    """Return the unit that takes turns for a connection from here.

    (One IPv6 address means 2^64.)
    """
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return host


def _size(lines: OrderedDict[bytes, deque[Login]]) -> int:
    return sum(map(len, lines.values()))


MINUTE = 60.0
MOST_LOOKS = 4
"""Checks in the turn of an address."""
# Seconds between two checks for an address that fails.
PAUSE = 0.25
# All addresses together: more would wait longer than a client does.
MOST_WAITING = 1024
# Number of addresses that are remembered.
MOST_REMEMBERED = 4096
