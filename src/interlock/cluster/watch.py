"""Watches a node: logs its news, limits stale reads, ends it if it cannot continue."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from typing import Any

from interlock import _core
from interlock.cluster.feed import log_shown
from interlock.cluster.figures import NodeFigures
from interlock.cluster.membership import Membership
from interlock.cluster.settings import NodeSettings

logger = logging.getLogger("interlock.cluster")
LOOKED = 0.2
"""Minimum seconds between two looks at a node, and those between two while it reads entries."""
IDLE = 10.0
"""Seconds between two looks at a node without events."""
OF_ANOTHER = ("the table's name:", "the data centre:", "the columns:", "another version")
"""Settings that a log keeps for ever; as the difference begins with them."""
OF_FILES = {"disk", "checkpoint"}
"""Kinds of trouble of the node's folder."""
REPEATED = 60.0
"""Seconds after which a trouble of the engine that has not ended is logged again."""


class Watch:
    """A thread that looks at one node.

    Args:
        failed: called with the reason if the node cannot continue.
    """

    def __init__(
        self,
        settings: NodeSettings,
        node: _core.LogNode,
        keeper: _core.TableKeeper,
        figures: NodeFigures,
        membership: Membership,
        failed: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._node = node
        self._keeper = keeper
        self._figures = figures
        self._membership = membership
        self._failed = failed
        self._serves = False
        self._said: dict[str, float] = {}
        """Troubles of the engine that have not ended, whatever numbers they name, and from when on
        each is logged again."""
        self._failing: set[str] = set()
        self._put_back = 0
        self._events = 0
        """Events that it has seen."""
        self._position = 0
        self._moves = True
        """The position has changed since the look before."""
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="node-watch", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Log what is new, and end."""
        self._ends.set()
        self._node.wake()
        self._thread.join()

    def _run(self) -> None:
        while True:
            last = self._wait()
            for kind, text in self._node.news():
                self._told(kind, text)
            found = self._figures.look()
            if self._said and not found["trouble"]:
                self._said.clear()
                logger.info("node %s: the engine of its log works again", self._settings.name)
            self._moves = found["position"] != self._position
            self._position = found["position"]
            self._look_at_files(found)
            if self._put_back < found["put_back"]:
                more, self._put_back = found["put_back"] - self._put_back, found["put_back"]
                logger.warning("node %s has put back %s lost entries", self._settings.name, more)
            if self._settings.max_staleness is not None:
                self._keeper.set_fresh(self._figures.fresh(found))
            serves = self._figures.state(found) == "serving"
            if serves != self._serves:
                self._serves = serves
                self._membership.wake()
                position, state = found["position"], self._figures.state(found)
                logger.info("node %s is %s, at position %s", self._settings.name, state, position)
            if found["ended"] and not last:
                self._failed("the thread of its log has ended")
            if last:
                return

    def _wait(self) -> bool:
        """Wait for an event, or until it is time for a look. Return whether it is the last."""
        looked = time.monotonic()
        # Others compare their rows with its own at the positions that it looks at.
        is_often = self._moves or self._settings.max_staleness is not None
        self._events = self._node.wait_for_event(self._events, 0.0 if is_often else IDLE)
        return self._ends.wait(max(0.0, looked + LOOKED - time.monotonic()))

    def _look_at_files(self, found: dict[str, Any]) -> None:
        failing = {kind for kind, _, _ in found["trouble"]} & OF_FILES
        if self._failing - failing:
            logger.info("node %s: its files can be written again", self._settings.name)
        self._failing = failing

    def _told(self, kind: str, text: str) -> None:
        name = self._settings.name
        match kind:
            case "engine" | "log":
                now, alike = time.monotonic(), re.sub(r"\d+", "0", text)
                if now >= self._said.get(alike, now):
                    self._said[alike] = now + REPEATED
                    logger.warning("node %s, the engine of its log: %s", name, text)
            case "disk" | "table":
                logger.error("node %s: %s", name, text)
            case "lost":
                logger.warning("node %s: %s", name, text)
            case "back":
                is_asked, self._figures.resyncs = self._figures.resyncs, False
                why = "an operator asked for it" if is_asked else "the log has lost what follows it"
                logger.warning("node %s goes back to position %s: %s", name, text, why)
            case "readers":
                logger.warning(
                    "node %s: the log has lost entries that readers of its table have seen; those "
                    "that no node has put back have disappeared for them", name,
                )  # fmt: skip
            case "stuck":
                logger.error(
                    "node %s does not serve: the log begins after its checkpoints, so it needs "
                    "a snapshot of another node", name,
                )  # fmt: skip
            case "on":
                logger.info(
                    "node %s continues at position %s: its ring has the entries from its "
                    "checkpoint to the start of the log", name, text,
                )  # fmt: skip
            case "snapshot":
                logger.error("node %s cannot take a snapshot: %s", name, text)
            case "settings":
                self._failed(
                    f"the log belongs to a table with other settings: {text}{self._way(text)}"
                )

    def _way(self, text: str) -> str:
        """Return how a log gets other settings; empty for those that make it another table's."""
        if any(one in text for one in OF_ANOTHER):
            return ""
        settings = self._settings
        log = log_shown(settings.stream_url, settings.table, settings.dc)
        return (
            f". To change them, stop all nodes of data centre {settings.dc}, delete {log}, and "
            f"start them with the new settings: they begin the log with the rows in their folders"
        )
