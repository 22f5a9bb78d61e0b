"""Figures of a node: what it tells by ``NODE STATUS``, over HTTP, and in its announcement."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import interlock
from interlock.cluster.appender import Appender
from interlock.cluster.campaign import Campaign
from interlock.cluster.links import Link
from interlock.cluster.machine import Machine
from interlock.cluster.membership import Membership
from interlock.cluster.pages import Standing
from interlock.cluster.reader import Reader
from interlock.cluster.settings import BEAT, NodeSettings
from interlock.cluster.storage import Storage
from interlock.engine.announcements import Announcement


class NodeFigures:
    """Looks at the parts of one node."""

    def __init__(
        self,
        settings: NodeSettings,
        machine: Machine,
        membership: Membership,
        reader: Reader,
        appender: Appender,
        campaign: Campaign,
        storage: Storage,
        links: Sequence[Link],
        address: Callable[[], str],
    ) -> None:
        self.since = time.time()
        self.draining = False
        self.fault = ""
        """The reason why the node cannot go on; empty: it can."""
        self._settings = settings
        self._machine = machine
        self._membership = membership
        self._reader = reader
        self._appender = appender
        self._campaign = campaign
        self._storage = storage
        self._links = links
        self._address = address

    @property
    def role(self) -> Any:
        """``primary``, ``replica`` or ``joining``."""
        if self._machine.joining:
            return "joining"
        return "primary" if self._machine.is_primary else "replica"

    def lag(self) -> tuple[int, float]:
        """Return how many changes, and milliseconds, this node is behind its primary."""
        machine, mark = self._machine, self._machine.fence.mark
        if machine.is_primary:
            return 0, 0.0
        primary = self._membership.primary()
        behind = max(0, primary.seq - mark.seq) if primary is not None else 0
        silent = (time.monotonic() - machine.heard) * 1000
        ms = silent if silent > 2000 * BEAT else max(0.0, machine.lag.ms)
        return behind, round(min(ms, 1e12), 1)

    def standing(self) -> Standing:
        """Return what its pages over HTTP tell."""
        machine, settings = self._machine, self._settings
        behind, ms = self.lag()
        silent, longest = time.monotonic() - machine.heard, settings.max_staleness
        primary = machine.primary
        return Standing(
            id=settings.name,
            dc=settings.dc,
            role=self.role,
            address=self._address(),
            primary=machine.leader.node.partition("/")[0],
            token=machine.fence.mark.token,
            lag_ms=ms,
            lag_changes=behind,
            fresh=longest is None or silent <= longest,
            draining=self.draining or (primary is not None and primary.handing_over),
            fault=self.fault,
        )

    def status(self) -> dict[str, Any]:
        """Return what ``NODE STATUS`` tells."""
        machine, mark, settings = self._machine, self._machine.fence.mark, self._settings
        behind, ms = self.lag()
        now = time.monotonic()
        return {
            "id": settings.name,
            "dc": settings.dc,
            "table": settings.table,
            "role": self.role,
            "draining": self.draining,
            "address": self._address(),
            "primary": machine.leader.node.partition("/")[0],
            "token": mark.token,
            "since": machine.leader.since / 1000,
            "started": self.since,
            "seq": mark.seq,
            "position": mark.position,
            "lag_changes": behind,
            "lag_ms": ms,
            "rows": len(self._machine.replica),
            "tombstones": self._machine.replica.tombstones,
            "tombstones_dropped": self._machine.replica.dropped,
            "fenced": machine.fenced,
            "resyncs": self._reader.resyncs,
            "waiting": len(machine.requests),
            "ack": settings.ack,
            "rules": self._machine.replica.rules.fingerprint,
            "nodes": [
                {"id": one.id, "dc": one.dc, "role": one.role, "address": one.address,
                 "seq": one.seq, "lag_changes": one.lag_changes, "lag_ms": one.lag_ms,
                 "draining": one.draining} for one in self._membership.others
            ],
            "links": [
                {"dc": link.dc, "state": figures.state, "error": figures.error,
                 "position": figures.position, "lag_ms": round(figures.lag_ms, 1),
                 "changes": figures.changes,
                 "silent_ms": round(min((now - figures.heard) * 1000, 1e12), 1)}
                for link in self._links for figures in (link.figures,)
            ],
            "stream": {
                "error": self._reader.error or self._appender.error,
                "entries": self._appender.entries,
                "election": self._campaign.error,
            },
            "database": self._storage.status(),
        }  # fmt: skip

    def announcement(self, http: str) -> Announcement:
        """Return what others are told."""
        behind, ms = self.lag()
        mark = self._machine.fence.mark
        return Announcement(
            id=self._settings.name,
            dc=self._settings.dc,
            role=self.role,
            address=self._address(),
            http=http,
            token=mark.token,
            seq=mark.seq,
            lag_changes=behind,
            lag_ms=ms,
            since=self.since,
            version=interlock.__version__,
            table=self._settings.table,
            draining=self.draining,
        )
