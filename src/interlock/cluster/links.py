"""Links to other data centres: rows that change in its data centre go into the logs of the others.

A link only writes. A note of the last report is kept beside the other log, in its engine, with a
place of that log behind the last entry: if the engine has lost that entry, all rows are sent again.
So any node may send, and nodes that find another one sending rest.

Each report names the histories of the other data centre from which rows have come. If the log there
has lost one of them, both send all rows again (``LogNode.report`` decides that).
"""

from __future__ import annotations

import logging
import random
import secrets
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from interlock import _core
from interlock.cluster.database.behind import parts
from interlock.cluster.streams import (
    PositionLost,
    StreamDenied,
    StreamMissing,
    StreamUnavailable,
    StreamUnfit,
    open_log,
)

logger = logging.getLogger("interlock.cluster")
MOST = 5_000
"""Rows that are taken at once."""
SIZE = 1 << 19
"""Bytes of rows in an entry, which is not much longer."""
WAIT = 0.25
"""Seconds for which the node is asked for a change."""
RESTED = 1.0
"""Seconds between two looks at a link on which another node sends."""
LOOKED = 1.0
"""Seconds between two looks whether the other log has what was sent last."""
NOTES = 100
"""Notes of a place after which those before are dropped."""
_FIRST, _LONGEST = 0.1, 2.0
_PLACED = 5.0
"""Seconds between two notes of the place when no row changes."""
_TOLD = 1.0
"""Seconds between two reports without rows."""
Row = tuple[bytes, bytes, int]


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
    """Note of the last report to a data centre."""

    sent: bytes
    """Result of ``LinkReport.sent``."""
    position: int
    number: int
    """The number of the last change that the other has."""
    writer: str
    """The start of a node that wrote it."""
    last: str = ""
    """The position of an entry there, behind the last that was sent or this itself."""


class FarLog:
    """The log of a data centre, and the notes there of how far another has sent its rows.

    One thread uses it. Calls raise ``StreamUnavailable``, and connect anew with the next.

    Args:
        dc: the data centre of the log.
        source: the one that sends.
    """

    def __init__(self, url: str, table: str, dc: str, source: str, timeout: float) -> None:
        self._log = open_log(url, table, dc, role="append", timeout=timeout)
        self._notes = open_log(url, table, dc, role="append", timeout=timeout, source=source)
        self._noted = ""
        """The position of the last note that was read."""
        self._place: LinkPlace | None = None
        self._looked: tuple[LinkPlace, float] | None = None
        """A place that the log had, and when."""
        self._most: tuple[int, str] | None = None
        self._kept = 0

    def append(self, entries: Sequence[bytes]) -> str:
        """Append entries to a log that has begun; return a position behind them."""
        if self._most is None:
            self._most = self._log.largest()
        most, setting = self._most
        for entry in entries:
            if len(entry) > most:
                self._most = None
                raise StreamUnfit(
                    f"a row takes {len(entry)} bytes in an entry of its log; allowed: {most}, by "
                    f"{setting}"
                )
        try:
            ids = self._log.append(entries)
        except StreamUnavailable:
            self._most = None
            raise
        # Whatever it finds now was written after the last append.
        return self._log.last() if ids is None else _position(ids[-1], entries[-1])

    def place(self) -> LinkPlace | None:
        """Return the noted place; None without one, or if the log has lost its entry."""
        self._read_notes()
        place = self._place
        if place is None or not place.last:
            return place
        now = time.monotonic()
        if self._looked is None or self._looked[0] != place or now >= self._looked[1] + LOOKED:
            if not self._is_there(place.last):
                self._looked = None
                return None
            self._looked = place, now
        return place

    def _is_there(self, position: str) -> bool:
        if self._log.look([position])[0]:
            return True
        ends = self._log.ends()
        # Trimmed entries were read; a log that begins again has lost them.
        return (
            ends is not None
            and _number(ends[0].id) > _number(position)
            and not _core.LogBridge.begins(ends[0].data)
        )

    def _read_notes(self) -> None:
        while True:
            try:
                found, at_end = self._notes.entries(self._noted, 1000, 0)
            except PositionLost:
                if not self._noted:
                    raise
                self._noted, self._place = "", None
                continue
            if found:
                self._noted = _position(found[-1].id, found[-1].data)
                self._place = _note(found[-1].data)
            if at_end or not found:
                return

    def keep(self, place: LinkPlace) -> None:
        """Keep a note of a report."""
        note = msgspec.json.encode(place)
        try:
            self._notes.append([note])
        except StreamMissing:
            self._notes.begin(note)
        self._kept += 1
        if self._kept % NOTES == 0 and self._noted and not self._notes.untrimmed:
            self._notes.trim([self._noted])

    def close(self) -> None:
        """Close the connections."""
        self._log.close()
        self._notes.close()


