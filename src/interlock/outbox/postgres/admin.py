"""Operations on an outbox: counts, dead rows, their return, and checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from interlock.outbox.explanation import Row
from interlock.outbox.postgres import schema as schemas
from interlock.outbox.postgres.database import LOCK
from interlock.outbox.postgres.driver import quoted
from interlock.outbox.postgres.position import plan_in_order

__all__ = [
    "DeadRow", "Status", "active_relay", "check", "count_ahead", "dead", "find", "fullest",
    "missing", "prefix", "requeue", "status",
]  # fmt: skip

prefix = schemas.prefix_on_timeline


@dataclass(frozen=True, slots=True)
class Status:
    """Counts of an outbox, and what its relay reported last."""

    version: int
    waiting: int
    """Rows that the relay has still to read. Beyond 100,000 it is a lower bound."""
    relayed: int
    """Rows that the relay has read and that wait for their handlers, including held ones. Beyond
    100,000 it is a lower bound."""
    oldest: float | None
    """Seconds since the oldest row was sent that is neither dead nor held; None if there is none.
    Among 100,000 rows only those whose number is lowest are compared."""
    held: int
    dead: int
    results: int
    """Results that are kept. Beyond 100,000 it is a lower bound."""
    relay: str | None
    """Host and process id of the active relay; None: no relay works."""
    reported: float | None
    """Seconds since a relay reported; None: none ever has."""
    gaps: int
    """Gaps in the order that open transactions may still fill."""
    waits: str | None
    """Reason why the active relay puts nothing; None: it puts what there is."""


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
    live = "state is distinct from 'dead'"
    joined = f"{table}_commits join {table} using (batch)"
    rows = (
        f"select 1 from {joined} where number {{}} m.position and {live} order by number "
        f"limit {MOST_COUNTED + 1}"
    )
    first = f"select created, state from {joined} order by number limit {MOST_COUNTED}"
    with connection.transaction():
        plan_in_order(connection, "local")
        counts = connection.execute(
            f"select (select count(*) from ({rows.format('>')}) x), "
            f"(select last_value from {table}_numbers) - m.position, "
            f"(select count(*) from ({rows.format('<=')}) x), "
            "(select extract(epoch from clock_timestamp() - min(created))::float8 "
            f"from ({first}) x where state is null), "
            f"(select count(*) from {table} where state = 'held'), "
            f"(select count(*) from {table} where state = 'dead'), "
            f"(select count(*) from (select 1 from {table}_results limit {MOST_COUNTED + 1}) x), "
            "gaps, waits, extract(epoch from clock_timestamp() - reported)::float8 "
            f"from {table}_meta m"
        ).fetchone()
    waiting, behind, relayed, oldest, held, gone, kept, gaps, waits, reported = counts
    relay = active_relay(connection, schema)
    return Status(
        schemas.VERSION,
        waiting if waiting <= MOST_COUNTED else max(behind, waiting),
        relayed,
        oldest,
        held,
        gone,
        kept,
        relay,
        reported,
        gaps if relay else 0,
        waits if relay else None,
    )


def active_relay(connection: Any, schema: str) -> str | None:
    """Return the host and the process id of the relay that has the lock; None if none has it."""
    first, second = (part.strip() for part in LOCK.format("%s").split(", "))
    found = connection.execute(
        "select case when m.session = l.pid then m.relay else 'server process ' || l.pid end "
        f"from pg_locks l, {quoted(schema)}.outbox_meta m "
        "where l.locktype = 'advisory' and l.granted "
        "and l.database = (select oid from pg_database where datname = current_database()) "
        f"and l.classid::bigint = {first}::bigint & 4294967295 "
        f"and l.objid::bigint = {second}::bigint & 4294967295",
        (schema,),
    ).fetchone()
    return found[0] if found else None


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
    # Each commit becomes a new one with its dead rows, so that they keep their order.
    found = connection.execute(
        f"with r as (select id, batch, state from {name}.outbox where {which} for update), "
        f"n as (select batch, nextval('{name}.outbox_numbers') number, "
        f"nextval('{name}.outbox_batches') fresh from (select batch from {name}.outbox_commits "
        "where batch in (select batch from r where state = 'dead') order by number) o), "
        f"i as (insert into {name}.outbox_commits (number, batch) select number, fresh from n) "
        f"update {name}.outbox o set batch = coalesce(n.fresh, o.batch), state = null, "
        "attempts = 0, error = null, delay = case when n.fresh is null then delay end "
        "from r left join n on n.batch = r.batch and r.state = 'dead' where o.id = r.id "
        "returning o.id",
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
    if enabled.get("zz_outbox_arrive") not in ("O", "A"):
        found.append(
            "the trigger zz_outbox_arrive is missing or disabled: no row gets a number, so no call "
            "is ever handled"
        )
    for (table,) in connection.execute(
        "select oid::regclass::text from pg_class where relrowsecurity "
        "and oid in (%s::regclass, %s::regclass, %s::regclass)",
        (f"{name}.outbox", f"{name}.outbox_commits", f"{name}.outbox_results"),
    ).fetchall():
        found.append(
            f"row-level security is on for {table}: a row that a policy hides is never handled"
        )
    ((lost,),) = connection.execute(
        f"select count(*) from {name}.outbox_rows where number is null"
    ).fetchall()
    if lost:
        found.append(f"{lost} rows have no number and are never handled: the trigger did not run")
    ((last, used),) = connection.execute(
        f"select (select last_value from {name}.outbox_numbers), "
        f"(select coalesce(max(number), 0) from {name}.outbox_commits)"
    ).fetchall()
    if used > last:
        found.append(
            f"the sequence outbox_numbers is at {last}, and a commit has the number {used}: "
            "set it with setval()"
        )
    return found


# -- For the explanation of a row -----------------------------------------------------------------


def find(connection: Any, schema: str, id: int) -> Row | None:
    """Return a row, if it is there. Raises WrongVersion."""
    schemas.prefix(connection, schema)
    table = f"{quoted(schema)}.outbox"
    found = connection.execute(
        "select o.number, o.queue, o.task, o.keys || o.shared, o.attempts, coalesce(o.error, ''), "
        "o.state, m.position, m.waits "
        f"from {table}_rows o, {table}_meta m where o.id = %s",
        (id,),
    ).fetchone()
    if found is None:
        return None
    number, queue, task, keys, *rest = found
    return Row(number, queue, task, [bytes(key) for key in keys], *rest)


def missing(connection: Any, schema: str, id: int) -> str:
    """Return why a row is not there, in words."""
    table = f"{quoted(schema)}.outbox"
    last, open_now, state = connection.execute(
        "select (select coalesce(pg_sequence_last_value(pg_get_serial_sequence(%s, 'id')), 0)), "
        "(select count(distinct virtualtransaction) from pg_locks "
        "where locktype = 'transactionid' and mode = 'ExclusiveLock' and granted), "
        f"(select state from {table}_results where id = %s)",
        (table, id),
    ).fetchone()
    if state is not None:
        return f"it was settled as {state}; its result is kept"
    if id > last:
        return "no such row: this id was not given yet"
    if open_now:
        return (
            f"no such row: it was handled or rolled back, or is in one of {open_now} open "
            f"{'transaction' if open_now == 1 else 'transactions'} of the server"
        )
    return "no such row: it was handled, or its transaction was rolled back"


def count_ahead(connection: Any, schema: str, row: Row) -> int:
    """Return the number of rows that the relay reads before this one."""
    found: int = connection.execute(
        f"select count(*) from (select 1 from {quoted(schema)}.outbox_rows "
        f"where number > %s and number < %s and state is distinct from 'dead' limit {MOST_COUNTED})"
        " x",
        (row.position, row.number),
    ).fetchone()[0]
    return found


def fullest(connection: Any, schema: str, position: int) -> tuple[bytes, int] | None:
    """Return the key that has most rows in the window, and their number."""
    found = connection.execute(
        "select key, count(*) from (select unnest(keys || shared) as key "
        f"from {quoted(schema)}.outbox_rows where number <= %s and state is distinct from 'dead' "
        f"limit {MOST_COUNTED}) x group by key order by 2 desc, 1 limit 1",
        (position,),
    ).fetchone()
    return None if found is None else (bytes(found[0]), found[1])


MOST_COUNTED = 100_000
"""Maximum rows that are counted one by one."""
