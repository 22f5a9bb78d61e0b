"""Sessions of logged-in users, and the delay of failed logins."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from interlock.dashboard.polling.engine_access import Access

MOST = 64
"""Maximum sessions; the least recently used one is dropped for a new one."""
IDLE = 8 * 3600.0
"""Seconds without a request after which a session ends."""
LONGEST = 24 * 3600.0
"""Seconds after which a session ends in any case."""
FAILURES = 10
"""Logins of one address that may fail within `PERIOD`."""
PERIOD = 60.0
INTERVAL = 1.0
"""Seconds between two tries of an address that has failed too often."""
MOST_ADDRESSES = 10_000
"""Maximum addresses whose failures are remembered."""


@dataclass(slots=True)
class Session:
    """One login."""

    access: Access
    user: str | None
    began: float
    used: float
    own: bool
    """The access is this session's alone, and ends with it."""
    pages: int = 0
    """Open streams: a session with one is in use."""
    ended: list[Callable[[], None]] = field(default_factory=list)
    """Called when it ends."""


class Sessions:
    """Sessions by their ids, which are secret."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_id: dict[str, Session] = {}
        self._secret = secrets.token_bytes(32)

    def __len__(self) -> int:
        return len(self._by_id)

    def begin(self, access: Access, user: str | None, own: bool) -> str:
        """Return the id of a new session."""
        self.sweep()
        while len(self._by_id) >= MOST:
            self.end(min(self._by_id, key=lambda id: self._by_id[id].used))
        id = secrets.token_urlsafe(32)
        now = self._clock()
        self._by_id[id] = Session(access, user, now, now, own)
        return id

    def find(self, id: str) -> Session | None:
        """Return a session that has not ended, and note that it is used."""
        found = self._by_id.get(id)
        if found is None:
            return None
        if self._is_over(found):
            self.end(id)
            return None
        found.used = self._clock()
        return found

    def end(self, id: str) -> None:
        """End a session, its streams and, if it has one of its own, its access."""
        found = self._by_id.pop(id, None)
        if found is None:
            return
        for told in list(found.ended):
            told()
        if found.own:
            found.access.close()

    def sweep(self) -> None:
        """End the expired sessions."""
        for id in [id for id, one in self._by_id.items() if self._is_over(one)]:
            self.end(id)

    def close(self) -> None:
        """End all."""
        for id in list(self._by_id):
            self.end(id)

    def _is_over(self, one: Session) -> bool:
        now = self._clock()
        return now - one.began > LONGEST or (not one.pages and now - one.used > IDLE)

    def mark(self, id: str) -> str:
        """Return the value that a changing request must carry in a header.

        It belongs to the cookie `id`, and only a client that can read an answer knows it.
        """
        return hmac.new(self._secret, id.encode(), "sha256").hexdigest()

    def marked(self, id: str, mark: str) -> bool:
        """Return whether a request carries the mark of its cookie."""
        return hmac.compare_digest(self.mark(id).encode(), mark.encode())


class Brake:
    """Slows down an address whose logins fail, without harm to others.

    After too many failures an address has one try a second. There is no limit for all addresses
    together: with one, anyone could lock out everybody.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failed: dict[str, list[float]] = {}
        self._tried: dict[str, float] = {}

    def holds(self, address: str) -> float:
        """Return the seconds until this address may try again; 0: now, and this is its try."""
        address, now = network(address), self._clock()
        times = self._recent(address, now)
        if len(times) < FAILURES:
            return 0.0
        wait = self._tried.get(address, times[-1]) + INTERVAL - now
        if wait <= 0:
            self._tried[address] = now
        return max(wait, 0.0)

    def failed(self, address: str) -> bool:
        """Note that a login failed. Returns whether the address has failed too often."""
        address, now = network(address), self._clock()
        # The last to fail is last, and the first is dropped for a new one.
        times = self._recent(address, now)
        self._failed.pop(address, None)
        self._failed[address] = [*times, now][-FAILURES:]
        while len(self._failed) > MOST_ADDRESSES:
            self._forget(next(iter(self._failed)))
        return len(times) >= FAILURES

    def right(self, address: str) -> None:
        """Take back the note of a login that succeeded."""
        times = self._failed.get(address := network(address))
        if times:
            times.pop()
        if not times:
            self._forget(address)

    def _recent(self, address: str, now: float) -> list[float]:
        while self._failed:
            one, times = next(iter(self._failed.items()))
            if times and times[-1] > now - PERIOD:
                break
            self._forget(one)
        return [moment for moment in self._failed.get(address, ()) if moment > now - PERIOD]

    def _forget(self, address: str) -> None:
        self._failed.pop(address, None)
        self._tried.pop(address, None)


def network(address: str) -> str:
    """Return the unit that counts as one address: for IPv6 the first 64 bits (one customer)."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, 64), strict=False))
