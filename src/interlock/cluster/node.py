"""A node: it has a table's rows from the log of its data centre, and serves them to clients.

Its checkpoints, and the entries that it could put back, are in a folder of its own: that of
``--data``, or one under the state directory of the machine or the user.
"""

from __future__ import annotations

import logging
import os
import secrets
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import interlock
from interlock import _core
from interlock.cluster.control import Control
from interlock.cluster.feed import engine_of
from interlock.cluster.figures import NodeFigures
from interlock.cluster.links import FarLog, Link
from interlock.cluster.membership import Membership, machine
from interlock.cluster.pages import NodePages
from interlock.cluster.settings import NodeSettings
from interlock.cluster.snapshots import Given, Snapshots, pace
from interlock.cluster.state import TableRules
from interlock.cluster.storage import together, write_behind
from interlock.hub.server import Hub
from interlock.table.table import SharedTable

logger = logging.getLogger("interlock.cluster")
LOOKED = 0.2
"""Seconds between two looks at a node's news."""
REPEATED = 60.0
"""Seconds after which a trouble of the engine that has not ended is logged again."""
DRAINED = 5.0
"""Seconds for which the end of a node waits for what clients have asked."""
FAR_TIMEOUT = 3.0
"""Seconds that the engine of another data centre has for an answer."""


