"""The tables of an outbox in an SQLite file, as SQL: one list of statements for each version."""

from __future__ import annotations

import secrets
import sqlite3
from typing import Any

from interlock.outbox import versions
from interlock.outbox.postgres.driver import quoted
from interlock.outbox.versions import check_version

__all__ = ["ORDER", "VERSION", "draw_prefix", "installed", "migrate", "prefix", "script"]

VERSION = 2
ORDER = "coalesce(number, id)"
"""The place of a row in the order.

SQLite has one writer at a time, which draws an id only while it may write, and keeps that right
until it commits. So the order of the ids is that of the commits, without gaps for those who read.
"""
MIN_SQLITE = (3, 35)
"""The first with ``returning``."""


def statements(schema: str, since: int = 0) -> list[str]:
    """Return the SQL that brings the tables from a version to the present one; 0: none are there.

    Raises ValueError if the name is not a plain one.
    """
    quoted(schema)
    return versions.statements(_VERSIONS, schema, f'"{schema}_outbox_meta"', since)


def script(schema: str, since: int = 0) -> str:
    """Return the same as a script of one transaction."""
    texts = ["pragma journal_mode = wal;", "begin immediate;", *statements(schema, since)]
    return "\n\n".join([*texts, "commit;"]) + "\n"


def migrate(connection: sqlite3.Connection, schema: str) -> tuple[int, int]:
    """Bring the tables to the present version, and the file to WAL mode; return the versions before
    and after.

    Raises WrongVersion if the tables are of a later release.
    """
    check_library()
    connection.execute("pragma journal_mode = wal").fetchall()
    connection.execute("begin immediate")
    try:
        before = installed(connection, schema) or 0
        if before > VERSION:
            check_version(_what(schema), before, VERSION)
        for text in statements(schema, before):
            connection.execute(text)
        if not before:
            connection.execute(f'update "{schema}_outbox_meta" set prefix = ?', (_drawn(),))
    except BaseException:
        connection.execute("rollback")
        raise
    connection.execute("commit")
    return before, VERSION


def installed(connection: Any, schema: str) -> int | None:
    """Return the version of the tables, or None if they do not exist."""
    quoted(schema)
    name = f"{schema}_outbox_meta"
    query = "select 1 from sqlite_master where type = 'table' and name = ?"
    if connection.execute(query, (name,)).fetchone() is None:
        return None
    found: int = connection.execute(f'select version from "{name}"').fetchone()[0]
    return found


def prefix(connection: Any, schema: str) -> str:
    """Return the prefix of the rows' dedup strings. Raises WrongVersion."""
    check_version(_what(schema), installed(connection, schema), VERSION)
    found: str = connection.execute(f'select prefix from "{schema}_outbox_meta"').fetchone()[0]
    return found


def draw_prefix(connection: Any, schema: str) -> str:
    """Draw a new prefix, for a file that was restored: numbers may be used again."""
    drawn = _drawn()
    connection.execute(f'update "{schema}_outbox_meta" set prefix = ?', (drawn,))
    return drawn


def check_library() -> None:
    """Raise ImportError if SQLite itself is too old."""
    if sqlite3.sqlite_version_info < MIN_SQLITE:
        raise ImportError(
            f"this Python has SQLite {sqlite3.sqlite_version}; an outbox needs "
            + ".".join(map(str, MIN_SQLITE))
        )


def _drawn() -> str:
    return secrets.token_hex(6)


def _what(schema: str) -> str:
    return f"table {schema}_outbox"


_VERSIONS = (
    (
        """
create table "@_outbox_meta" (
    version integer not null,
    prefix text not null,
    position integer not null default 0,  -- as the relay reports it; as the next
    waits text,
    reported real
);""",
        "insert into \"@_outbox_meta\" (version, prefix) values (0, '');",
        """
create table "@_outbox" (
    id integer primary key autoincrement,
    number integer,                  -- the place in the order of a row that was requeued
    queue text not null,
    task text not null,
    payload blob not null,
    keys blob not null,              -- MessagePack, as the next
    shared blob not null,
    delay real,                      -- seconds from the send
    dedup text,
    options text not null,           -- of the put, as JSON
    created real not null default ((julianday('now') - 2440587.5) * 86400.0),
    attempts integer not null default 0,
    state text check (state in ('held', 'dead')),
    error text
);""",
        'create index "@_outbox_by_number" on "@_outbox" (coalesce(number, id));',
        """
create unique index "@_outbox_by_dedup" on "@_outbox" (queue, dedup)
    where dedup is not null and state is not 'dead';""",
    ),
    (
        """
create table "@_outbox_results" (
    id integer primary key,          -- of the row
    sent integer not null,           -- µs from 1970
    state text not null check (state in ('acked', 'expired', 'cancelled')),
    result blob,                     -- MessagePack
    error text,
    expires real not null
);""",
        'create index "@_outbox_results_by_expiry" on "@_outbox_results" (expires);',
    ),
)
