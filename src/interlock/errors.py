"""The errors of Interlock, one tree.

::

    InterlockError
    ├── Full            also queue.Full
    ├── Empty           also queue.Empty
    ├── ShutDown        also queue.ShutDown, where Python has it (3.13)
    ├── LeaseLost
    ├── WouldDeadlock
    └── NotDrained      also TimeoutError

Bad arguments are ``TypeError`` and ``ValueError``, as everywhere in Python.
"""

from __future__ import annotations

import queue as _queue

__all__ = [
    "Empty",
    "Full",
    "InterlockError",
    "LeaseLost",
    "NotDrained",
    "Reject",
    "RetryAfter",
    "ShutDown",
    "WouldDeadlock",
]


class InterlockError(Exception):
    """The root of all errors of Interlock."""


class Full(InterlockError, _queue.Full):
    """The queue has no room for the put (leased messages count)."""


class Empty(InterlockError, _queue.Empty):
    """No message is ready."""


# ``queue.ShutDown`` came with Python 3.13; before that there is nothing to be caught as.
_StandardShutDown: type[Exception] = getattr(_queue, "ShutDown", Exception)


class ShutDown(InterlockError, _StandardShutDown):  # type: ignore[valid-type, misc]
    """The queue is shut down: for a put at once, for a get when nothing unsettled is left."""


class LeaseLost(InterlockError):
    """The lease was settled, ran out or was revoked; nothing was changed."""


class WouldDeadlock(InterlockError):
    """The call would wait for what waits for the caller's own message."""


class NotDrained(InterlockError, TimeoutError):
    """The time given to ``join`` was up before everything was settled.

    Attributes, each cut at 1,000:
        held: ids of messages that an operator must retry, skip or bury.
        paused: paused keys, as bytes; ``b""`` stands for the queue itself.
        delayed: ids of messages that are not due yet.
        leased: ids of messages being handled.
    """

    def __init__(
        self,
        held: tuple[int, ...] = (),
        paused: tuple[bytes, ...] = (),
        delayed: tuple[int, ...] = (),
        leased: tuple[int, ...] = (),
    ) -> None:
        self.held = held
        self.paused = paused
        self.delayed = delayed
        self.leased = leased
        named = {"held": held, "delayed": delayed, "leased": leased}
        parts = [f"{word}: messages {_some(ids)}" for word, ids in named.items() if ids]
        if paused:
            keys = [key.decode(errors="backslashreplace") or "the queue" for key in paused]
            parts.append(f"paused: {', '.join(keys[:5])}{', ...' if len(keys) > 5 else ''}")
        super().__init__("not drained in time" + (f" ({'; '.join(parts)})" if parts else ""))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.held, self.paused, self.delayed, self.leased)


class RetryAfter(InterlockError):
    """Raised by a handler: try this message again, after so many seconds, in its place."""

    def __init__(self, seconds: float) -> None:
        if not seconds >= 0:
            raise ValueError(f"RetryAfter(): seconds is {seconds}; allowed: 0 or more")
        self.seconds = seconds
        super().__init__(f"retry after {seconds} s")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.seconds,)


class Reject(InterlockError):
    """Raised by a handler: this message cannot be handled; make it a dead letter at once."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def _some(ids: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, ids[:5]))
    return f"{shown}, ... ({len(ids)} in all)" if len(ids) > 5 else shown
