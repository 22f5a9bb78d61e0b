"""A node on a shared log, beside the node with a primary until it can do all that this one can.

It is started by the variable INTERLOCK_NODE_LOG, which names the folder of its checkpoints and of
what it could put back.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
from pathlib import Path
from typing import Any

from interlock import _core
from interlock.cluster.settings import NodeSettings
from interlock.cluster.snapshots import machine
from interlock.cluster.state import TableRules
from interlock.cluster.storage import following, together
from interlock.engine.url import Target, parse
from interlock.hub.server import Hub

logger = logging.getLogger("interlock.cluster")
FOLDER = "INTERLOCK_NODE_LOG"
"""Variable with the folder of a node's files."""
LOOKED = 0.2
"""Seconds between two looks at a node's news."""
DRAINED = 5.0
"""Seconds for which the end of a node waits for what clients have asked."""
CHECKPOINT = 100_000
"""Entries from a checkpoint to the next."""
PATIENCE = 2.0
"""Seconds beyond those of a lease within which a write is done, or not at all."""


class LogNode:
    """One node on a log: started and ended with the hub through which clients reach it.

    The hub must declare the table and be given `keeper` for it.

    Args:
        place: the table's name in shared memory, or its file.
        mode: rights of the table's file.
        folder: where its checkpoints are; no other node may have it.

    Raises:
        ValueError: the settings ask for what such a node cannot do.
    """

    def __init__(
        self,
        settings: NodeSettings,
        hub: Hub,
        keeper: _core.TableKeeper,
        *,
        place: str | Path,
        mode: int,
        folder: Path,
    ) -> None:
        self.settings = settings
        self.hub = hub
        self.ended = threading.Event()
        """It cannot go on; `fault` says why."""
        self.fault = ""
        self._keeper = keeper
        self._given = _given(settings, place, mode, folder)
        self._node: _core.LogNode | None = None
        rules = TableRules.of(settings.row, tombstone_age=settings.tombstone_age)
        self._databases = following(settings, rules, released=self._released, refused=self._fail)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._look, name="node-news", daemon=True)

    @property
    def figures(self) -> LogNode:
        """The part of it that knows its fault."""
        return self

    def start(self) -> None:
        """Read what the folder has, and take part. Raises as ``Hub.start``, and OSError."""
        self.hub.start()
        try:
            self._node = _core.LogNode(self._given, self._keeper)
        except BaseException:
            self.hub.stop()
            raise
        self._databases.start(self._node)
        self._thread.start()

    def standing(self) -> dict[str, Any]:
        """Return the position, and what else the node says of itself."""
        assert self._node is not None
        found: dict[str, Any] = self._node.figures()
        return found | {"database": together(self._databases.figures())}

    def drain(self) -> bool:
        """Take no more writes; return whether those that it had are answered."""
        assert self._node is not None
        return bool(self._node.drain(DRAINED))

    def close(self) -> None:
        """Answer what is under way, and end."""
        if self._node is None:
            return
        self.drain()
        self._databases.flush(DRAINED)
        self._databases.close()
        self._ends.set()
        self._thread.join()
        self._node.stop()
        self._keeper.close()
        self.hub.stop()

    def _released(self) -> None:
        assert self._node is not None
        self._node.release()

    def _look(self) -> None:
        assert self._node is not None
        while True:
            last = self._ends.wait(LOOKED)
            for kind, text in self._node.news():
                self._told(kind, text)
            if self._node.figures()["ended"] and not last:
                self._fail("the thread of its log has ended")
            if last:
                return

    def _told(self, kind: str, text: str) -> None:
        name = self.settings.name
        match kind:
            case "engine" | "log":
                logger.warning("node %s, the engine of its log: %s", name, text)
            case "disk":
                logger.error("node %s: %s; no client is answered before it can write", name, text)
            case "table":
                logger.error("node %s: %s", name, text)
            case "back":
                why = "the log has lost entries behind it"
                logger.warning("node %s goes back to position %s: %s", name, text, why)
            case "readers":
                logger.warning(
                    "node %s: the log has lost entries that readers of its table have seen; what "
                    "no node has put back they see no more", name,
                )  # fmt: skip
            case "stuck":
                logger.error(
                    "node %s: the beginning of the log is gone, and no checkpoint of the node is "
                    "in it: it serves nothing", name,
                )  # fmt: skip
            case "settings":
                self._fail(f"the log is of a table with other settings: {text}")

    def _fail(self, why: str) -> None:
        if not self.fault:
            logger.critical("node %s cannot go on: %s", self.settings.name, why)
            self.fault = why
        self.ended.set()


def folder() -> Path | None:
    """Return the folder of a node on a log; None: it is to be one with a primary."""
    found = os.environ.get(FOLDER)
    return Path(found) if found else None


def _given(settings: NodeSettings, place: str | Path, mode: int, folder: Path) -> dict[str, object]:
    target = parse(settings.stream_url)
    if target.kind != "server":
        raise ValueError(f"a node on a log needs one Redis or Valkey, not {target.shown}")
    for name, wanted in (("links", {}), ("ack", 0)):
        if getattr(settings, name) != wanted:
            raise ValueError(f"a node on a log has no {name} yet")
    rules = TableRules.of(settings.row, tombstone_age=settings.tombstone_age)
    return {
        "name": f"{settings.name}/{secrets.token_hex(8)}",
        "node": settings.name,
        "machine": machine(),
        "table": settings.table,
        "dc": settings.dc,
        "rules": rules.fingerprint,
        "capacity": settings.capacity,
        "centres": 1,
        "tombstones": settings.tombstones,
        "key_size": settings.key_size,
        "ttl": 0 if settings.ttl is None else round(settings.ttl * 1000),
        "place": str(place),
        "is_path": isinstance(place, Path),
        "mode": mode,
        "folder": str(folder),
        "timeout": settings.lease + PATIENCE,
        "checkpoint": CHECKPOINT,
        "held": bool(settings.databases),
        "stream": f"il:log:{{{settings.table}.{settings.dc}}}",
        **_engine(target),
    }


def _engine(target: Target) -> dict[str, object]:
    (address,) = target.addresses
    return {
        "addresses": [address],
        "tls": address.rpartition(":")[0].strip("[]") if target.tls else None,
        "ca": Path(target.ca).read_bytes() if target.ca else None,
        "user": target.user or None,
        "password": target.password,
        "database": target.db,
        "engine_timeout": target.timeout,
    }