class Node:
    """One node of a cluster: started and ended with the hub through which clients reach it.

    The hub must declare the table and be given `keeper` for it.

    Args:
        shared: the table, opened as its keeper; it stays open for as long as the node lives.
        place: the table's name in shared memory, or its file.
        mode: rights of the table's file.
        folder: where its checkpoints are; no other node may have it.
        advertise: ``HOST:PORT`` at which others reach its hub. Default: where it listens.

    Raises:
        ValueError: the settings ask for what a node cannot do.
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
        """It cannot go on; its figures say why."""
        self._advertise = advertise
        self._keeper = keeper
        self._shared = shared
        rules = TableRules.of(settings.row, tombstone_age=settings.tombstone_age)
        self._given = _given(settings, rules, place, mode, folder)
        self._databases = write_behind(settings, rules, released=self._released, refused=self._fail)
        self._links = [
            Link(dc, settings.dc, _far(settings, dc), _far(settings, settings.dc))
            for dc in settings.links
        ]
        self.figures = NodeFigures(
            settings,
            rules,
            lambda: self.address,
            lambda: together(self._databases.figures()),
            lambda: [link.standing() for link in self._links],
        )
        self._client = interlock.connect(settings.cluster)
        self._membership = Membership(
            self._client, settings.table, settings.dc,
            lambda: self.figures.announcement(hub.http_address),
        )  # fmt: skip
        self._control: Control | None = None
        self._snapshots: Snapshots | None = None
        self._folder = folder
        hub.pages = NodePages(self.figures.standing, self.figures.metrics)
        hub.on_broken = lambda: self._fail("a thread of its hub has ended")
        self._serves = False
        self._said: dict[str, float] = {}
        """Troubles of the engine that have not ended, and from when on each is logged again."""
        self._put_back = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._look, name="node-news", daemon=True)

    def start(self) -> None:
        """Read what the folder has, and take part. Raises as ``Hub.start``, and OSError."""
        if self.settings.max_staleness is not None:
            self._keeper.set_fresh(0.0)
        node = self.figures.node = _core.LogNode(self._given, self._keeper)
        try:
            self.hub.start()
        except BaseException:
            node.stop()
            raise
        self.figures.membership = self._membership
        given = Given(node, self._folder)
        self._control = Control(self._keeper, node, self.figures, self._membership, given)
        self._snapshots = Snapshots(
            self.settings, node, self.figures, self._membership, self._folder
        )
        try:
            self._membership.start()
        except BaseException:
            self.hub.stop()
            node.stop()
            raise
        self._databases.start(node)
        for link in self._links:
            link.start(node)
        self._control.start()
        self._snapshots.start()
        self._thread.start()

    @property
    def address(self) -> str:
        """``HOST:PORT`` at which others reach its hub."""
        return self._advertise or self.settings.peers.own(self.hub.addresses)

    def close(self) -> None:
        """Tell clients to go, answer what is under way, and end."""
        node, control = self.figures.node, self._control
        if node is None or control is None:
            return
        self.figures.draining = True
        self._membership.wake()
        node.drain(DRAINED)
        self._databases.flush(DRAINED)
        self._databases.close()
        for link in self._links:
            link.close()
        self._ends.set()
        self._thread.join()
        if self._snapshots is not None:
            self._snapshots.close()
        control.close()
        self._membership.close()
        node.stop()
        self._keeper.close()
        self.hub.stop()
        self._client.close()

    def _released(self) -> None:
        assert self.figures.node is not None
        self.figures.node.release()

    def _look(self) -> None:
        node = self.figures.node
        assert node is not None
        while True:
            last = self._ends.wait(LOOKED)
            for kind, text in node.news():
                self._told(kind, text)
            found = self.figures.look()
            if self._said and not found["trouble"]:
                self._said.clear()
                logger.info("node %s: the engine of its log works again", self.settings.name)
            if self._put_back < found["put_back"]:
                more, self._put_back = found["put_back"] - self._put_back, found["put_back"]
                logger.warning("node %s has put back %s lost entries", self.settings.name, more)
            if self.settings.max_staleness is not None:
                self._keeper.set_fresh(self.figures.fresh(found))
            serves = self.figures.state(found) == "serving"
            if serves != self._serves:
                self._serves = serves
                self._membership.wake()
                position, state = found["position"], self.figures.state(found)
                logger.info("node %s is %s, at position %s", self.settings.name, state, position)
            if found["ended"] and not last:
                self._fail("the thread of its log has ended")
            if last:
                return

    def _told(self, kind: str, text: str) -> None:
        name = self.settings.name
        match kind:
            case "engine" | "log":
                now = time.monotonic()
                if now >= self._said.get(text, now):
                    self._said[text] = now + REPEATED
                    logger.warning("node %s, the engine of its log: %s", name, text)
            case "disk":
                logger.error("node %s: %s; writes are not answered until it can", name, text)
            case "table":
                logger.error("node %s: %s", name, text)
            case "back":
                is_asked, self.figures.resyncs = self.figures.resyncs, False
                why = "an operator asked for it" if is_asked else "the log has lost what follows it"
                logger.warning("node %s goes back to position %s: %s", name, text, why)
            case "readers":
                logger.warning(
                    "node %s: the log has lost entries that readers of its table have seen; those "
                    "that no node has put back have disappeared for them", name,
                )  # fmt: skip
            case "stuck":
                logger.error(
                    "node %s serves nothing: the log begins after its checkpoints, so it needs a "
                    "snapshot of another node", name,
                )  # fmt: skip
            case "snapshot":
                logger.error("node %s cannot take a snapshot: %s", name, text)
            case "settings":
                self._fail(f"the log belongs to a table with other settings: {text}")

    def _fail(self, why: str) -> None:
        if not self.figures.fault:
            logger.critical("node %s cannot continue: %s", self.settings.name, why)
            self.figures.fault = why
        self.ended.set()


def folder_of(settings: NodeSettings, data: str | None) -> Path:
    """Return the folder of a node's files, which is made if it is not there.

    Args:
        data: the folder that was asked for. Default: one under the state directory.

    Raises:
        OSError: it cannot be made or written; the text says what to do.
    """
    folder = (
        Path(data).resolve()
        if data
        else _state_directory() / (f"{settings.table}.{settings.dc}.{settings.name}")
    )
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
    return folder


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
    settings: NodeSettings, rules: TableRules, place: str | Path, mode: int, folder: Path
) -> dict[str, object]:
    if settings.ack != 0:
        raise ValueError("--ack: a node cannot wait for other machines yet; leave it at 0")
    return {
        "name": f"{settings.name}/{secrets.token_hex(8)}",
        "node": settings.name,
        "machine": machine(),
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
        "held": bool(settings.databases),
        **engine_of(settings.stream_url, settings.table, settings.dc),
    }


def _far(settings: NodeSettings, dc: str) -> FarLog:
    url = settings.stream_url if dc == settings.dc else settings.link_url(dc)
    return FarLog(url, settings.table, dc, FAR_TIMEOUT)
