"""Checkpoints between nodes: what one keeps, gives to another, and gets where it needs one.

A node needs one when the log begins behind its own. The bytes are those of a file that the other
node keeps anyway; they have a checksum, which is looked at before the file is taken.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from interlock import _core
from interlock.client.rows.announcements import Announcement
from interlock.cluster.figures import NodeFigures
from interlock.cluster.membership import Membership
from interlock.cluster.peers import broken
from interlock.cluster.reply import array, bulk, error
from interlock.cluster.settings import NodeSettings
from interlock.errors import InterlockError
from interlock.hub.client import Client
from interlock.hub.resp import ProtocolError, ReplyError
from interlock.hub.url import Address

logger = logging.getLogger("interlock.cluster")
PIECE = 1 << 20
"""Bytes of a file that are given at once, at most."""
MOST_TRANSFERS = 16
UNUSED = 60.0
"""Seconds after which an unused transfer is closed."""
LOOKED = 0.5
"""Seconds between two looks at whether the node needs one, until it serves."""
TIMEOUT = 10.0
"""Seconds for another node to answer."""
INCOMING = "unfinished-00000000000000000000"
"""Name of a file that is under way; a node removes it when it starts."""
PEERS = 30.0
"""Seconds between two looks at whether others would give a snapshot."""
SOON = 5.0
"""Seconds to the next look if there is nobody, or one refuses."""
QUICK = 3.0
"""Seconds for another node to answer who looks."""
MOST_PEERS = 8
"""Nodes that are looked at together, at most."""
LOGIN = ("WRONGPASS", "NOAUTH", "NOPERM")


def _refused(refusal: ReplyError) -> str:
    if str(refusal).split(" ", 1)[0] in LOGIN:
        return f"its hub refuses the login ({refusal}): check --peer-user"
    return str(refusal)


class SnapshotLost(InterlockError):
    """Another node gave no checkpoint, or not all of it."""


@dataclass(slots=True)
class _Transfer:
    file: int
    used: float


class Given:
    """Checkpoints that a node gives to others; one thread calls."""

    def __init__(self, node: _core.LogNode, folder: Path) -> None:
        self._node = node
        self._folder = folder
        self._transfers: dict[str, _Transfer] = {}

    def answer(self, words: Sequence[bytes]) -> bytes:
        """Return the reply to ``NODE CHECKPOINT``, or ``NODE CHECKPOINT ID OFFSET``.

        Raises:
            ValueError: it is neither.
        """
        now = time.monotonic()
        for old in [one for one, it in self._transfers.items() if now - it.used > UNUSED]:
            self._end(old)
        if not words:
            return self._begin(now)
        text, offset = words
        name = text.decode()
        transfer = self._transfers.get(name)
        if transfer is None:
            return error("NODE that transfer is closed; begin again")
        transfer.used = now
        piece = os.pread(transfer.file, PIECE, int(offset))
        if not piece:
            self._end(name)
        return bulk(piece)

    def close(self) -> None:
        """Close all files."""
        for name in list(self._transfers):
            self._end(name)

    def _begin(self, now: float) -> bytes:
        found = self._node.checkpoint()
        if found is None:
            return error("NODE this node has no checkpoint yet, and is writing one: try again")
        if len(self._transfers) >= MOST_TRANSFERS:
            return error(f"NODE {MOST_TRANSFERS} transfers are under way; try again")
        path, position, checksum = found
        try:
            # It can be read to its end though the node removes it for a newer one.
            file = os.open(self._folder / path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return error("NODE it has been replaced by a newer checkpoint; try again")
        name = secrets.token_hex(8)
        self._transfers[name] = _Transfer(file, now)
        told = (name, os.fstat(file).st_size, position, checksum)
        return array(str(one).encode() for one in told)

    def _end(self, name: str) -> None:
        os.close(self._transfers.pop(name).file)


def fetch(address: Address, path: Path, known: set[tuple[int, int]]) -> tuple[int, int] | None:
    """Get the newest checkpoint of another node; return its position and checksum.

    Args:
        path: the file that it is written to.
        known: those that are not wanted. None is returned for one of them.

    Raises:
        OSError: the node is not there, or the file cannot be written.
        ReplyError: the node gives none, and says why.
        SnapshotLost: it has answered something else.
    """
    with Client(address, timeout=TIMEOUT) as client:
        match client.call("NODE", "CHECKPOINT"):
            case [bytes(name), bytes(size), bytes(position), bytes(checksum)]:
                mark = int(position), int(checksum)
            case reply:
                raise SnapshotLost(f"it answered {reply!r:.80}")
        if mark in known:
            return None
        with path.open("wb") as file:
            while file.tell() < int(size):
                piece = client.call("NODE", "CHECKPOINT", name, file.tell())
                if not isinstance(piece, bytes) or not piece:
                    raise SnapshotLost(f"its checkpoint ended after {file.tell()} of {int(size)} B")
                file.write(piece)
        return mark


class Snapshots:
    """A thread that gets a checkpoint of another node when this one needs it."""

    def __init__(
        self,
        settings: NodeSettings,
        node: _core.LogNode,
        figures: NodeFigures,
        membership: Membership,
        folder: Path,
    ) -> None:
        self._settings = settings
        self._node = node
        self._figures = figures
        self._membership = membership
        self._path = folder / INCOMING
        self._tried: set[tuple[int, int]] = set()
        self._peers_at = 0.0
        self._failing: dict[str, str] = {}
        """Nodes that refused when they were asked last."""
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="node-snapshots", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._ends.set()
        self._node.wake()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        events, pause = 0, LOOKED
        while True:
            looked = time.monotonic()
            events = self._node.wait_for_event(events, pause)
            if self._ends.wait(max(0.0, looked + LOOKED - time.monotonic())):
                return
            found, pause = self._node.figures(), LOOKED
            if found["needs_snapshot"]:
                self._get()
            elif found["serves"]:
                self._figures.lacking = ""
                self._tried.clear()
                self._look_at_peers()
                pause = max(LOOKED, self._peers_at - time.monotonic())

    def _look_at_peers(self) -> None:
        """Look whether others would give a snapshot, before one is needed."""
        if time.monotonic() < self._peers_at:
            return
        near = self._membership.near()
        failing = {}
        for one in random.sample(near, min(len(near), MOST_PEERS)):
            if self._ends.is_set():
                return
            if why := self._refusal(one):
                failing[one.id] = why
        # A node that has just ended stays announced for a while.
        told = {id: why for id, why in failing.items() if id in self._failing}
        self._failing = failing
        if told.keys() - self._figures.peers.keys():
            for id, why in sorted(told.items()):
                logger.error("node %s: node %s gives it no snapshot: %s",
                             self._settings.name, id, why)  # fmt: skip
        self._figures.peers = told
        soon = not near or failing
        self._peers_at = time.monotonic() + (SOON if soon else PEERS)

    def _refusal(self, one: Announcement) -> str:
        """Return why a node would give no snapshot; empty: it would."""
        address = self._settings.peers.address(one.address)
        try:
            with Client(address, timeout=QUICK) as client:
                client.call("NODE", "HELP")
        except ReplyError as refusal:
            return _refused(refusal)
        except OSError as failure:
            return broken(failure, address)
        except (ProtocolError, ValueError) as failure:
            return str(failure)
        return ""

    def _get(self) -> None:
        near = sorted(self._membership.near(), key=lambda one: one.role != "serving")
        reasons = []
        for one in near:
            why = self._from(one)
            if why is None:
                return
            reasons.append(f"cannot get a snapshot of {one.id}: {why}")
        if not near:
            stream = f"il:log:{{{self._settings.table}.{self._settings.dc}}}"
            reasons.append(
                "no other announced node can give one: start one that has read this log. If no "
                f"node has a checkpoint of it, delete the stream {stream} on the engine: nodes "
                "then begin a new one with the rows that they or a database have"
            )
        self._tell("; ".join(reasons))

    def _from(self, one: Announcement) -> str | None:
        """Take that of one node; return why not."""
        address = self._settings.peers.address(one.address)
        try:
            mark = fetch(address, self._path, self._tried)
        except ReplyError as refusal:
            return _refused(refusal)
        except OSError as failure:
            return broken(failure, address)
        except (SnapshotLost, ProtocolError, ValueError) as failure:
            return str(failure) or type(failure).__name__
        if mark is None:
            return "its checkpoint is not part of the log"
        self._tried.add(mark)
        logger.warning(
            "node %s copies a snapshot from node %s, at position %s",
            self._settings.name, one.id, mark[0],
        )  # fmt: skip
        self._node.install(INCOMING)
        # Whether the log has it, the node finds out.
        until = time.monotonic() + TIMEOUT
        while time.monotonic() < until and self._node.figures()["needs_snapshot"]:
            if self._ends.wait(0.02):
                break
        with contextlib.suppress(OSError):
            if not self._node.figures()["needs_snapshot"]:
                self._path.unlink()
        return None

    def _tell(self, why: str) -> None:
        if why != self._figures.lacking:
            self._figures.lacking = why
            logger.error("node %s does not serve: %s", self._settings.name, why)
