"""A node's databases, opened and brought up to date."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from interlock._core import StateRules
from interlock.cluster.database import Database, DatabaseUnavailable, open_database
from interlock.cluster.database.behind import Figures, WriteBehind, migrated
from interlock.cluster.settings import NodeSettings

logger = logging.getLogger("interlock.cluster")


def opened(settings: NodeSettings, rules: StateRules) -> list[Database]:
    """Return the databases of a node, none of which is connected yet.

    Raises:
        ValueError: a URL or the partitions are invalid.
        ImportError: a client is not installed.
    """
    count = len(settings.databases)
    return [
        open_database(
            url, settings.table, rules, partitions=settings.partitions, part=(n, count)
        )
        for n, url in enumerate(settings.databases)
    ]  # fmt: skip


def write_behind(
    databases: Sequence[Database],
    settings: NodeSettings,
    rules: StateRules,
    *,
    released: Callable[[], None],
    refused: Callable[[str], None],
) -> WriteBehind:
    """Return what writes a node's databases, which are brought up to date; see ``WriteBehind``.

    Raises:
        SchemaMismatch: one has a column of a type that cannot hold the row's.
        DatabaseUnavailable: one refuses the node. One that is away is written once it is there.
    """
    for database in databases:
        try:
            migrated(database)
        except DatabaseUnavailable as error:
            if error.refused:
                raise
            # The writer creates it when it first writes.
            logger.debug("%s", error)
    return WriteBehind(
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
