"""Databases behind a table: rows are written there later, and come from there at a cold start."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from interlock._core import StateRules
from interlock.client.url import without_password
from interlock.cluster.database.protocol import (
    TIMEOUT,
    Database,
    DatabaseUnavailable,
    LogMark,
    SavedRow,
)

__all__ = [
    "Database",
    "DatabaseUnavailable",
    "LogMark",
    "SavedRow",
    "open_database",
]

ALLOWED = "sqlite:///PATH, postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
_LONGEST = 40
"""Characters of a table's name: PostgreSQL knows 63, and the names of partitions are longer."""


def open_database(
    url: str,
    name: str,
    rules: StateRules,
    *,
    partitions: str | None = None,
    part: tuple[int, int] = (0, 1),
    timeout: float = TIMEOUT,
) -> Database:
    """Return the database of a table; it connects when it is first used.

    Args:
        url: ``sqlite:///PATH``, or ``postgresql://...`` as libpq takes it.
        name: the state table's, and that of the table there.
        partitions: of PostgreSQL: ``"hash:N"``, by the hash of the key, or ``"time:day"`` and
            ``"time:month"``, by the time of a row's last change (UTC). Default: none.
        part: of several databases the number of this one, from 0, and how many there are: each has
            the rows of some hashes of keys, for ever. Default: it is the only one.
        timeout: seconds that it has for an answer. Default 10.

    Raises:
        ValueError: an argument is none of these.
        ImportError: the client that it needs is not installed; the text names the extra.
    """
    scheme = urlsplit(url).scheme
    if not 1 <= len(name.encode()) <= _LONGEST or "\0" in name:
        raise ValueError(f"open_database(): name is {name[:80]!r}; allowed: 1 to {_LONGEST} bytes")
    if partitions is not None and not re.fullmatch(
        r"hash:[1-9]\d{0,3}|time:(day|month)", partitions
    ):
        raise ValueError(
            f"open_database(): partitions is {partitions!r}; allowed: hash:N, time:day, time:month"
        )
    wanted = f"{part[0] + 1} of {part[1]}"
    if not 0 <= part[0] < part[1]:
        raise ValueError(f"open_database(): part is {part}; allowed: 0 to {part[1] - 1}")
    if scheme == "sqlite":
        from interlock.cluster.database.sqlite import SqliteDatabase

        parts = urlsplit(url)
        path = unquote(parts.path)
        if parts.netloc or parts.query or not path.strip("/"):
            raise ValueError(f"open_database(): url is {url!r}; allowed: {ALLOWED}")
        if partitions is not None:
            raise ValueError(
                f"open_database(): partitions is {partitions!r}, and url names SQLite, which has "
                f"none; allowed: postgresql://..."
            )
        return SqliteDatabase(Path(path), name, rules, wanted, timeout)
    if scheme in ("postgresql", "postgres"):
        from interlock.cluster.database.postgresql import PostgresqlDatabase

        return PostgresqlDatabase(url, name, rules, partitions, wanted, timeout)
    raise ValueError(f"open_database(): url is {without_password(url)!r}; allowed: {ALLOWED}")
