"""Links to other data centres: rows that change in its data centre go into the logs of the others.

A link only writes. How far it has come is written down beside the other log, in its engine, with
the entry that was appended last: where the engine has lost that entry, all rows are sent again. So
any node may send, and those that find that another sends rest.
"""

from __future__ import annotations

import logging
import random
import secrets
import threading
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from interlock import _core
from interlock.cluster.database.behind import parts
from interlock.engine import url as urls
from interlock.engine.transport import connection as transport
from interlock.errors import InterlockError

logger = logging.getLogger("interlock.cluster")
MOST = 5_000
"""Rows that are taken at once."""
SIZE = 1 << 19
"""Bytes of rows in an entry, which is not much longer."""
WAIT = 0.25
"""Seconds for which the node is asked for a change."""
RESTED = 1.0
"""Seconds between two looks at a link on which another node sends."""
_FIRST, _LONGEST = 0.1, 2.0
_PLACED = 5.0
"""Seconds between two notes of the place when no row changes."""
FIELD = b"e"
Row = tuple[bytes, bytes, int]


class LogUnavailable(InterlockError, ConnectionError):
    """The log of another data centre could not be reached, or is not there yet."""


@dataclass
class LinkState:
    """Figures of one link."""

    dc: str
    state: str = "idle"
    """``idle``: another node sends; ``ok``, ``copying`` or ``cut``."""
    error: str = ""
    position: str = ""
    heard: float = field(default=float("-inf"))
    """The moment at which the other engine last answered, by the monotonic clock."""
    lag_ms: float = 0.0
    changes: int = 0


class LinkPlace(msgspec.Struct, frozen=True):
    """A place in the history of a data centre up to which another has its rows."""

    position: int
    checksum: int
    number: int
    """The number of the last change that the other has."""
    writer: str
    """The start of a node that wrote it."""
    last: str = ""
    """The id of the last entry there, and a checksum of it."""
    digest: int = 0

    @property
    def since(self) -> tuple[int, int, int]:
        """The place that `LogNode.changed` is asked with."""
        return self.position, self.checksum, self.number


class FarLog:
    """The log of a data centre in a Redis or Valkey, for those who only write to it.

    One thread uses it, but for ``close``. Calls raise ``LogUnavailable``, and connect anew with the
    next.
    """

    def __init__(self, url: str, table: str, dc: str, timeout: float) -> None:
        self._target = urls.parse(url)
        if self._target.kind != "server":
            raise ValueError(f"a link needs one Redis or Valkey, not {self._target.shown}")
        self._log = f"il:log:{{{table}.{dc}}}".encode()
        self._places = f"il:link:{{{table}.{dc}}}".encode()
        self._timeout = timeout
        self._made: Any = None

    def append(self, entry: bytes) -> str:
        """Append an entry to a log that has begun; return its id."""
        (id,) = self._asked((b"XADD", self._log, b"NOMKSTREAM", b"*", FIELD, entry))
        if id is None:
            raise LogUnavailable(self._text("no node has begun it"))
        return bytes(id).decode()

    def place(self, source: str) -> LinkPlace | None:
        """Return the place of a data centre. None: there is none, or its last entry is lost."""
        (text,) = self._asked((b"HGET", self._places, source.encode()))
        if text is None:
            return None
        try:
            place = msgspec.json.decode(text, type=LinkPlace)
        except msgspec.DecodeError:
            return None
        if not place.last:
            return place
        id = place.last.encode()
        found, first = self._asked(
            (b"XRANGE", self._log, id, id), (b"XRANGE", self._log, b"-", b"+", b"COUNT", b"1")
        )
        if found:
            return place if zlib.crc32(found[0][1][1]) == place.digest else None
        # What is trimmed was read; a log that lost it has lost the place too.
        return place if first and _id(first[0][0]) > _id(id) else None

    def keep(self, source: str, place: LinkPlace) -> None:
        """Write down the place of a data centre."""
        self._asked((b"HSET", self._places, source.encode(), msgspec.json.encode(place)))

    def forget(self, source: str) -> None:
        """Have a data centre send all its rows again."""
        self._asked((b"HDEL", self._places, source.encode()))

    def close(self) -> None:
        """Close the connection."""
        made, self._made = self._made, None
        if made is not None:
            made.disconnect()

    def _asked(self, *commands: tuple[bytes, ...]) -> list[Any]:
        from redis import connection
        from redis.exceptions import RedisError

        try:
            if self._made is None:
                address = self._target.addresses[0]
                made = transport.make(connection, self._target, address, self._timeout)
                made.socket_timeout = self._timeout
                self._made = made
                made.connect()
            self._made.send_packed_command(self._made.pack_commands(commands), check_health=False)
            return [self._made.read_response(disable_decoding=True) for _ in commands]
        except (RedisError, OSError, *transport.UNREADABLE) as error:
            self.close()
            raise LogUnavailable(self._text(str(error) or type(error).__name__)) from None

    def _text(self, why: str) -> str:
        return f"log {self._log.decode()} at {self._target.shown}: {why}"


