"""Operations on an outbox: counts, dead rows, their return, and checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from interlock.postgres import schema as schemas
from interlock.postgres.database import LOCK
from interlock.postgres.driver import quoted

__all__ = ["DeadRow", "Status", "check", "dead", "requeue", "status"]


@dataclass(frozen=True, slots=True)
class Status:
    """Counts of an outbox."""

    version: int
    rows: int
    """Rows that are neither dead nor held: waiting for the relay or in the engine."""
    oldest: float | None
    """Seconds since the oldest of them was sent; None if there are no such rows."""
    held: int
    dead: int
    relay: str | None
    """Address and process id of the session that has the relay's lock; None: no relay works."""


@dataclass(frozen=True, slots=True)
class DeadRow:
    """A row whose call is a dead letter."""

    id: int
    queue: str
    task: str
    keys: list[str]
    attempts: int
    error: str
    age: float
    """Seconds since it was sent."""


def status(connection: Any, schema: str) -> Status:
    """Return the counts. Raises WrongVersion."""
    schemas.prefix(connection, schema)
    table = f"{quoted(schema)}.outbox"
    rows, oldest, held, gone = connection.execute(
        "select count(*) filter (where state is null), "
        "extract(epoch from clock_timestamp() - min(created) filter (where state is null))::float8,"
        " count(*) filter (where state = 'held'), count(*) filter (where state = 'dead') "
        f"from {table}"
    ).fetchone()
    first, second = (part.strip() for part in LOCK.format("%s").split(", "))
    relay = connection.execute(
        "select coalesce(host(a.client_addr), 'local') || ' pid ' || l.pid from pg_locks l "
        "left join pg_stat_activity a on a.pid = l.pid where l.locktype = 'advisory' and l.granted "
        "and l.database = (select oid from pg_database where datname = current_database()) "
        f"and l.classid::bigint = {first}::bigint & 4294967295 "
        f"and l.objid::bigint = {second}::bigint & 4294967295",
        (schema,),
    ).fetchone()
    return Status(schemas.VERSION, rows, oldest, held, gone, relay[0] if relay else None)


def dead(connection: Any, schema: str, limit: int = 100) -> list[DeadRow]:
    """Return the dead rows, oldest first. Raises WrongVersion."""
    schemas.prefix(connection, schema)
    found = connection.execute(
        "select id, queue, task, keys || shared, attempts, coalesce(error, ''), "
        "extract(epoch from clock_timestamp() - created)::float8 "
        f"from {quoted(schema)}.outbox where state = 'dead' order by id limit %s",
        (limit,),
    ).fetchall()
    return [
        DeadRow(
            id, queue, task, [bytes(key).decode(errors="backslashreplace") for key in keys], *rest
        )
        for id, queue, task, keys, *rest in found
    ]


def requeue(connection: Any, schema: str, ids: list[int] | None) -> list[int]:
    """Return dead rows to the end of the order, and clear the state of held ones; their attempts
    begin anew. Return the ids of the rows.

    Args:
        ids: the rows. None: all dead ones.

    Raises WrongVersion; and UniqueViolation of psycopg if another row has the dedup string.
    """
    schemas.prefix(connection, schema)
    name = quoted(schema)
    which = "state = 'dead'" if ids is None else "state is not null and id = any(%(ids)s)"
    # By another number it is another message for the engine, which may still know the dead one.
    # Locked in the order of the numbers, so that they keep it.
    found = connection.execute(
        f"with r as (select id, state from {name}.outbox where {which} order by number for update),"
        f" n as (select id, case when state = 'dead' then nextval('{name}.outbox_numbers') end n "
        "from r) "
        f"update {name}.outbox o set number = coalesce(n.n, number), state = null, attempts = 0, "
        "error = null from n where o.id = n.id returning o.id",
        {"ids": ids},
    ).fetchall()
    connection.execute("select pg_notify(%s, '')", (f"{schema}.outbox",))
    return sorted(id for (id,) in found)


def check(connection: Any, schema: str) -> list[str]:
    """Return what is wrong with the tables, in words. Raises WrongVersion."""
    schemas.prefix(connection, schema)
    name, found = quoted(schema), []
    enabled = dict(
        connection.execute(
            "select tgname, tgenabled::text from pg_trigger "
            "where tgrelid = %s::regclass and not tgisinternal",
            (f"{name}.outbox",),
        ).fetchall()
    )
    for trigger, without in (
        ("zz_outbox_arrive", "no row gets a number, so no call is ever handled"),
        ("outbox_wake", "the relay is not notified and looks once a second"),
    ):
        if enabled.get(trigger) not in ("O", "A"):
            found.append(f"the trigger {trigger} is missing or disabled: {without}")
    ((lost,),) = connection.execute(
        f"select count(*) from {name}.outbox where number is null"
    ).fetchall()
    if lost:
        found.append(f"{lost} rows have no number and are never handled: the trigger did not run")
    ((last, used),) = connection.execute(
        f"select (select last_value from {name}.outbox_numbers), "
        f"(select coalesce(max(number), 0) from {name}.outbox)"
    ).fetchall()
    if used > last:
        found.append(
            f"the sequence outbox_numbers is at {last}, and a row has the number {used}: "
            "set it with setval()"
        )
    return found
