"""Operations on an outbox in an SQLite file; see ``interlock.outbox.postgres.admin``."""

from __future__ import annotations

import itertools
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from interlock.outbox.explanation import Row
from interlock.outbox.postgres.admin import MOST_COUNTED, DeadRow, Status
from interlock.outbox.sqlite import schema as schemas
from interlock.outbox.sqlite.lock import holder
from interlock.outbox.sqlite.position import NOW
from interlock.outbox.sqlite.schema import ORDER

__all__ = [
    "active_relay", "check", "count_ahead", "dead", "find", "fullest", "missing", "prefix",
    "requeue", "status",
]  # fmt: skip

prefix = schemas.prefix


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
    relay = active_relay(connection, schema)
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
    return [
        DeadRow(id, queue, task, [key.decode(errors="backslashreplace")
                                  for key in _keys(keys) + _keys(shared)], *rest)
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


# -- For the explanation of a row -----------------------------------------------------------------


def find(connection: sqlite3.Connection, schema: str, id: int) -> Row | None:
    """Return a row, if it is there. Raises WrongVersion."""
    schemas.prefix(connection, schema)
    found = connection.execute(
        f"select {ORDER}, queue, task, keys, shared, attempts, coalesce(error, ''), state, "
        f'm.position, m.waits from "{schema}_outbox" o, "{schema}_outbox_meta" m where id = ?',
        (id,),
    ).fetchone()
    if found is None:
        return None
    number, queue, task, keys, shared, *rest = found
    return Row(number, queue, task, [*_keys(keys), *_keys(shared)], *rest)


def missing(connection: sqlite3.Connection, schema: str, id: int) -> str:
    """Return why a row is not there, in words."""
    last, state = connection.execute(
        "select (select coalesce(max(seq), 0) from sqlite_sequence where name = ?), "
        f'(select state from "{schema}_outbox_results" where id = ?)',
        (f"{schema}_outbox", id),
    ).fetchone()
    if state is not None:
        return f"it was settled as {state}; its result is kept"
    if id > last:
        return "no such row: the transaction that has this id is open, or the id was not given yet"
    return "no such row: it was handled"


def active_relay(connection: sqlite3.Connection, schema: str) -> str | None:
    """Return the host and the process id of the relay that has the lock; None if none has it."""
    return holder(_path(connection))


def count_ahead(connection: sqlite3.Connection, schema: str, row: Row) -> int:
    """Return the number of rows that the relay reads before this one."""
    found: int = connection.execute(
        f'select count(*) from (select 1 from "{schema}_outbox" where {ORDER} > ? and {ORDER} < ? '
        f"and state is not 'dead' limit {MOST_COUNTED})",
        (row.position, row.number),
    ).fetchone()[0]
    return found


def fullest(connection: sqlite3.Connection, schema: str, position: int) -> tuple[bytes, int] | None:
    """Return the key that has most rows in the window, and their number."""
    rows = connection.execute(
        f"select keys, shared from \"{schema}_outbox\" where {ORDER} <= ? and state is not 'dead' "
        f"limit {MOST_COUNTED}",
        (position,),
    )
    counts = Counter(
        itertools.chain.from_iterable((*_keys(keys), *_keys(shared)) for keys, shared in rows)
    )
    return max(counts.items(), key=lambda one: (one[1], one[0]), default=None)


def _keys(packed: bytes) -> list[bytes]:
    """Return the keys of a row; none of one that no send wrote."""
    try:
        return msgspec.msgpack.decode(packed, type=list[bytes])
    except (msgspec.MsgspecError, TypeError):
        return []


def _path(connection: Any) -> Path:
    return Path(connection.execute("pragma database_list").fetchone()[2])
