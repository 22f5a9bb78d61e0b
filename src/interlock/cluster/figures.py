"""Figures of a node: what it tells by ``NODE STATUS``, over HTTP, and in its announcement.

Nodes of one data centre at the same position are equal to the byte. Each compares what others
announce with what it had itself at that position; a difference is an alarm.
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
from interlock.cluster.membership import ANNOUNCED, Membership, machine
from interlock.cluster.pacing import pace
from interlock.cluster.pages import Standing
from interlock.cluster.settings import NodeSettings
from interlock.engine.announcements import Announcement, Role
from interlock.hub.metrics import escaped, metric

logger = logging.getLogger("interlock.cluster")
RESTS = 1.5
"""Seconds since it last read, up to which a node at the end of its log is not behind: a log that
rests is looked at every second."""
CLOCKS = 1.0
"""Seconds between the clocks of the machine and of the log, beyond which that is told."""
REMEMBERED = 256
"""Positions whose checksum a node remembers, to compare it with what others announce."""
GAUGES = (
    ("serves", "1 while the node takes reads and writes, else 0"),
    ("position", "entries of its log that the node has applied"),
    ("lag_entries", "entries that the most advanced node has applied and this one has not"),
    ("lag_seconds", "seconds the node is behind its log"),
    ("rows", "rows of the table"),
    ("tombstones", "deleted rows that are remembered"),
    ("checkpoint_position", "position of the newest checkpoint"),
    ("ring_entries", "entries that the node could put back"),
    ("waiting_writes", "writes waiting for their answers"),
    ("ack_waiting_writes", "writes waiting for other machines to acknowledge them"),
    ("clients", "clients that number their writes"),
    ("checksum_mismatch", "1 if a node at the same position has other rows: an alarm; else 0"),
)
COUNTERS = (
    ("went_back_total", "times the node went back because the log had lost entries"),
    ("put_back_total", "lost entries that the node has put back"),
    ("merged_rows_total", "rows that were merged after a loss deeper than every ring"),
    ("noack_replies_total", "writes answered before enough machines had acknowledged them"),
    ("appended_entries_total", "entries that the node has appended"),
    ("appended_bytes_total", "bytes of entries that the node has appended"),
)
LINKS = (
    ("link_cut", "1 while the link to a data centre is cut, else 0"),
    ("link_lag_seconds", "seconds for which the oldest row that the node has not sent there waits"),
)
DATABASE = (
    ("database_failing", "1 while nothing can be written to the database, else 0"),
    ("database_lag_seconds", "seconds for which the oldest row not written to the database waits"),
    ("database_waiting_rows", "rows that are not written to the database yet"),
)
TROUBLES = ("engine", "append", "trim", "disk", "checkpoint", "table", "stuck", "settings", "clock",
            "checksum", "ack", "name", "growth")  # fmt: skip
"""Kinds of trouble, each a value of the label ``kind``."""


class NodeFigures:
    """Looks at one node, which is set once it has started."""

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
        self.draining = False
        self.resyncs = False
        """An operator has had it read its log again, and it has not begun to."""
        self.fault = ""
        """The reason why the node cannot go on; empty: it can."""
        self.lacking = ""
        """The reason why a node that needs a snapshot of another has none; empty: it needs none."""
        self._settings = settings
        self._rules = rules
        self._address = address
        self._database = database
        self._links = links
        self._machine = settings.machine or machine()
        self._lock = threading.Lock()
        self._sums: OrderedDict[int, str] = OrderedDict()
        self._mismatches: dict[str, tuple[int, float]] = {}
        self._clocks = 0.0
        """Seconds by which the machine's clock is ahead of the log."""
        self._clocks_since = 0.0
        self._lacks_machines: float | None = None
        """Since when there are fewer other machines than `ack` needs; None: there are enough."""
        self._is_lack_told = False
        self._twin_since = 0.0
        self._hindered_since = 0.0
        self._grown = UNTRIMMED * pace()["checkpoint"] + settings.keep
        self._ended_at: float | None = None
        """The last moment at the end of its log, by the monotonic clock; None: it serves not."""

    @property
    def name(self) -> str:
        """Its id."""
        return self._settings.name

    def look(self) -> dict[str, Any]:
        """Return the node as it stands, and compare it with others."""
        assert self.node is not None
        with self._lock:
            found: dict[str, Any] = self.node.figures()
            position = int(found["position"])
            if position and (not self._sums or next(reversed(self._sums)) != position):
                self._note(position, found)
            self._compare()
            self._count_machines()
            self._look_for_twin()
            self._look_at_growth(found)
            knows = found["serves"] and found["at_end"] and found["behind"] is not None
            self._ended_at = time.monotonic() - float(found["behind"]) if knows else None
        return found

    def _note(self, position: int, found: dict[str, Any]) -> None:
        if self._sums and next(reversed(self._sums)) > position:
            # It has gone back: what it had is no part of the log.
            self._sums.clear()
        self._sums[position] = f"{found['rows_checksum']:032x}"
        while len(self._sums) > REMEMBERED:
            self._sums.popitem(last=False)
        if found["at_end"] and self._ended_at is not None:
            # The entry was written at some time since the log was last read to its end.
            ahead = time.time() - found["log_time"] / 1000
            least = max(0.0, ahead - (time.monotonic() - self._ended_at))
            self._clocks = min(ahead, least)
            is_off = abs(self._clocks) > CLOCKS
            self._clocks_since = (self._clocks_since or time.time()) if is_off else 0.0

    def _compare(self) -> None:
        near = self._near()
        if self._mismatches:
            there = {one.id for one in near}
            for id in self._mismatches.keys() - there:
                del self._mismatches[id]
        for one in near:
            ours = self._sums.get(one.position)
            if ours is None or not one.rows_checksum:
                continue
            if ours == one.rows_checksum:
                self._mismatches.pop(one.id, None)
            elif one.id not in self._mismatches:
                self._mismatches[one.id] = one.position, time.time()
                logger.critical(
                    "node %s has other rows than node %s at the same position %s: one of both "
                    "is wrong; compare them with 'interlock cluster diff', and have the wrong one "
                    "read its log again with 'interlock cluster resync'",
                    self._settings.name, one.id, one.position,
                )  # fmt: skip

    def _machines(self) -> int:
        """Return how many other machines of the data centre have a node that serves."""
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
            f"--ack {self._settings.ack} needs nodes that serve on as many other machines, and "
            f"there are {self._machines()}: writes are done and answered by NOACK after "
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
        """Return the nodes that are not announced, and without which the log is not trimmed."""
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
        if self.fault or kinds & {"settings", "disk"}:
            return "read-only"
        if "stuck" in kinds:
            return "stuck"
        return "serving" if found["serves"] and found["at_end"] is not None else "joining"

    def lag(self, found: dict[str, Any]) -> tuple[int, float]:
        """Return how many entries, and seconds, the node is behind."""
        last = max((one.position for one in self._near()), default=0)
        behind = time.time() - self.since if found["behind"] is None else float(found["behind"])
        is_at_end = found["at_end"] and behind <= RESTS
        return max(0, last - int(found["position"])), 0.0 if is_at_end else behind

    def fresh(self, found: dict[str, Any]) -> float | None:
        """Return for how many seconds it may be read; None: for ever."""
        longest = self._settings.max_staleness
        if longest is None:
            return None
        return 0.0 if found["behind"] is None else max(0.0, longest - float(found["behind"]))

    def trouble(self, found: dict[str, Any]) -> list[dict[str, Any]]:
        """Return what keeps the node from its work now: kind, text, since."""
        told = [
            {"kind": kind, "text": self._full(kind, text), "since": since / 1000}
            for kind, text, since in found["trouble"]
        ]
        if self._clocks_since:
            way = "ahead of" if self._clocks > 0 else "behind"
            text = f"the machine's clock is {abs(self._clocks):.1f} s {way} the time of the log"
            told.append({"kind": "clock", "text": text, "since": self._clocks_since})
        if self._is_lack_told and self._lacks_machines is not None:
            told.append({"kind": "ack", "text": self._lack(), "since": self._lacks_machines})
        twin = self.membership.twin if self.membership is not None else None
        if twin is not None and self._twin_since:
            told.append({"kind": "name", "text": _same_name(twin), "since": self._twin_since})
        if self._hindered_since:
            text = _growth(self._awaited(found), found)
            told.append({"kind": "growth", "text": text, "since": self._hindered_since})
        with self._lock:
            mismatches = sorted(self._mismatches.items())
        for id, (position, since) in mismatches:
            text = f"node {id} has other rows at the same position {position}"
            told.append({"kind": "checksum", "text": text, "since": since})
        return told

    def _full(self, kind: str, text: str) -> str:
        return f"{text}; {self.lacking}" if kind == "stuck" and self.lacking else text

    def standing(self) -> Standing:
        """Return what its pages over HTTP tell."""
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
            draining=self.draining,
            fault=self.fault,
            trouble=tuple(one["text"] for one in self.trouble(found)),
        )

    def status(self) -> dict[str, Any]:
        """Return what ``NODE STATUS`` tells."""
        found, settings = self.look(), self._settings
        entries, seconds = self.lag(found)
        return {
            "id": settings.name,
            "dc": settings.dc,
            "table": settings.table,
            "state": self.state(found),
            "serves": found["serves"],
            "draining": self.draining,
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
            "put_back": found["put_back"],
            "merged_rows": found["merged_rows"],
            "clients": found["clients"],
            "clients_limit": found["clients_limit"],
            "largest_entry": found["largest"][0],
            "largest_entry_setting": found["largest"][1],
            "untrimmed": found["untrimmed"] or "",
            "waiting": found["waiting"],
            "waiting_for_acks": found["unacknowledged"],
            "noack_replies": found["unacknowledged_answers"],
            "other_machines": self._machines(),
            "appended_entries": found["appended_entries"],
            "appended_bytes": found["appended_bytes"],
            "ack": settings.ack,
            "rules": self._rules.fingerprint,
            "clock_difference_s": round(self._clocks, 3),
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
        """Return what others are told."""
        found = self.look()
        entries, seconds = self.lag(found)
        role: Role = "serving" if self.state(found) == "serving" else "joining"
        return Announcement(
            id=self._settings.name,
            dc=self._settings.dc,
            role=role,
            address=self._address(),
            http=http,
            position=found["position"],
            rows_checksum=f"{found['rows_checksum']:032x}",
            machine=self._machine,
            lag_entries=entries,
            lag_ms=round(seconds * 1000, 1),
            since=self.since,
            version=interlock.__version__,
            table=self._settings.table,
            draining=self.draining,
        )

    def metrics(self) -> Iterator[str]:
        """Yield the lines of /metrics about the node."""
        found = self.look()
        entries, seconds = self.lag(found)
        trouble = self.trouble(found)
        kinds = {one["kind"] for one in trouble}
        values = {
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
        for kind, figures in (("gauge", GAUGES), ("counter", COUNTERS)):
            for name, help in figures:
                yield from metric(f"{PREFIX}{name}", kind, help)
                yield f"{PREFIX}{name} {values[name.removesuffix('_total')]}"
        yield from metric(f"{PREFIX}trouble", "gauge", "1 while something hinders the "
                          "node, by its kind; else 0")  # fmt: skip
        for one in TROUBLES:
            yield f'{PREFIX}trouble{{kind="{escaped(one)}"}} {int(one in kinds)}'
        yield from self._metrics_of_links()
        yield from self._metrics_of_database()

    def _metrics_of_links(self) -> Iterator[str]:
        links = self._links()
        for name, help in LINKS if links else ():
            yield from metric(f"{PREFIX}{name}", "gauge", help)
            for one in links:
                is_cut = int(one["state"] == "cut")
                value = is_cut if name == "link_cut" else one["lag_ms"] / 1000
                yield f'{PREFIX}{name}{{dc="{escaped(one["dc"])}"}} {value}'

    def _metrics_of_database(self) -> Iterator[str]:
        if (found := self._database()) is None:
            return
        values = (int(found["error"] != ""), found["delay_ms"] / 1000, found["waiting"])
        for (name, help), value in zip(DATABASE, values, strict=True):
            yield from metric(f"{PREFIX}{name}", "gauge", help)
            yield f"{PREFIX}{name} {value}"


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
        f"another node has its name, at {twin.address}: give each a name of its own by --name, or "
        f"clients and operators reach now one and now the other"
    )


UNTRIMMED = 10
"""Intervals of checkpoints; the log grows if more entries are kept for a node that is away."""
GATHERED = 3 * ANNOUNCED
"""Seconds that other nodes have to be announced before this one says that there are too few."""
PREFIX = "interlock_node_"
