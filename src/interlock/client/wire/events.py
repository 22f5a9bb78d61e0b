"""Events of a queue, as il1_events returns them: the history of messages while somebody watched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from interlock.client.wire.bad_reply import understood
from interlock.client.wire.flat_reply import Parts

KINDS = (
    "put", "replaced", "due", "lease", "ack", "release", "defer", "lease_expired", "retry", "dead",
    "hold", "readied", "skip", "cancel", "message_expired",
)  # fmt: skip
"""Kinds of events; a client ignores kinds that it does not know."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a message."""

    number: int
    time: int
    """µs since 1970, by the queue's clock."""

    kind: str
    """One of ``KINDS``."""

    id: int
    attempt: int
    """The attempt that ended or is under way; for ``put``, ``replaced``, ``due`` and
    ``readied`` the next one."""

    token: int | None
    """The token of the lease that begins or ends with it; None if there is no lease."""

    consumer: str
    """The consumer that leased it; present only with ``lease``."""

    error: str
    """The newest error, its first 1,024 bytes, if an attempt failed; else empty."""

    keys: tuple[bytes, ...]
    """The first exclusive keys, 16 at most."""

    shared: tuple[bytes, ...]
    """The first shared keys, likewise."""


@dataclass(frozen=True, slots=True)
class Events:
    """The answer to a watcher of a queue."""

    last: int
    """The number of the last event, whether returned or not: the next call continues there."""

    missed: int
    """0 if no event is missing; else some were dropped, or happened while nobody watched."""

    events: list[Event]


@understood
def events(reply: Sequence[bytes]) -> Events:
    """Parse the reply of il1_events."""
    parts = Parts(reply)
    last, missed = parts.number(), parts.number()
    return Events(last, missed, [_event(parts) for _ in parts.rest()])


def _event(parts: Parts) -> Event:
    number, time, kind, id = parts.number(), parts.number(), parts.text(), parts.number()
    attempt, token = parts.number(), parts.maybe()
    consumer, error = parts.text(), parts.text()
    exclusive, shared = parts.number(), parts.number()
    return Event(
        number, time, kind, id, attempt, token, consumer, error,
        parts.some(exclusive), parts.some(shared),
    )  # fmt: skip
