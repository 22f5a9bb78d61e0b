"""A node: reads a table's rows from the log of its data centre, and serves them to clients.

Its checkpoints and its ring are in a folder of its own: that of ``--data``, or one under the state
directory of the machine or the user.
"""

from __future__ import annotations

import logging
import os
import secrets
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import interlock
from interlock import _core
from interlock.cluster.control import Control
from interlock.cluster.feed import engine_of
from interlock.cluster.figures import NodeFigures
from interlock.cluster.links import FarLog, Link
from interlock.cluster.membership import Membership, machine
from interlock.cluster.pacing import pace
from interlock.cluster.pages import NodePages
from interlock.cluster.rules import state_rules
from interlock.cluster.settings import NodeSettings
from interlock.cluster.snapshots import Given, Snapshots
from interlock.cluster.storage import opened, together, write_behind
from interlock.cluster.watch import Watch
from interlock.hub.serve.server import Hub
from interlock.table.table import SharedTable

logger = logging.getLogger("interlock.cluster")
DRAINED = 5.0
"""Seconds that a stopping node waits for the writes of its clients."""
FAR_TIMEOUT = 3.0
"""Seconds to wait for an answer of another data centre's engine."""
Closing = Callable[[], object]


class Node:
    """One node of a cluster: started and ended with the hub through which clients reach it.

    The hub must declare the table and be given `keeper` for it.

    Args:
        shared: the table, opened as its keeper; it stays open for as long as the node lives.
        place: the table's name in shared memory, or its file.
        mode: rights of the table's file.
        folder: folder of its checkpoints and ring; made if needed. Each node needs its own.
        advertise: ``HOST:PORT`` at which others reach its hub. Default: the address it listens on.

    Raises:
        ValueError: the settings ask for what a node cannot do.
        OSError: the folder cannot be made or written.
    """

    def __init__(
        self,
        settings: NodeSettings,
        hub: Hub,
        keeper: _core.TableKeeper,
        shared: SharedTable[Any],
        *,
        place: str | Path,
        mode: int,
        folder: Path,
        advertise: str = "",
    ) -> None:
        self.settings = settings
        self.hub = hub
        self.ended = threading.Event()
        """Set when it cannot continue; `figures.fault` says why."""
        self._advertise = advertise
        self._keeper = keeper
        self._shared = shared
        rules = state_rules(settings.row, tombstone_age=settings.tombstone_age)
        self._given = _given(settings, rules, place, mode, folder)
        self._client = interlock.connect(settings.cluster)
        self._links = [Link(dc, _far(settings, dc)) for dc in settings.links]
        databases = opened(settings, rules)
        # Only once all else is right: a wrong flag leaves no folder behind.
        _make(folder)
        self._databases = write_behind(
            databases, settings, rules, released=self._released, refused=self._fail
        )
        self.figures = NodeFigures(
            settings,
            rules,
            lambda: self.address,
            lambda: together(self._databases.figures()),
            lambda: [link.standing() for link in self._links],
        )
        self._membership = Membership(
            self._client, settings.table, settings.dc,
            lambda: self.figures.announcement(hub.http_address),
        )  # fmt: skip
        self._folder = folder
        hub.pages = NodePages(self.figures.standing, self.figures.metrics)
        hub.on_broken = lambda: self._fail("a thread of its hub has ended")
        self._parts = ExitStack()

    def start(self) -> None:
        """Read the folder and join the cluster. On failure everything is closed again.

        Raises:
            OSError: it cannot listen, or another node has its folder.
            ValueError: nodes cannot use this engine or setting.
        """
        if self.settings.max_staleness is not None:
            self._keeper.set_fresh(0.0)
        with ExitStack() as started:
            started.callback(self._client.close)
            # They are connected already.
            started.callback(self._databases.close)
            node = self.figures.node = _core.LogNode(self._given, self._keeper)
            started.callback(node.stop)
            for start, close in self._parts_of(node):
                start()
                started.callback(close)
            self._parts = started.pop_all()

    def _parts_of(self, node: _core.LogNode) -> Iterator[tuple[Callable[[], None], Closing]]:
        """Yield how each part starts and closes, in the order in which they start."""

        def no_more_clients() -> None:
            # Clients that wait get their answers first.
            node.stop()
            self._keeper.close()
            self.hub.stop()

        yield self.hub.start, no_more_clients
        # Before the announcement, whose client takes longer to import than many rows to read.
        yield partial(self._databases.start, node), self._databases.close
        figures, membership = self.figures, self._membership
        figures.membership = membership
        yield membership.start, membership.close
        for link in self._links:
            yield partial(link.start, node), link.close
        given = Given(node, self._folder)
        control = Control(self._keeper, node, figures, membership, given)
        yield control.start, control.close
        snapshots = Snapshots(self.settings, node, figures, membership, self._folder)
        yield snapshots.start, snapshots.close
        watch = Watch(self.settings, node, self._keeper, figures, membership, self._fail)
        yield watch.start, watch.close

    @property
    def address(self) -> str:
        """``HOST:PORT`` at which others reach its hub."""
        return self._advertise or self.settings.peers.own(self.hub.addresses)

    def close(self) -> None:
        """Announce that it drains, answer the writes under way, and stop."""
        node = self.figures.node
        if node is not None:
            node.drain(0.0)
            self._membership.wake()
            node.drain(DRAINED)
            self._databases.flush(DRAINED)
        self._parts.close()

    def _released(self) -> None:
        assert self.figures.node is not None
        self.figures.node.release()

    def _fail(self, why: str) -> None:
        if not self.figures.fault:
            logger.critical("node %s cannot continue: %s", self.settings.name, why)
            self.figures.fault = why
        self.ended.set()


