"""A row of an outbox: written from a checked call of a task, and read into a put."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from interlock.app import envelope
from interlock.app.row import ROW
from interlock.client.wire import messages as wire
from interlock.retry import Retry
from interlock.runtime.concurrency import group_text, names_text
from interlock.runtime.limits import MAX_PAYLOAD

__all__ = ["COLUMNS", "LONGEST_CALL", "SENT", "Reference", "StoredRow", "dedup", "options_text"]

SENT = "(extract(epoch from created) * 1000000)::bigint"
"""The time of the send that a ``Reference`` has."""
COLUMNS = (
    "c.number, o.id, queue, payload, keys, shared, "
    "least(delay, delay - extract(epoch from clock_timestamp() - c.at)::float8), "
    "extract(epoch from clock_timestamp() - created)::float8, options, attempts, state, "
    f"{SENT}"
)
"""The columns of a ``StoredRow``, in order, of the tables outbox o and outbox_commits c."""

LONGEST_CALL = MAX_PAYLOAD - 256
"""Bytes of an encoded call: the relay adds the header that refers to the row."""


class Reference(NamedTuple):
    """The header of a message that refers to its row."""

    id: int
    attempts: int
    """Failed attempts before the row was put; the engine that counted them may have lost them."""
    age: float
    """Seconds between the send and the put."""
    held: bool
    """The row was held when it was put."""
    sent: int
    """Microseconds from 1970 to the send. A database that was restored may use the id again."""
    timeline: str
    """Timeline of the server that the relay read; empty: unknown."""

    @property
    def text(self) -> str:
        """The value of the header."""
        held = int(self.held)
        return f"{self.id} {self.attempts} {self.age:.6f} {held} {self.sent} {self.timeline}"

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Return it from the header's value. Raises ValueError."""
        id, attempts, age, held, sent, timeline = text.split(" ")
        return cls(int(id), int(attempts), float(age), held == "1", int(sent), timeline)


class StoredRow(NamedTuple):
    """A row as the relay reads it."""

    number: int
    """The number of its commit."""
    id: int
    queue: str
    payload: bytes
    keys: Sequence[bytes] | bytes
    """Bytes, also of the next: packed, as SQLite keeps them."""
    shared: Sequence[bytes] | bytes
    delay: float | None
    """Seconds left."""
    age: float
    """Seconds."""
    options: str
    attempts: int
    state: str | None
    sent: int
    """See ``Reference``."""

    def message(self, prefix: str) -> wire.Message:
        """Return the put of this row.

        Args:
            prefix: of the dedup strings, and a timeline behind a dot.

        Raises PayloadError if the payload is not a call of a task, UnknownVersion if a newer sender
        wrote it, and other errors if no send wrote the row.
        """
        sent = envelope.read(bytes(self.payload))
        held = self.state == "held"
        timeline = prefix.partition(".")[2]
        row = Reference(self.id, self.attempts, max(self.age, 0.0), held, self.sent, timeline)
        sent.headers = {**sent.headers, ROW: row.text}
        options = json.loads(self.options)
        retry = options.pop("retry", None)
        # An earlier release wrote it; the database keeps the result.
        options.pop("result", None)
        limit = options.pop("limit", "").encode()
        return wire.Message(
            _encoder.encode(sent),
            _keys(self.keys),
            _keys(self.shared),
            wire.put_options(
                delay=max(self.delay or 0.0, 0.0),
                dedup=dedup(prefix, self.number, self.id),
                retry=None if retry is None else _retry(retry, self.attempts),
                limit=limit,
                **options,
            ),
        )


def dedup(prefix: str, number: int, id: int) -> str:
    """Return the dedup string of a row. By another number it is another message."""
    return f"{prefix}:{number}.{id}"


def options_text(options: dict[str, Any], retry: Retry) -> str:
    """Return the options of a put as a row keeps them; defaults are left out."""
    kept = {name: value for name in ("priority", "barrier", "quiet") if (value := options[name])}
    if options.get("limit"):
        kept["limit"] = names_text(options["limit"], "put()")
    if options.get("group"):
        kept["group"] = group_text(options["group"], "put()")
    if options.get("behind"):
        kept["behind"] = options["behind"]
    kept["retry"] = [
        retry.attempts, retry.first, retry.factor, retry.longest, retry.jitter, retry.then,
    ]  # fmt: skip
    return json.dumps(kept, separators=(",", ":"))


def _keys(kept: Sequence[bytes] | bytes) -> tuple[bytes, ...]:
    if isinstance(kept, bytes):
        return tuple(msgspec.msgpack.decode(kept, type=list[bytes]))
    return tuple(map(bytes, kept))


def _retry(kept: list[Any], used: int) -> Retry:
    attempts, first, factor, longest, jitter, then = kept
    left = None if attempts is None else max(attempts - used, 1)
    return Retry(left, first=first, factor=factor, longest=longest, jitter=jitter, then=then)


_encoder = msgspec.msgpack.Encoder()
