"""The explanation of a row, from its transaction to its message in the engine."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from interlock.explanation import Explanation, key_text
from interlock.outbox.rows import dedup

if TYPE_CHECKING:
    from interlock.client.admin.operator import Operator
    from interlock.client.wire.records import Stored

__all__ = ["Row", "RowExplanation", "explain"]

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
    """Waiting rows that the relay reads before it; counted up to 100,000."""
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


class Row(NamedTuple):
    """A row, and what the relay reports."""

    number: int | None
    queue: str
    task: str
    keys: list[bytes]
    """Shared ones too."""
    attempts: int
    error: str
    state: str | None
    position: int
    waits: str | None


def explain(
    admin: Any, connection: Any, schema: str, id: int, operator: Operator | None = None
) -> RowExplanation:
    """Return what a row waits for.

    Args:
        admin: the module of the database's kind, ``postgres.admin`` or ``sqlite.admin``.
        operator: for the engine; None: only what the database knows.

    Raises WrongVersion, what the database's library raises, and InterlockError of the engine.
    """
    row: Row | None = admin.find(connection, schema, id)
    if row is None:
        return RowExplanation(id, "missing", admin.missing(connection, schema, id))
    number, queue, state = row.number, row.queue, row.state
    known: dict[str, Any] = {
        "queue": queue, "task": row.task, "number": number, "attempts": row.attempts,
        "error": row.error,
    }  # fmt: skip
    if state == "dead":
        reason = f"dead; `interlock outbox requeue {id}` returns it to the end of the order"
        return RowExplanation(id, "dead", reason, **known)
    if number is None:
        reason = "it has no number, because the trigger zz_outbox_arrive did not run; see `check`"
        return RowExplanation(id, "waiting", reason, **known)
    if number > row.position:
        ahead = admin.count_ahead(connection, schema, row)
        reason = f"number {number} waits for the relay behind {_rows(ahead)}; " + _relay(
            admin, connection, schema, row
        )
        return RowExplanation(id, "waiting", reason, ahead=ahead, **known)
    held = state == "held"
    reason = f"number {number} is in the engine" + (
        f", held; `interlock outbox requeue {id}`, then `retry` its message" if held else ""
    )
    if operator is None:
        found = None
        reason += "; name the engine to see what it waits for there"
    else:
        name = dedup(admin.prefix(connection, schema), number, id)
        found = _message(operator, queue, row.keys, name.encode())
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


def _relay(admin: Any, connection: Any, schema: str, row: Row) -> str:
    relay = admin.active_relay(connection, schema)
    if relay is None:
        return "no relay works: start a worker of the app"
    if row.waits is None:
        return f"the relay ({relay}) puts the rows"
    if row.waits.startswith(FULL):
        return f"{row.waits}: {_fullest(admin.fullest(connection, schema, row.position))}"
    return f"the relay ({relay}) waits: {row.waits}"


def _fullest(found: tuple[bytes, int] | None) -> str:
    """Return which key has most rows in the window."""
    if found is None:
        return "its rows have no keys; too few workers handle them"
    return f"key {key_text(found[0])} has {_rows(found[1])} in it"


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
