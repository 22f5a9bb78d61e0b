"""``NODE SCAN``: states of all rows of a node at one moment, page by page."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass

from interlock import _core
from interlock.cluster.reply import array, error
from interlock.errors import InterlockError
from interlock.hub.client import Client
from interlock.hub.resp import ReplyError
from interlock.hub.url import Address

MOST_ROWS = 2_000
"""Maximum rows of a page."""
MOST_BYTES = 4 << 20
"""Bytes after which a page ends."""
MOST_SCANS = 8
UNUSED = 60.0
"""Seconds after which an unused scan is closed."""
NOWHERE = 0, 1, 0
"""A place before all history: everything has changed since."""
WAIT = 1.0
"""Seconds to wait for the node's loop, which usually answers in a millisecond."""


class ScanLost(InterlockError):
    """A node could not return all its rows."""


@dataclass(slots=True)
class _Scan:
    rows: _core.RowsIterator
    position: int
    page: int
    used: float


class Scans:
    """Scans of one node's rows; one thread calls."""

    def __init__(self, node: _core.LogNode) -> None:
        self._node = node
        self._scans: dict[str, _Scan] = {}

    def answer(self, cursor: str, count: int) -> bytes:
        """Return a page as a reply: the next cursor, the position, keys and states in turn."""
        now = time.monotonic()
        for old in [name for name, scan in self._scans.items() if now - scan.used > UNUSED]:
            del self._scans[old]
        name, _, page = cursor.partition(":")
        if cursor == "0":
            begun = self._begin(now)
            if isinstance(begun, bytes):
                return begun
            name = begun
        scan = self._scans.get(name)
        if scan is None or (cursor != "0" and page != str(scan.page)):
            return error(f"NODE there is no scan with the cursor {cursor[:40]!r}; begin with 0")
        scan.used = now
        scan.page += 1
        found = [b"0", str(scan.position).encode()]
        left, size = min(max(count, 1), MOST_ROWS), 0
        while left > 0 and size < MOST_BYTES:
            rows = scan.rows.take(min(left, STEP))
            if not rows:
                del self._scans[name]
                return array(found)
            left -= len(rows)
            for key, state, _ in rows:
                found += (key, state)
                size += len(key) + len(state)
        found[0] = f"{name}:{scan.page}".encode()
        return array(found)

    def _begin(self, now: float) -> str | bytes:
        if len(self._scans) >= MOST_SCANS:
            return error(f"NODE {MOST_SCANS} scans are under way; try again")
        found = self._node.changed(NOWHERE, 0, WAIT)
        image = found[4] if found is not None else None
        if found is None or image is None:
            return error("NODE the node has not read its log to the end; try again")
        name = secrets.token_hex(4)
        self._scans[name] = _Scan(image.since(0), found[0][0], 0, now)
        return name


STEP = 100
"""Rows taken at once."""


def scan(
    address: Address, *, count: int = MOST_ROWS, timeout: float = 30.0
) -> Iterator[tuple[int, list[tuple[bytes, bytes]]]]:
    """Yield the pages of a node's rows: the position of all of them, and keys with states.

    Raises:
        OSError: the node does not answer.
        ScanLost: it cannot give them.
    """
    with Client(address, timeout=timeout) as client:
        cursor: bytes = b"0"
        while True:
            try:
                reply = client.call("NODE", "SCAN", cursor, count)
            except ReplyError as refusal:
                raise ScanLost(str(refusal)) from None
            if not isinstance(reply, list) or len(reply) < 2 or len(reply) % 2:
                raise ScanLost(f"it answered a scan with {reply!r:.80}")
            yield int(reply[1]), list(zip(reply[2::2], reply[3::2], strict=True))
            cursor = reply[0]
            if cursor == b"0":
                return