def folder_of(settings: NodeSettings, data: str | None) -> Path:
    """Return the folder of a node's files.

    Args:
        data: the folder that was asked for. Default: one under the state directory.
    """
    if data:
        return Path(data).resolve()
    return _state_directory() / f"{settings.table}.{settings.dc}.{settings.name}"


def _make(folder: Path) -> None:
    """Make a folder if it is not there.

    Raises:
        OSError: it cannot be made or written; the text says what to do.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(
            error.errno,
            f"a node cannot work without a folder for its files: {error.strerror}; name another "
            f"with --data FOLDER",
            str(folder),
        ) from None


def _state_directory() -> Path:
    service = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    if service:
        return Path(service)
    if os.geteuid() == 0:
        return Path("/var/lib/interlock")
    given = os.environ.get("XDG_STATE_HOME", "")
    state = Path(given) if os.path.isabs(given) else Path.home() / ".local" / "state"
    return state / "interlock"


def _given(
    settings: NodeSettings, rules: _core.StateRules, place: str | Path, mode: int, folder: Path
) -> dict[str, object]:
    return {
        "name": f"{settings.name}/{secrets.token_hex(8)}",
        "node": settings.name,
        "machine": settings.machine or machine(),
        "table": settings.table,
        "dc": settings.dc,
        "rules": rules.fingerprint,
        "capacity": settings.capacity,
        "centres": 1 + len(settings.links),
        "tombstones": settings.tombstones,
        "key_size": settings.key_size,
        "ttl": 0 if settings.ttl is None else round(settings.ttl * 1000),
        "place": str(place),
        "is_path": isinstance(place, Path),
        "mode": mode,
        "folder": str(folder),
        "timeout": settings.timeout,
        **pace(),
        "keep": settings.keep,
        "acks": settings.ack,
        "held": bool(settings.databases),
        **engine_of(settings.stream_url, settings.table, settings.dc),
    }


def _far(settings: NodeSettings, dc: str) -> FarLog:
    try:
        return FarLog(settings.link_url(dc), settings.table, dc, settings.dc, FAR_TIMEOUT)
    except ValueError as error:
        flag = "--link-stream" if dc in settings.link_streams else "--link"
        raise ValueError(str(error).replace("open_log(): url", f"{flag} {dc}", 1)) from None
