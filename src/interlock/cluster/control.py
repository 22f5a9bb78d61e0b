"""``NODE …``: the commands of operators to a node."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import threading
from collections.abc import Callable, Sequence

from interlock import _core
from interlock.cluster.figures import NodeFigures
from interlock.cluster.membership import ANNOUNCED, Membership
from interlock.cluster.reply import OK, array, bulk, error
from interlock.cluster.scans import Scans
from interlock.cluster.snapshots import Given
from interlock.errors import InterlockError

logger = logging.getLogger("interlock.cluster")
TAKEN = 2_000
"""Maximum number of commands taken at once."""
FORGOTTEN = 5.0
"""Seconds to wait until the log has the entry of FORGET."""
NO_PRIMARY = (
    "ERR every node takes writes; there is no primary to move. To take a node out: interlock "
    "cluster drain ID"
)
HELP = (
    "NODE <subcommand> [<argument> ...]. Subcommands are:",
    "STATUS -- The node's state and figures, as JSON.",
    "DRAIN -- Take no more writes, and announce it to clients and balancers.",
    "CHECKPOINT [<id> <offset>] -- The newest checkpoint, for another node: id, bytes, position, "
    "checksum; or a piece of it.",
    "SCAN <cursor> <count> -- States of all rows at one position, by pages: the next cursor (0: it "
    "was the last), the position, keys and states in turn. Begins with cursor 0.",
    "FORGET <id> -- Trim the log without waiting for the checkpoints of a node that is gone.",
    "RESYNC -- Drop all rows and read the log again.",
)


class Control:
    """A thread that answers ``NODE`` at one node."""

    def __init__(
        self,
        keeper: _core.TableKeeper,
        node: _core.LogNode,
        figures: NodeFigures,
        membership: Membership,
        given: Given,
    ) -> None:
        self._keeper = keeper
        self._node = node
        self._figures = figures
        self._membership = membership
        self._given = given
        self._scans = Scans(node)
        self._subcommands: dict[bytes, Callable[[], bytes]] = {
            b"STATUS": self._status,
            b"DRAIN": self._drain,
            b"RESYNC": self._resync,
            b"FAILOVER": lambda: error(NO_PRIMARY),
            b"HELP": lambda: array(line.encode() for line in HELP),
        }
        self._ends = threading.Event()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._take, name="node-commands", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._ends.set()
        os.eventfd_write(self._wake, 1)
        if self._thread.is_alive():
            self._thread.join()
        self._given.close()
        os.close(self._wake)

    def _take(self) -> None:
        poll = select.poll()
        poll.register(self._keeper.fileno(), select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while not self._ends.is_set():
            poll.poll()
            calls = self._keeper.take(TAKEN)
            if calls:
                self._keeper.answer(
                    [(asker, self._answered(arguments)) for asker, _, _, arguments in calls]
                )

    def _answered(self, arguments: Sequence[bytes]) -> bytes:
        word = arguments[1].upper() if len(arguments) > 1 else b""
        if word == b"CHECKPOINT" and len(arguments) in (2, 4):
            with contextlib.suppress(ValueError, OSError):
                return self._given.answer(arguments[2:])
        if word == b"SCAN" and len(arguments) == 4 and arguments[3].isdigit():
            return self._scans.answer(arguments[2].decode(errors="replace"), int(arguments[3]))
        if word == b"FORGET" and len(arguments) == 3:
            return self._forget(arguments[2].decode(errors="replace"))
        subcommand = self._subcommands.get(word)
        if subcommand is None and word not in (b"CHECKPOINT", b"SCAN", b"FORGET"):
            shown = word.decode(errors="replace")[:40]
            return error(f"ERR unknown subcommand '{shown}'. Try NODE HELP.")
        if subcommand is None or (len(arguments) > 2 and word != b"FAILOVER"):
            return error(f"ERR wrong arguments for 'node|{word.decode().lower()}'. Try NODE HELP.")
        try:
            return subcommand()
        except Exception:
            logger.exception("a NODE command failed")
            return b"-ERR the node could not do it; its log says why\r\n"

    def _status(self) -> bytes:
        return bulk(json.dumps(self._figures.status()).encode())

    def _drain(self) -> bytes:
        self._node.drain(0.0)
        self._membership.wake()
        return OK

    def _forget(self, name: str) -> bytes:
        known = [node for node, _, _ in self._node.figures()["keepers"]]
        try:
            announced = {one.id: one.address for one in self._membership.ask()}
        except (InterlockError, OSError) as failure:
            return error(f"NODE the node cannot read the announcements: {failure}")
        if name == self._figures.name:
            return error(f"NODE this is node {name}: ask another one to forget it")
        if name in announced:
            return error(
                f"NODE node {name} is announced at {announced[name]}: stop it first; an "
                f"announcement expires after {3 * ANNOUNCED:g} s"
            )
        if name not in known:
            there = ", ".join(sorted(known)) or "none"
            return error(f"NODE the log knows no node {name[:40]!r}; it knows {there}")
        if not self._node.forget(name, FORGOTTEN):
            return error("NODE the log did not accept it in time; try again")
        logger.warning("node %s is forgotten: the log is trimmed without its checkpoints", name)
        return OK

    def _resync(self) -> bytes:
        others = [one for one in self._membership.near() if one.role == "serving"]
        if not others:
            return error("NODE no other node serves: rows that only this one has would be lost")
        self._figures.resyncs = True
        self._node.resync()
        self._membership.wake()
        return OK
