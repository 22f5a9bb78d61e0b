"""The nodes of a cluster as this one knows them, and its own announcement, made again and again."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from interlock.engine.announcements import Announcement, announce, announcements, withdraw
from interlock.engine.client import Client
from interlock.errors import EngineUnavailable, InterlockError

logger = logging.getLogger("interlock.cluster")
ANNOUNCED = 1.0
"""Seconds between two announcements; one is forgotten after three times that."""


class Membership:
    """A thread that announces a node, and looks who else is announced."""

    def __init__(
        self, client: Client, cluster: str, dc: str, own: Callable[[], Announcement]
    ) -> None:
        self.others: list[Announcement] = []
        """All but this node, of whatever data centre they say to be."""
        self.twin: Announcement | None = None
        """Another node with this one's id, announced since this one was."""
        self._client = client
        self._cluster = cluster
        self._dc = dc
        self._own = own
        self._name = ""
        """Its id, once it is announced."""
        self._changed = threading.Event()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="node-membership", daemon=True)

    def start(self) -> None:
        """Announce the node, and begin.

        Raises:
            NotATable: the engine is a hub that serves no table ``nodes``.
        """
        self._announce()
        self._thread.start()

    def close(self) -> None:
        """Withdraw the node, and end."""
        self._ends.set()
        self._changed.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._name:
            with contextlib.suppress(InterlockError, OSError):
                withdraw(self._client, self._cluster, self._name)

    def wake(self) -> None:
        """Announce the node at once: what it announces has changed."""
        self._changed.set()

    def near(self) -> list[Announcement]:
        """Return the other nodes of the data centre."""
        return [one for one in self.others if one.dc == self._dc]

    def ask(self) -> list[Announcement]:
        """Return the nodes of the data centre as the engine has them now, this one among them.

        Raises:
            EngineUnavailable: it does not answer.
        """
        return [one for one in announcements(self._client, self._cluster) if one.dc == self._dc]

    def _run(self) -> None:
        while not self._ends.is_set():
            self._changed.wait(ANNOUNCED)
            self._changed.clear()
            try:
                self._announce()
            except (InterlockError, OSError) as error:
                logger.debug("announcements: %s", error)

    def _announce(self) -> None:
        own = self._own()
        try:
            if self._name:
                before = [one for one in announcements(self._client, self._cluster)
                          if one.id == own.id and one.since != own.since]  # fmt: skip
                self.twin = before[0] if before else None
            announce(self._client, self._cluster, own, round(3 * ANNOUNCED * 1000))
            found = announcements(self._client, self._cluster)
        except EngineUnavailable as error:
            logger.debug("announcements: %s", error)
            return
        self._name = own.id
        self.others = [one for one in found if one.id != own.id]


def machine() -> str:
    """Return what tells this machine from others; containers of one machine have the same."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return os.uname().nodename
