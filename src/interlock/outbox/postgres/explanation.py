"""The explanation of a row, from its transaction to its message in the engine."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from interlock.explanation import Explanation, key_text
from interlock.outbox.postgres import admin
from interlock.outbox.postgres import schema as schemas
from interlock.outbox.postgres.driver import quoted
from interlock.outbox.rows import dedup

if TYPE_CHECKING:
    from interlock.client.admin.operator import Operator
    from interlock.client.wire.records import Stored

__all__ = ["RowExplanation", "explain"]

MOST_SEARCHED = 100_000
"""Maximum messages of a key that are compared, to find that of a row."""
FULL = "the window is full"
"""Beginning of the reason that a relay reports."""


@dataclass(frozen=True, slots=True)
class RowExplanation:
    """The cause for which a row waits. ``str()`` says it in words."""

    id: int
    state: Literal["missing", "waiting", "relayed", "held", "dead"]
    reason: str
    """One or more sentences."""
    queue: str = ""
    task: str = ""
    number: int | None = None
    """The place in the order of commits."""
    ahead: int = 0
    """Waiting rows that the relay reads before it; counted up to a million."""
    attempts: int = 0
    error: str = ""
    message: int | None = None
    """Id of its message in the engine; None: it is not there, or the engine was not given."""
    waits: Explanation | None = None
    """The explanation of its message."""

    def __str__(self) -> str:
        lines = [f"row {self.id}: {self.reason}"]
        if self.error:
            lines += [f"   attempt {self.attempts} failed: {self.error.partition(chr(10))[0]}"]
        if self.waits is not None:
            lines += [f"   {line}" for line in str(self.waits).splitlines()]
        return "\n".join(lines)


def explain(
    connection: Any, schema: str, id: int, operator: Operator | None = None
) -> RowExplanation:
    """Return what a row waits for.

    Args:
        operator: for the engine; None: only what the database knows.

    Raises WrongVersion, what psycopg raises, and InterlockError of the engine.
    """
    schemas.prefix(connection, schema)
    table = f"{quoted(schema)}.outbox"
    row = connection.execute(
        "select o.number, o.queue, o.task, o.keys || o.shared, o.attempts, coalesce(o.error, ''), "
        "o.state, m.position, m.waits "
        f"from {table}_rows o, {table}_meta m where o.id = %s",
        (id,),
    ).fetchone()
    if row is None:
        return RowExplanation(id, "missing", _missing(connection, table, id))
    number, queue, task, keys, attempts, error, state, position, waits = row
    keys = [bytes(key) for key in keys]
    known = {
        "queue": queue, "task": task, "number": number, "attempts": attempts, "error": error,
    }  # fmt: skip
    if state == "dead":
        reason = f"dead; `interlock postgres requeue {id}` returns it to the end of the order"
        return RowExplanation(id, "dead", reason, **known)
    if number is None:
        reason = "it has no number, because the trigger zz_outbox_arrive did not run; see `check`"
        return RowExplanation(id, "waiting", reason, **known)
    if number > position:
        (ahead,) = connection.execute(
            f"select count(*) from (select 1 from {table}_rows where number > %s and number < %s "
            f"and state is distinct from 'dead' limit {admin.MOST_COUNTED}) x",
            (position, number),
        ).fetchone()
        reason = f"number {number} waits for the relay behind {_rows(ahead)}; " + _relay(
            connection, schema, position, waits
        )
        return RowExplanation(id, "waiting", reason, ahead=ahead, **known)
    held = state == "held"
    reason = f"number {number} is in the engine" + (
        f", held; `interlock postgres requeue {id}`, then `retry` its message" if held else ""
    )
    if operator is None:
        found = None
        reason += "; name the engine to see what it waits for there"
    else:
        prefix = schemas.prefix_on_timeline(connection, schema)
        found = _message(operator, queue, keys, dedup(prefix, number, id).encode())
        reason += (
            f" as message {found.id} of queue {queue!r}, {found.state}" if found is not None
            else f"; queue {queue!r} does not have it: it is handled now, it comes later in the "
            "queue than was searched, or the engine lost it and the relay will put it again"
        )  # fmt: skip
    return RowExplanation(
        id,
        "held" if held else "relayed",
        reason,
        message=None if found is None else found.id,
        waits=None if found is None or operator is None else operator.explain(queue, id=found.id),
        **known,
    )


def _missing(connection: Any, table: str, id: int) -> str:
    (last, open_now) = connection.execute(
        "select (select coalesce(pg_sequence_last_value(pg_get_serial_sequence(%s, 'id')), 0)), "
        "(select count(distinct virtualtransaction) from pg_locks "
        "where locktype = 'transactionid' and mode = 'ExclusiveLock' and granted)",
        (table,),
    ).fetchone()
    if id > last:
        return "no such row: this id was not given yet"
    if open_now:
        return (
            f"no such row: it was handled or rolled back, or is in one of {open_now} open "
            f"{'transaction' if open_now == 1 else 'transactions'} of the server"
        )
    return "no such row: it was handled, or its transaction was rolled back"


def _relay(connection: Any, schema: str, position: int, waits: str | None) -> str:
    relay = admin.active_relay(connection, schema)
    if relay is None:
        return "no relay works: start a worker of the app"
    if waits is None:
        return f"the relay ({relay}) puts the rows"
    if waits.startswith(FULL):
        return f"{waits}: {_fullest(connection, schema, position)}"
    return f"the relay ({relay}) waits: {waits}"


def _fullest(connection: Any, schema: str, position: int) -> str:
    """Return which key has most rows in the window."""
    found = connection.execute(
        "select key, count(*) from (select unnest(keys || shared) as key "
        f"from {quoted(schema)}.outbox_rows where number <= %s and state is distinct from 'dead' "
        f"limit {admin.MOST_COUNTED}) x group by key order by 2 desc, 1 limit 1",
        (position,),
    ).fetchone()
    if found is None:
        return "its rows have no keys; too few workers handle them"
    return f"key {key_text(bytes(found[0]))} has {_rows(found[1])} in it"


def _message(operator: Operator, queue: str, keys: list[bytes], dedup: bytes) -> Stored | None:
    """Return the message with a dedup string."""
    found: Iterator[Stored]
    if queue not in operator.queues():
        return None
    if keys:
        found = itertools.chain(operator.lane(queue, keys[0]), operator.delayed(queue, keys[0]))
    else:
        found = operator.messages(queue)
    for one in itertools.islice(found, MOST_SEARCHED):
        if one.options.get("DEDUP") == dedup:
            return one
    return None


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"