class Link:
    """A thread that sends the rows of this data centre to another.

    Args:
        dc: the other data centre.
        own: this one.
        far: the log of the other.
        near: the log of this one, to have the other send all its rows again.
    """

    def __init__(self, dc: str, own: str, far: FarLog, near: FarLog) -> None:
        self.dc = dc
        self.figures = LinkState(dc)
        self._own = own
        self._far, self._near = far, near
        self._writer = secrets.token_hex(8)
        self._node: _core.LogNode | None = None
        self._place: LinkPlace | None = None
        self._placed_at = 0.0
        self._since: float | None = None
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"node-link-{dc}", daemon=True)

    def start(self, node: _core.LogNode) -> None:
        """Begin."""
        self._node = node
        self._thread.start()

    def standing(self) -> dict[str, Any]:
        """Return its figures, as status shows them."""
        figures = self.figures
        silent = (time.monotonic() - figures.heard) * 1000
        return {
            "dc": self.dc,
            "state": figures.state,
            "error": figures.error,
            "position": figures.position,
            "lag_ms": round(figures.lag_ms, 1),
            "changes": figures.changes,
            "silent_ms": round(min(silent, 1e12), 1),
        }

    def close(self) -> None:
        """End; the node must be there until then."""
        self._ends.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        failures = 0
        while not self._ends.is_set():
            try:
                self._step()
            except Exception as error:
                known = isinstance(error, LogUnavailable)
                if self.figures.state != "cut":
                    logger.warning(
                        "the link to data centre %s is cut: %s", self.dc, error, exc_info=not known
                    )
                self.figures.state, self.figures.error = "cut", str(error)
                failures += 1
                longest = min(_FIRST * 2 ** min(failures, 10), _LONGEST)
                self._lag()
                self._ends.wait(random.uniform(longest / 2, longest))
            else:
                failures = 0
        self._far.close()
        self._near.close()

    def _lag(self) -> None:
        since = self._since
        self.figures.lag_ms = 0.0 if since is None else (time.monotonic() - since) * 1000

    def _step(self) -> None:
        assert self._node is not None
        asked_at, place = time.monotonic(), self._far.place(self._own)
        self.figures.heard = asked_at
        if place is not None and place != self._place and place.writer != self._writer:
            # Another node sends. Once it does not go on, this one does.
            self._place = place
            self.figures.state, self.figures.error = "idle", ""
            self._since = None
            self._lag()
            self._ends.wait(RESTED)
            return
        since = (0, 1, 0) if place is None else place.since
        found = self._node.changed(since, MOST, WAIT, own=True)
        if found is None:
            return
        stand, last, kind, rows, image = found
        if self._since is None and (place is None or last > place.number):
            self._since = asked_at
        self._lag()
        if kind == "rows":
            assert place is not None
            self._send(rows, stand, place, last)
            return
        assert image is not None
        self.figures.state = "copying"
        whole = kind != "behind"
        if place is not None and kind == "other":
            logger.warning(
                "data centre %s has rows of a history that the log has lost; sending it all rows",
                self.dc,
            )
            # It may have what is lost here.
            self._near.forget(self.dc)
        number = 0 if whole or place is None else place.number
        self._send(_each(image.since(number), self._ends), stand, place, last)

    def _send(
        self,
        rows: Iterable[Row],
        stand: tuple[int, int, int, int, int],
        place: LinkPlace | None,
        last: int,
    ) -> None:
        assert self._node is not None
        position, checksum, _, _, number = stand
        before = (self._own, 0, 0) if place is None else (self._own, *place.since[:2])
        sent = 0
        id, digest = ("", 0) if place is None else (place.last, place.digest)
        for batch in _lists(rows):
            sent += len(batch)
            for part in parts([row[:2] for row in batch], SIZE):
                self._far.append(self._node.states_entry(part, before))
        if sent and not self._ends.is_set():
            # Up to here the other has all. It is short, for it is looked at again and again.
            end = self._node.states_entry([], (self._own, position, checksum))
            id, digest = self._far.append(end), zlib.crc32(end)
        if self._ends.is_set():
            # Not all may be sent.
            return
        now = time.monotonic()
        if sent or place is None or place.number != number or (
            place.position != position and now - self._placed_at >= _PLACED
        ):  # fmt: skip
            made = LinkPlace(position, checksum, number, self._writer, id, digest)
            self._far.keep(self._own, made)
            self._place, self._placed_at = made, now
        self.figures.changes += sent
        self.figures.position = str(position)
        self.figures.state, self.figures.error = "ok", ""
        self._since = None if number >= last else now
        self._lag()


def _each(rows: _core.RowsIterator, ends: threading.Event) -> Iterable[Row]:
    while not ends.is_set() and (found := rows.take(MOST)):
        yield from found


def _lists(rows: Iterable[Row]) -> Iterable[list[Row]]:
    batch: list[Row] = []
    for row in rows:
        batch.append(row)
        if len(batch) == MOST:
            yield batch
            batch = []
    if batch:
        yield batch


def _id(text: bytes) -> tuple[int, int]:
    ms, _, number = text.partition(b"-")
    return int(ms), int(number)
