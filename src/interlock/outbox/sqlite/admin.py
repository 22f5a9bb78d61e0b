"""Operations on an outbox in an SQLite file; see ``interlock.outbox.postgres.admin``."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import msgspec

from interlock.outbox.postgres.admin import DeadRow, Status
from interlock.outbox.sqlite import schema as schemas
from interlock.outbox.sqlite.lock import holder
from interlock.outbox.sqlite.position import NOW
from interlock.outbox.sqlite.schema import ORDER

__all__ = ["check", "dead", "requeue", "status"]


def status(connection: sqlite3.Connection, schema: str) -> Status:
    """Return the counts. Raises WrongVersion."""
    schemas.prefix(connection, schema)
    live = "state is not 'dead'"
    waiting, relayed, oldest, held, gone, kept, reported, waits = connection.execute(
        f"select count(*) filter (where {ORDER} > m.position and {live}), "
        f"count(*) filter (where {ORDER} <= m.position and {live}), "
        f"{NOW} - min(created) filter (where state is null), "
        "count(*) filter (where state = 'held'), count(*) filter (where state = 'dead'), "
        f'(select count(*) from "{schema}_outbox_results"), '
        f"{NOW} - m.reported, m.waits "
        f'from "{schema}_outbox_meta" m left join "{schema}_outbox" o'
    ).fetchone()
    relay = holder(_path(connection))
    return Status(
        schemas.VERSION, waiting, relayed, oldest, held, gone, kept, relay, reported, 0,
        waits if relay else None,
    )  # fmt: skip


def dead(connection: sqlite3.Connection, schema: str, limit: int = 100) -> list[DeadRow]:
    """Return the dead rows, oldest first. Raises WrongVersion."""
    schemas.prefix(connection, schema)
    found = connection.execute(
        "select id, queue, task, keys, shared, attempts, coalesce(error, ''), "
        f"{NOW} - created from \"{schema}_outbox\" where state = 'dead' order by id limit ?",
        (limit,),
    ).fetchall()
    unpack = msgspec.msgpack.decode
    return [
        DeadRow(id, queue, task, [key.decode(errors="backslashreplace")
                                  for key in unpack(keys) + unpack(shared)], *rest)
        for id, queue, task, keys, shared, *rest in found
    ]  # fmt: skip


def requeue(connection: sqlite3.Connection, schema: str, ids: list[int] | None) -> list[int]:
    """Return dead rows to the end of the order, and clear the state of held ones; their attempts
    begin anew. Return the ids of the rows.

    Args:
        ids: the rows. None: all dead ones.

    Raises WrongVersion; and sqlite3.IntegrityError if another row has the dedup string.
    """
    schemas.prefix(connection, schema)
    table = f'"{schema}_outbox"'
    wanted = None if ids is None else set(ids)
    connection.execute("begin immediate")
    try:
        found = [
            (id, state)
            for id, state in connection.execute(
                f"select id, state from {table} where state is not null order by {ORDER}"
            ).fetchall()
            if (state == "dead" if wanted is None else id in wanted)
        ]
        for id, state in found:
            if state == "dead":
                # By another number it is another message for the engine, which may still know the
                # dead one. It is drawn from the ids, whose order is that of all rows.
                (number,) = connection.execute(
                    "update sqlite_sequence set seq = seq + 1 where name = ? returning seq",
                    (f"{schema}_outbox",),
                ).fetchone()
                connection.execute(f"update {table} set number = ? where id = ?", (number, id))
            connection.execute(
                f"update {table} set state = null, attempts = 0, error = null where id = ?", (id,)
            )
    except BaseException:
        connection.execute("rollback")
        raise
    connection.execute("commit")
    return sorted(id for id, _ in found)


def check(connection: sqlite3.Connection, schema: str) -> list[str]:
    """Return what is wrong with the file, in words. Raises WrongVersion."""
    schemas.prefix(connection, schema)
    found = []
    (mode,) = connection.execute("pragma journal_mode").fetchone()
    if mode != "wal":
        found.append(
            f"the journal mode is {mode}: readers hold up writers; set it with "
            "`pragma journal_mode = wal`"
        )
    last, used = connection.execute(
        "select coalesce((select seq from sqlite_sequence where name = ?), 0), "
        f'(select coalesce(max({ORDER}), 0) from "{schema}_outbox")',
        (f"{schema}_outbox",),
    ).fetchone()
    if used > last:
        found.append(f"sqlite_sequence is at {last}, and a row has the number {used}: update it")
    for (text,) in connection.execute("pragma quick_check(10)").fetchall():
        if text != "ok":
            found.append(text)
    return found


def _path(connection: Any) -> Path:
    return Path(connection.execute("pragma database_list").fetchone()[2])
