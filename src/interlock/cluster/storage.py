"""A node's databases: what it loads of them at a cold start, and what it writes behind."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from interlock.cluster.database import Database, SavedMark, open_database
from interlock.cluster.database.behind import Figures, WriteBehind
from interlock.cluster.database.following import Following
from interlock.cluster.entry import Change, Origin
from interlock.cluster.fence import Mark
from interlock.cluster.machine import Machine
from interlock.cluster.settings import NodeSettings
from interlock.cluster.stamps import HybridClock
from interlock.cluster.state import TableRules

logger = logging.getLogger("interlock.cluster")


class Storage:
    """The databases behind one node; without any it does nothing."""

    def __init__(
        self,
        settings: NodeSettings,
        rules: TableRules,
        clock: HybridClock,
    ) -> None:
        self._databases = _opened(settings, rules)
        self._clock = clock
        self._dc = settings.dc
        self._behind: WriteBehind | None = None

    def load(self, machine: Machine, lock: threading.RLock) -> None:
        """Bring the databases up to date, and take their rows.

        Raises:
            SchemaMismatch: one has a column of a type that cannot hold the row's.
            DatabaseUnavailable: one cannot be reached.
        """
        if not self._databases:
            return
        marks = []
        for database in self._databases:
            _migrated(database)
            began, count = time.monotonic(), 0
            mark, batches = database.load()
            self._clock.saw((mark.clock, self._dc))
            with closing(batches) as rows:
                for batch in rows:
                    machine.replica.load(batch, time.time_ns() // 1_000_000)
                    count += len(batch)
            if count:
                taken = time.monotonic() - began
                logger.info("%d rows came from %s in %.1f s", count, database.url, taken)
            marks.append(mark)
        # What a later one has comes again through the stream, and changes nothing.
        first = min(marks, key=lambda mark: mark.seq)
        machine.installed(first.mark, {origin.dc: origin for origin in first.links})
        self._behind = WriteBehind(
            self._databases,
            machine.replica.states.get,
            lambda mark: _missing(machine, lock, mark),
        )
        self._behind.start()

    def leads(self, token: int) -> None:
        """Write behind from now on."""
        if self._behind is not None:
            self._behind.lead(token)

    def rests(self) -> None:
        """Write no more."""
        if self._behind is not None:
            self._behind.rest()

    def save(self, rows: list[Change], mark: Mark, links: dict[str, Origin]) -> None:
        """Have rows written, some time."""
        if self._behind is not None:
            clock = self._clock.next()[0]
            self._behind.offer(rows, SavedMark.of(mark, list(links.values()), clock))

    def flush(self, timeout: float) -> bool:
        """Wait until all is written, so many seconds at most; return whether it is."""
        return self._behind is None or self._behind.flush(timeout)

    def close(self) -> None:
        """Write what waits, and close."""
        if self._behind is not None:
            self._behind.close()
        else:
            for database in self._databases:
                database.close()

    def status(self) -> dict[str, Any] | None:
        """Return the figures of all databases together; None without any."""
        return together([] if self._behind is None else self._behind.figures())


def following(
    settings: NodeSettings,
    rules: TableRules,
    *,
    released: Callable[[], None],
    refused: Callable[[str], None],
) -> Following:
    """Return the databases of a node on a log, brought up to date; see ``Following``.

    Raises:
        SchemaMismatch: one has a column of a type that cannot hold the row's.
        DatabaseUnavailable: one cannot be reached.
    """
    databases = _opened(settings, rules)
    for database in databases:
        _migrated(database)
    return Following(
        databases, age_ms=rules.age_ms, takes_all=settings.from_database, released=released,
        refused=refused,
    )  # fmt: skip


def together(figures: Sequence[Figures]) -> dict[str, Any] | None:
    """Return the figures of several databases as those of one; None of none."""
    if not figures:
        return None
    return {
        "url": " ".join(one.url for one in figures),
        "delay_ms": max(one.delay_ms for one in figures),
        "waiting": sum(one.waiting for one in figures),
        "written": sum(one.written for one in figures),
        "error": next((one.error for one in figures if one.error), ""),
    }


def _opened(settings: NodeSettings, rules: TableRules) -> list[Database]:
    count = len(settings.databases)
    return [
        open_database(
            url, settings.table, rules, partitions=settings.partitions, part=(n, count)
        )
        for n, url in enumerate(settings.databases)
    ]  # fmt: skip


def _migrated(database: Database) -> None:
    for line in database.migrations():
        logger.info("%s: %s", database.url, line)
    database.migrate()


def _missing(machine: Machine, lock: threading.RLock, mark: SavedMark) -> list[bytes]:
    """Return the keys that changed since a mark; all, where that is not known."""
    with lock:
        since = machine.replica.since(mark.seq, machine.fence.mark.seq) if mark.seq else None
        if since is not None and mark.token <= machine.fence.mark.token:
            return list({key for key, _ in since})
        return list(machine.replica.states)
