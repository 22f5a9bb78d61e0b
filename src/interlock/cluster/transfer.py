"""States of all rows, page by page: given by one node, taken by another.

A page is ``NODE SCAN CURSOR COUNT``. Rows change while it goes on; the mark that comes with each
page is of its beginning: who joins all pages and reads the stream from there has everything.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from interlock.cluster.entry import Origin
from interlock.cluster.fence import Mark
from interlock.cluster.reply import array
from interlock.errors import InterlockError
from interlock.hub.client import Client
from interlock.hub.resp import ReplyError
from interlock.hub.url import Address

MOST_ROWS = 2_000
MOST_SCANS = 16
KEPT = 60.0
"""Seconds for which a scan that nobody goes on with is kept."""
Rows = list[tuple[bytes, bytes]]


class ScanMark(msgspec.Struct, frozen=True):
    """The moment of a scan's beginning, as its pages tell it."""

    node: str
    token: int
    number: int
    seq: int
    lineage: int
    position: str
    clock: int = 0
    """The node's hybrid clock."""
    links: list[Origin] = []

    @property
    def mark(self) -> Mark:
        """The place in the stream."""
        return Mark(self.token, self.number, self.seq, self.lineage, self.position)


class ScanLost(InterlockError):
    """A scan cannot go on: the node was started anew, or gave it up."""


@dataclass(slots=True)
class _Scan:
    mark: bytes
    keys: list[bytes]
    used: float


class Scans:
    """Scans that others make of this node's states."""

    def __init__(self, states: dict[bytes, bytes], mark: Callable[[], ScanMark]) -> None:
        self._states = states
        self._mark = mark
        self._scans: dict[str, _Scan] = {}

    def page(self, cursor: str, count: int) -> bytes:
        """Return a page as a reply: the next cursor, the mark, keys and states in turn.

        Raises:
            ScanLost: the cursor is of no scan that there is.
        """
        now = time.monotonic()
        name, _, place = cursor.partition(":")
        if cursor == "0":
            name = self._begin(now)
        scan = self._scans.get(name)
        if scan is None or not (place.isdecimal() or cursor == "0"):
            raise ScanLost(f"no scan has the cursor {cursor[:40]!r}; begin with 0")
        scan.used = now
        at = int(place or 0)
        keys = scan.keys[at : at + min(max(count, 1), MOST_ROWS)]
        at += len(keys)
        if at >= len(scan.keys):
            del self._scans[name]
        following = f"{name}:{at}" if at < len(scan.keys) else "0"
        found = [following.encode(), scan.mark]
        for key in keys:
            state = self._states.get(key)
            if state is not None:
                found += (key, state)
        return array(found)

    def _begin(self, now: float) -> str:
        for name in [name for name, scan in self._scans.items() if now - scan.used > KEPT]:
            del self._scans[name]
        if len(self._scans) >= MOST_SCANS:
            raise ScanLost(f"{MOST_SCANS} scans are under way; try again")
        name = secrets.token_hex(4)
        mark = msgspec.json.encode(self._mark())
        self._scans[name] = _Scan(mark, list(self._states), now)
        return name


def scan(
    address: str | Address, *, count: int = 1_000, timeout: float = 10.0, partial: bool = False
) -> Iterator[tuple[ScanMark, Rows]]:
    """Yield the pages of a node's states; `partial`: also where it lacks some itself.

    Raises:
        OSError: the node is not there.
        ScanLost: it gave the scan up.
    """
    with Client(address, timeout=timeout) as client:
        cursor = b"0"
        while True:
            try:
                reply = client.call("NODE", "SCAN", cursor, count, *(["PARTIAL"] * partial))
            except ReplyError as error:
                raise ScanLost(str(error)) from None
            if not isinstance(reply, list) or len(reply) < 2 or len(reply) % 2:
                raise ScanLost(f"{address} answered a scan by {reply!r:.80}")
            mark = msgspec.json.decode(reply[1], type=ScanMark)
            yield mark, list(zip(reply[2::2], reply[3::2], strict=True))
            cursor = reply[0]
            if cursor == b"0":
                return
