"""The other nodes of a cluster, and this node's own announcement."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from interlock.client.faces.client import Client
from interlock.client.rows.announcements import (
    Announcement,
    Directory,
    announcements,
    withdraw,
)
from interlock.errors import EngineUnavailable, InterlockError

logger = logging.getLogger("interlock.cluster")
ANNOUNCED = 1.0
"""Seconds between two announcements; one expires after three times that."""
LISTED = 3600.0
"""Seconds after which a node adds its id to the cluster's again: they expire after a day."""


class Membership:
    """A thread that announces a node and reads the announcements of others."""

    def __init__(
        self, client: Client, cluster: str, dc: str, own: Callable[[], Announcement]
    ) -> None:
        self.others: list[Announcement] = []
        """All other nodes of the cluster, in any data centre."""
        self.twin: Announcement | None = None
        """Another node that announces itself under this node's id."""
        self.trouble = ""
        """The reason why its announcement has expired, or will soon; empty: it has not."""
        self._announced_at = time.monotonic()
        self._listed_at = -LISTED
        self._client = client
        self._cluster = cluster
        self._directory = Directory(client._engine, cluster)
        self._dc = dc
        self._own = own
        self._name = ""
        """Its id, once it is announced."""
        self._changed = threading.Event()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="node-membership", daemon=True)

    def start(self) -> None:
        """Announce the node, and start the thread.

        Raises:
            NotATable: the engine is a hub that serves no table ``nodes``.
        """
        self._announce()
        self._thread.start()

    def close(self) -> None:
        """Withdraw the announcement, and stop the thread."""
        self._ends.set()
        self._changed.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._name:
            try:
                withdraw(self._client, self._cluster, self._name)
            except (InterlockError, OSError) as error:
                logger.warning(
                    "node %s cannot withdraw its announcement, which expires in %g s: %s",
                    self._name,
                    3 * ANNOUNCED,
                    error,
                )

    def wake(self) -> None:
        """Announce the node at once, because its state has changed."""
        self._changed.set()

    def near(self) -> list[Announcement]:
        """Return the other nodes of the data centre."""
        return [one for one in self.others if one.dc == self._dc]

    def ask(self) -> list[Announcement]:
        """Ask the engine for the nodes of the data centre, including this one.

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
                self._failed(error)

    def _announce(self) -> None:
        own, now = self._own(), time.monotonic()
        ttl, run = round(3 * ANNOUNCED * 1000), self._client._sessions.run
        is_listed = self._listed_at + LISTED > now
        try:
            found = run(None, self._directory.renew, own, ttl) if is_listed else None
            if found is None:
                found = run(None, self._directory.announced)
                # The engine may have lost the id, and the list of ids expires after a day.
                is_listed = is_listed and any(one.id == own.id for one in found)
                run(None, self._directory.announce, own, ttl, is_listed)
        except EngineUnavailable as error:
            self._failed(error)
            return
        if self._name:
            before = [one for one in found if one.id == own.id and one.since != own.since]
            self.twin = before[0] if before else None
        if not is_listed:
            self._listed_at = now
        self._name = own.id
        self._announced_at = time.monotonic()
        if self.trouble:
            self.trouble = ""
            logger.info("node %s is announced again", own.id)
        self.others = [one for one in found if one.id != own.id]

    def _failed(self, error: Exception) -> None:
        logger.debug("announcements: %s", error)
        if time.monotonic() < self._announced_at + 3 * ANNOUNCED:
            return
        is_new, self.trouble = not self.trouble, str(error)
        if is_new:
            logger.warning("the node is not announced, so clients do not find it: %s", error)


def machine() -> str:
    """Return an id of this machine, the same in all its containers."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return os.uname().nodename
