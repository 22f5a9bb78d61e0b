"""Logins that wait for their password to be looked at: whose is next, and who is sent away.

A look is slow on purpose, so there is one at a time, and whoever asks often must not hold up the
rest. Addresses take turns. First come addresses from which somebody has logged in, then those of
which nothing is known, last those that fail: these get a look once in a while.

The turn of an address is a round: one login of each name that waits there. Names that no user has
need no look of their own, so however many there are, they do not delay a user who shares the
address. Nor do they show who has an account: a round has as many looks as it has names,
`MOST_LOOKS` at most, and all its wrong passwords are answered together, at its end.

At one address so many passwords of one name may wait; one more is told to come again, which does
not say whether it is right. Who comes with a password that waits already shares its look.
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
    """A password that waits to be looked at."""

    askers: list[Asker]
    """Those who sent it."""

    origin: str
    """The unit that takes turns: an IPv4 address, the /64 of an IPv6 one, a unix socket's path."""

    name: bytes
    password: bytes
    known: bool = True
    """A user has this name. If not, name and password may be digests: only equality matters."""

    @property
    def pair(self) -> tuple[bytes, bytes]:
        """The pair that decides the answer."""
        return self.name, self.password


@dataclass
class Round:
    """The turn of an address: those that need a look, and those of whom no user has the name."""

    known: list[Login]
    unknown: list[Login]

    @property
    def looks(self) -> int:
        """The number of looks, which does not depend on who of them is known."""
        return min(len(self.known) + len(self.unknown), MOST_LOOKS)

    def only(self, waits: Callable[[Login], bool]) -> Round:
        """Return the same without those that have gone."""
        return Round(*([one for one in part if waits(one)] for part in (self.known, self.unknown)))


class Logins:
    """Those who wait. Not safe for threads by itself.

    `waiting` bounds those of one name at an address, `failures` is how many wrong passwords within
    a minute make an address one that fails; both may change. `now` tells seconds.
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
        """Let it wait, and return those that have no place, of which it may be one."""
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
            # The most of those who come last of all: a crowd of addresses meets its own.
            worst = max(self._lines, key=lambda one: (self._rank(one), _size(self._lines[one])))
            return [self._drop(worst)]
        return []

    def is_full(self, login: Login) -> bool:
        """Return True if no login more of this name may wait at its address."""
        line = self._lines.get(login.origin, OrderedDict()).get(login.name, ())
        return self._count >= MOST_WAITING or len(line) >= self.waiting

    def forget(self, origin: str, waits: Callable[[Login], bool]) -> None:
        """Let those of an address that have gone wait no more."""
        for line in list(self._lines.get(origin, OrderedDict()).values()):
            for login in [one for one in line if not waits(one)]:
                self._remove(login)

    def next(self) -> Round | float | None:
        """Return the round to look at now, or the seconds until there is one.

        None: nobody waits.
        """
        ready = {origin: self._ready_in(origin) for origin in self._lines}
        if not ready:
            return None
        now = [origin for origin, pause in ready.items() if pause <= 0]
        if not now:
            return min(ready.values())
        # The first of those that come first: `min` keeps the order of turns.
        origin = min(now, key=self._rank)
        return self._take(origin)

    def looked(self, logins: Sequence[Login], right: bool, looks: int = 1) -> list[Login]:
        """Note what so many looks have found, and return those who wait with the very same.

        It holds for them too.
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
        # Each look of a round is one that an address that fails has in a while.
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
                # Those behind it have to wait too, or it would show who is known.
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

        Of equal ones that of a name that nobody has: a user who shares the address keeps the place.
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
"""Looks in the turn of an address."""
# Seconds between two looks for an address that fails.
PAUSE = 0.25
# All addresses together: more would wait longer than a client does.
MOST_WAITING = 1024
# Addresses, of which something is remembered.
MOST_REMEMBERED = 4096
