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
from interlock.cluster.membership import Membership
from interlock.cluster.reply import OK, array, bulk, error
from interlock.cluster.snapshots import Given

logger = logging.getLogger("interlock.cluster")
TAKEN = 2_000
"""Commands that are taken at once."""
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
        subcommand = self._subcommands.get(word)
        if subcommand is None and word != b"CHECKPOINT":
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
        self._figures.draining = True
        self._node.drain(0.0)
        self._membership.wake()
        return OK

    def _resync(self) -> bytes:
        others = [one for one in self._membership.near() if one.role == "serving"]
        if not others:
            return error("NODE no other node serves: rows that only this one has would be lost")
        self._figures.resyncs = True
        self._node.resync()
        self._membership.wake()
        return OK
