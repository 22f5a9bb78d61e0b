"""State of a node, for ``NODE STATUS``, the pages over HTTP, and its announcement.

Nodes of one data centre at the same position are equal to the byte. Each compares the checksums
that others announce with its own at that position; a difference is an alarm.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import interlock
from interlock import _core
from interlock.client.rows.announcements import Announcement, Role
from interlock.cluster.membership import ANNOUNCED, Membership, machine
from interlock.cluster.metrics import database_lines, link_lines, node_lines
from interlock.cluster.pacing import pace
from interlock.cluster.pages import Standing
from interlock.cluster.settings import NodeSettings

logger = logging.getLogger("interlock.cluster")
RESTS = 1.5
"""Seconds since the last read for which a node at the end of its log counts as not behind: it reads
an idle log every second."""
CLOCKS = 1.0
"""Difference in seconds between the clocks of machine and log beyond which it is reported."""
REMEMBERED = 256
"""Number of positions whose checksums a node remembers, to compare them with announced ones."""


class NodeFigures:
    """The state of one node; `node` is set once it has started."""

    def __init__(
        self,
        settings: NodeSettings,
        rules: _core.StateRules,
        address: Callable[[], str],
        database: Callable[[], dict[str, Any] | None],
        links: Callable[[], list[dict[str, Any]]],
    ) -> None:
        self.node: _core.LogNode | None = None
        self.membership: Membership | None = None
        self.since = time.time()
        self.resyncs = False
        """An operator asked for a resync, and it has not begun yet."""
        self.fault = ""
        """Reason why the node cannot continue; empty if it can."""
        self.lacking = ""
        """Reason why the node has not received the snapshot it needs; empty if it needs none."""
        self.peers: dict[str, str] = {}
        """Nodes that would give this one no snapshot, and why."""
        self._settings = settings
        self._rules = rules
        self._address = address
        self._database = database
        self._links = links
        self._machine = settings.machine or machine()
        self._lock = threading.Lock()
        self._sums: OrderedDict[int, tuple[str, str]] = OrderedDict()
        """Checksums of its rows and its log, by position."""
        self._forked: dict[str, tuple[float, float]] = {}
        """Nodes with another history at the same position: when that was first and last seen, by
        the monotonic clock."""
        self._mismatches: dict[str, tuple[int, float]] = {}
        self._clocks = 0.0
        """Seconds by which the machine's clock is ahead of the log, measured at a new entry."""
        self._clock_set: float | None = None
        """Offset of the machine's clock at that moment; None before the first entry."""
        self._clocks_since = 0.0
        self._lacks_machines: float | None = None
        """Since when fewer other machines serve than `ack` needs; None if enough do."""
        self._is_lack_told = False
        self._twin_since = 0.0
        self._hindered_since = 0.0
        self._unannounced_since = 0.0
        self._cut_off_since = 0.0
        self._grown = UNTRIMMED * pace()["checkpoint"] + settings.keep
        self._ended_at: float | None = None
        """Last moment at the end of its log, by the monotonic clock; None unless it serves."""

    @property
    def name(self) -> str:
        """Its id."""
        return self._settings.name

    def look(self) -> dict[str, Any]:
        """Return the node's current figures, after comparing it with others."""
        assert self.node is not None
        with self._lock:
            found: dict[str, Any] = self.node.figures()
            position = int(found["position"])
            if position and (not self._sums or next(reversed(self._sums)) != position):
                self._note(position, found)
            self._clocks_since = _since(self._clocks_since, abs(self._clock_ahead()) > CLOCKS)
            self._compare()
            self._count_machines()
            self._look_for_twin()
            is_announced = self.membership is None or not self.membership.trouble
            self._unannounced_since = _since(self._unannounced_since, not is_announced)
            self._cut_off_since = _since(self._cut_off_since, bool(self.peers))
            self._look_at_growth(found)
            knows = found["serves"] and found["at_end"] and found["behind"] is not None
            self._ended_at = time.monotonic() - float(found["behind"]) if knows else None
        return found

    def _note(self, position: int, found: dict[str, Any]) -> None:
        if self._sums and next(reversed(self._sums)) > position:
            # It has gone back: the log has lost its history.
            self._sums.clear()
        self._sums[position] = _sums(found)
        while len(self._sums) > REMEMBERED:
            self._sums.popitem(last=False)
        if found["at_end"] and self._ended_at is not None:
            # The entry was written after the log was last read to its end.
            ahead = time.time() - found["log_time"] / 1000
            least = max(0.0, ahead - (time.monotonic() - self._ended_at))
            self._clocks, self._clock_set = min(ahead, least), _clock_offset()

    def _clock_ahead(self) -> float:
        """Return the seconds by which the machine's clock is ahead of the log.

        A clock that was set since the last entry counts as it is now.
        """
        return 0.0 if self._clock_set is None else self._clocks + _clock_offset() - self._clock_set

    def _compare(self) -> None:
        near = self._near()
        if self._mismatches:
            there = {one.id for one in near}
            for id in self._mismatches.keys() - there:
                del self._mismatches[id]
        for one in near:
            ours, log = self._sums.get(one.position, ("", ""))
            if not ours or not one.rows_checksum:
                continue
            if ours == one.rows_checksum:
                self._mismatches.pop(one.id, None)
                self._forked.pop(one.id, None)
            elif one.log_checksum not in ("", log) and self._may_go_back(one):
                continue
            elif one.id not in self._mismatches:
                self._mismatches[one.id] = one.position, time.time()
                logger.critical(
                    "node %s has different rows from node %s at the same position %s: one of "
                    "them is wrong; compare them with 'interlock cluster diff', and make the "
                    "wrong one read its log again with 'interlock cluster resync'",
                    self._settings.name, one.id, one.position,
                )  # fmt: skip

    def _may_go_back(self, other: Announcement) -> bool:
        """Return whether a node with another history may still go back, or this one.

        Two nodes that read different logs never do.
        """
        now = time.monotonic()
        since, seen = self._forked.get(other.id, (now, now))
        if now > seen + GOES_BACK:
            since = now
        self._forked[other.id] = since, now
        return now < since + GOES_BACK

    def _machines(self) -> int:
        """Return the number of other machines of the data centre with a node that serves."""
        found = {one.machine for one in self._near() if one.role == "serving" and one.machine}
        return len(found - {self._machine})

    def _count_machines(self) -> None:
        if self._machines() >= self._settings.ack:
            self._lacks_machines, self._is_lack_told = None, False
        elif self._lacks_machines is None:
            self._lacks_machines = time.time()
        elif not self._is_lack_told and time.time() > self._lacks_machines + GATHERED:
            self._is_lack_told = True
            logger.warning("node %s: %s", self._settings.name, self._lack())

    def _lack(self) -> str:
        return (
            f"--ack {self._settings.ack} needs serving nodes on as many other machines, and "
            f"there are {self._machines()}: writes are applied, but answered with NOACK after "
            f"{self._settings.timeout:g} s"
        )

    def _look_for_twin(self) -> None:
        twin = self.membership.twin if self.membership is not None else None
        if twin is None:
            self._twin_since = 0.0
        elif not self._twin_since:
            self._twin_since = time.time()
            logger.error("node %s: %s", self._settings.name, _same_name(twin))

    def _awaited(self, found: dict[str, Any]) -> list[str]:
        """Return the nodes that hold up trimming and are not announced."""
        there = {one.id for one in self._near()} | {self._settings.name}
        keepers: list[tuple[str, str, int | None]] = found["keepers"]
        machines = {machine for _, machine, _ in keepers}
        kept = {machine for node, machine, at in keepers if node in there and at is not None}
        if len(kept) >= min(2, len(machines)):
            return []
        return [node for node, machine, _ in keepers if node not in there and machine not in kept]

    def _look_at_growth(self, found: dict[str, Any]) -> None:
        awaited = self._awaited(found)
        if not awaited or found["position"] - (found["cut"] or 0) < self._grown:
            self._hindered_since = 0.0
        elif not self._hindered_since:
            self._hindered_since = time.time()
            logger.warning("node %s: %s", self._settings.name, _growth(awaited, found))

    def _near(self) -> list[Announcement]:
        return self.membership.near() if self.membership is not None else []

    def state(self, found: dict[str, Any]) -> str:
        """Return ``serving``, ``joining``, ``stuck`` or ``read-only``."""
        kinds = {kind for kind, _, _ in found["trouble"]}
        if self.fault or kinds & {"settings", "disk", "table", "lost"}:
            return "read-only"
        if "stuck" in kinds:
            return "stuck"
        return "serving" if found["serves"] and found["at_end"] is not None else "joining"

    def lag(self, found: dict[str, Any]) -> tuple[int, float]:
        """Return how far the node is behind, in entries and seconds."""
        last = max((one.position for one in self._near()), default=0)
        behind = time.time() - self.since if found["behind"] is None else float(found["behind"])
        is_at_end = found["at_end"] and behind <= RESTS
        return max(0, last - int(found["position"])), 0.0 if is_at_end else behind

    def fresh(self, found: dict[str, Any]) -> float | None:
        """Return the seconds for which it may still answer reads; None if for ever."""
        longest = self._settings.max_staleness
        if longest is None:
            return None
        hides = any(kind == "table" for kind, _, _ in found["trouble"])
        if hides or found["behind"] is None:
            return 0.0
        return max(0.0, longest - float(found["behind"]))

    def trouble(self, found: dict[str, Any]) -> list[dict[str, Any]]:
        """Return its current troubles: kind, text, since."""
        told = [
            {"kind": kind, "text": self._full(kind, text), "since": since / 1000}
            for kind, text, since in found["trouble"]
        ]
        if self._clocks_since:
            ahead = self._clock_ahead()
            way = "ahead of" if ahead > 0 else "behind"
            text = f"the machine's clock is {abs(ahead):.1f} s {way} the time of the log"
            told.append({"kind": "clock", "text": text, "since": self._clocks_since})
        if self._is_lack_told and self._lacks_machines is not None:
            told.append({"kind": "ack", "text": self._lack(), "since": self._lacks_machines})
        twin = self.membership.twin if self.membership is not None else None
        if twin is not None and self._twin_since:
            told.append({"kind": "name", "text": _same_name(twin), "since": self._twin_since})
        if self._unannounced_since and self.membership is not None and self.membership.trouble:
            text = f"it is not announced, so clients do not find it: {self.membership.trouble}"
            told.append({"kind": "announcement", "text": text, "since": self._unannounced_since})
        if self._cut_off_since and self.peers:
            text = "; ".join(f"node {id} gives it no snapshot: {why}"
                             for id, why in sorted(self.peers.items()))  # fmt: skip
            told.append({"kind": "peer", "text": text, "since": self._cut_off_since})
        if self._hindered_since:
            text = _growth(self._awaited(found), found)
            told.append({"kind": "growth", "text": text, "since": self._hindered_since})
        with self._lock:
            mismatches = sorted(self._mismatches.items())
        for id, (position, since) in mismatches:
            text = f"node {id} has different rows at the same position {position}"
            told.append({"kind": "checksum", "text": text, "since": since})
        return told

    def _full(self, kind: str, text: str) -> str:
        return f"{text}; {self.lacking}" if kind == "stuck" and self.lacking else text

    def standing(self) -> Standing:
        """Return the state that its pages over HTTP show."""
        found = self.look()
        entries, seconds = self.lag(found)
        return Standing(
            id=self._settings.name,
            dc=self._settings.dc,
            role=self.state(found),
            address=self._address(),
            position=found["position"],
            lag_ms=round(seconds * 1000, 1),
            lag_entries=entries,
            fresh=self.fresh(found) != 0.0,
            draining=found["draining"],
            fault=self.fault,
            trouble=tuple(one["text"] for one in self.trouble(found)),
        )

    def status(self) -> dict[str, Any]:
        """Return the reply to ``NODE STATUS``."""
        found, settings = self.look(), self._settings
        entries, seconds = self.lag(found)
        # Unknown until the engine has answered.
        largest, setting = found["largest"] or (0, "")
        return {
            "id": settings.name,
            "dc": settings.dc,
            "table": settings.table,
            "state": self.state(found),
            "serves": found["serves"],
            "draining": found["drains"],
            "address": self._address(),
            "machine": self._machine,
            "started": self.since,
            "position": found["position"],
            "log_id": found["log_id"],
            "log_checksum": f"{found['log_checksum']:016x}",
            "rows_checksum": f"{found['rows_checksum']:032x}",
            "log_time": found["log_time"] / 1000,
            "lag_entries": entries,
            "lag_s": round(seconds, 3),
            "rows": found["rows"],
            "tombstones": found["tombstones"],
            "tombstones_dropped": found["tombstones_dropped"],
            "checkpoint": found["checkpoint"],
            "cut": found["cut"],
            "keepers": [
                {"id": node, "machine": machine, "checkpoint": kept}
                for node, machine, kept in found["keepers"]
            ],
            "awaited": self._awaited(found),
            "ring": found["ring"],
            "went_back": found["went_back"],
            "resyncs": found["resyncs"],
            "put_back": found["put_back"],
            "merged_rows": found["merged_rows"],
            "clients": found["clients"],
            "clients_limit": found["clients_limit"],
            "largest_entry": largest,
            "largest_entry_setting": setting,
            "untrimmed": found["untrimmed"] or "",
            "waiting": found["waiting"],
            "waiting_for_acks": found["unacknowledged"],
            "noack_replies": found["unacknowledged_answers"],
            "other_machines": self._machines(),
            "appended_entries": found["appended_entries"],
            "appended_bytes": found["appended_bytes"],
            "ack": settings.ack,
            "rules": self._rules.fingerprint,
            "clock_difference_s": round(self._clock_ahead(), 3),
            "fault": self.fault,
            "trouble": self.trouble(found),
            "nodes": [
                {"id": one.id, "dc": one.dc, "role": one.role, "address": one.address,
                 "position": one.position, "lag_entries": one.lag_entries, "lag_ms": one.lag_ms,
                 "draining": one.draining}
                for one in (self.membership.others if self.membership is not None else ())
            ],
            "links": self._links(),
            "database": self._database(),
        }  # fmt: skip

    def announcement(self, http: str) -> Announcement:
        """Return the node's announcement."""
        found = self.look()
        entries, seconds = self.lag(found)
        role: Role = "serving" if self.state(found) == "serving" else "joining"
        rows_checksum, log_checksum = _sums(found)
        return Announcement(
            id=self._settings.name,
            dc=self._settings.dc,
            role=role,
            address=self._address(),
            http=http,
            position=found["position"],
            rows_checksum=rows_checksum,
            log_checksum=log_checksum,
            machine=self._machine,
            lag_entries=entries,
            lag_ms=round(seconds * 1000, 1),
            since=self.since,
            version=interlock.__version__,
            table=self._settings.table,
            draining=found["draining"],
        )

    def metrics(self) -> Iterator[str]:
        """Yield the lines of /metrics about the node."""
        found = self.look()
        entries, seconds = self.lag(found)
        kinds = {one["kind"] for one in self.trouble(found)}
        state = {
            **found,
            "serves": int(self.state(found) == "serving"),
            "lag_entries": entries,
            "lag_seconds": round(seconds, 3),
            "checkpoint_position": found["checkpoint"],
            "ring_entries": found["ring"],
            "waiting_writes": found["waiting"],
            "ack_waiting_writes": found["unacknowledged"],
            "noack_replies": found["unacknowledged_answers"],
            "checksum_mismatch": int("checksum" in kinds),
        }
        yield from node_lines(state, kinds)
        yield from link_lines(self._links())
        yield from database_lines(self._database())


def _sums(found: dict[str, Any]) -> tuple[str, str]:
    return f"{found['rows_checksum']:032x}", f"{found['log_checksum']:016x}"


def _clock_offset() -> float:
    """Return the clock minus the time since the machine started: only setting it changes this."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def _since(since: float, is_so: bool) -> float:
    return (since or time.time()) if is_so else 0.0


def _growth(awaited: list[str], found: dict[str, Any]) -> str:
    entries = found["position"] - (found["cut"] or 0)
    names = ", ".join(awaited)
    text = f"the log grows, {entries:,} entries are not trimmed"
    if awaited:
        text += (
            f": it waits for a checkpoint of {names}, not announced; start it, or if it is gone "
            f"for good: interlock cluster forget {awaited[0]}"
        )
    return text


def _same_name(twin: Announcement) -> str:
    return (
        f"another node has its name, at {twin.address}: give each its own --name, or clients and "
        "operators reach either of them"
    )


UNTRIMMED = 10
"""Intervals of checkpoints beyond which entries kept for an absent node are reported."""
GATHERED = 3 * ANNOUNCED
"""Seconds to wait for other nodes' announcements before reporting that too few serve."""
GOES_BACK = 10.0
"""Seconds in which a node notices that the engine has lost entries, and goes back."""