class Link:
    """A thread that sends the rows of this data centre to another.

    Args:
        dc: the other data centre.
        far: the log of the other.
    """

    def __init__(self, dc: str, far: FarLog) -> None:
        self.dc = dc
        self.figures = LinkState(dc)
        self._far = far
        self._writer = secrets.token_hex(8)
        self._node: _core.LogNode | None = None
        self._place: LinkPlace | None = None
        self._placed_at = self._told_at = float("-inf")
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
                known = isinstance(error, StreamUnavailable)
                is_new = isinstance(error, StreamDenied) and str(error) != self.figures.error
                if self.figures.state != "cut" or is_new:
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

    def _lag(self) -> None:
        since = self._since
        self.figures.lag_ms = 0.0 if since is None else (time.monotonic() - since) * 1000

    def _step(self) -> None:
        assert self._node is not None
        asked_at, place = time.monotonic(), self._far.place()
        self.figures.heard = asked_at
        if place is not None and place != self._place and place.writer != self._writer:
            # Another node sends. If it stops, this one takes over.
            self._place = place
            self.figures.state, self.figures.error = "idle", ""
            self._since = None
            self._lag()
            self._ends.wait(RESTED)
            return
        found = self._node.report(self.dc, None if place is None else place.sent, MOST, WAIT)
        if found is None:
            return
        report, kind, rows, image = found
        if self._since is None and (place is None or report.last > place.number):
            self._since = asked_at
        self._lag()
        if kind == "rows":
            if report.is_due and not rows and time.monotonic() - self._told_at < _TOLD:
                # Each report lets the other data centre make one, too.
                self._ends.wait(WAIT)
                return
            self._send(rows, report, place)
            return
        assert image is not None
        self.figures.state = "copying"
        if report.has_lost:
            logger.warning(
                "data centre %s has rows of a history that the log has lost; both send all rows",
                self.dc,
            )
        number = place.number if kind == "behind" and place is not None else 0
        self._send(_each(image.since(number), self._ends), report, place)

    def _send(self, rows: Iterable[Row], report: _core.LinkReport, place: LinkPlace | None) -> None:
        assert self._node is not None
        sent, node = 0, self._node
        last_there = "" if place is None else place.last
        for batch in _lists(rows):
            sent += len(batch)
            pieces = parts([row[:2] for row in batch], SIZE)
            self._far.append([node.states_entry(report, part) for part in pieces])
        is_told = bool(sent) or report.is_due
        if is_told and not self._ends.is_set():
            # Up to here the other has all. It is short, for it is looked at again and again.
            last_there = self._far.append([node.states_entry(report, [])])
        if self._ends.is_set():
            # Not all may be sent.
            return
        now = time.monotonic()
        if is_told:
            self._told_at = now
        position, number = report.position, report.number
        if is_told or place is None or place.number != number or (
            place.position != position and now - self._placed_at >= _PLACED
        ):  # fmt: skip
            made = LinkPlace(report.sent(), position, number, self._writer, last_there)
            self._far.keep(made)
            self._place, self._placed_at = made, now
        self.figures.changes += sent
        self.figures.position = str(position)
        self.figures.state, self.figures.error = "ok", ""
        self._since = None if number >= report.last else now
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


def _note(data: bytes) -> LinkPlace | None:
    try:
        return msgspec.json.decode(data, type=LinkPlace)
    except msgspec.DecodeError:
        return None


def _position(id: str, data: bytes) -> str:
    return f"{id}.{_core.LogBridge.mark(data)}"


def _number(id: str) -> tuple[int, ...]:
    return tuple(map(int, id.partition(".")[0].split("-")))
