"""Events of a queue, as il1_events tells them: what happened to messages while somebody watched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from interlock.engine.nonsense import understood
from interlock.engine.parts import Parts

KINDS = (
    "put", "due", "lease", "ack", "release", "defer", "lease_expired", "retry", "dead", "hold",
    "readied", "skip", "cancel", "message_expired",
)  # fmt: skip
"""Kinds of events; a client ignores kinds that it does not know."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to a message."""

    number: int
    time: int
    """µs since 1970, by the queue's clock."""

    kind: str
    """One of ``KINDS``."""

    id: int
    attempt: int
    """The attempt that ended or is under way; of ``put``, ``due`` and ``readied`` the next one."""

    token: int | None
    """The token of the lease that begins or ends with it; None where there is none."""

    consumer: str
    """The consumer that leased it; told with ``lease`` alone."""

    error: str
    """The newest error, its first 1,024 bytes, where an attempt failed; else empty."""

    keys: tuple[bytes, ...]
    """The first exclusive keys, 16 at most."""

    shared: tuple[bytes, ...]
    """The same of shared keys."""


@dataclass(frozen=True, slots=True)
class Events:
    """The answer to whoever watches a queue."""

    last: int
    """The number of the last event that happened, told or not: where the next call goes on."""

    missed: int
    """0, or that some are gone, or happened while nobody watched."""

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
