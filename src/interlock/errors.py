"""The errors of Interlock, one tree.

::

    InterlockError
    ├── Full            also queue.Full
    ├── Empty           also queue.Empty
    ├── ShutDown        also queue.ShutDown, where Python has it (3.13)
    ├── LeaseLost
    ├── WouldDeadlock
    ├── NotDrained      also TimeoutError
    ├── RetryAfter      raised by handlers
    ├── Reject          raised by handlers
    ├── PayloadError       also ValueError
    ├── OptionsMismatch    also ValueError
    ├── EngineUnavailable  also ConnectionError
    ├── JobFailed
    ├── ResultGone         also LookupError
    ├── WorkerBroken
    ├── RowBusy            also TimeoutError
    ├── TableFull
    ├── TableKept
    ├── SchemaMismatch     also ValueError
    └── NotATable          also ValueError

The asyncio face raises subclasses of them that are also ``asyncio.QueueFull``,
``asyncio.QueueEmpty`` and ``asyncio.QueueShutDown`` (3.13). Bad arguments raise ``TypeError`` and
``ValueError``, as everywhere in Python.
"""

from __future__ import annotations

import datetime as _dt
import queue as _queue
import sys

__all__ = [
    "Empty",
    "EngineUnavailable",
    "Full",
    "InterlockError",
    "JobFailed",
    "LeaseLost",
    "NotATable",
    "NotDrained",
    "OptionsMismatch",
    "PayloadError",
    "Reject",
    "ResultGone",
    "RetryAfter",
    "RowBusy",
    "SchemaMismatch",
    "ShutDown",
    "TableFull",
    "TableKept",
    "WorkerBroken",
    "WouldDeadlock",
]


class InterlockError(Exception):
    """The root of all errors of Interlock."""


class Full(InterlockError, _queue.Full):
    """The queue has no room for the put (leased messages count)."""


class Empty(InterlockError, _queue.Empty):
    """No message is ready."""


if sys.version_info >= (3, 13):

    class ShutDown(InterlockError, _queue.ShutDown):
        """The queue is shut down: a put raises it immediately, a get when no unsettled message is
        left."""

else:

    class ShutDown(InterlockError):
        """The queue is shut down: a put raises it immediately, a get when no unsettled message is
        left."""


class LeaseLost(InterlockError):
    """The lease was settled, expired or was revoked; nothing was changed."""


class WouldDeadlock(InterlockError):
    """The call would wait for a message that waits for the caller's own message."""


class NotDrained(InterlockError, TimeoutError):
    """The timeout of ``join`` passed before every message was settled.

    Attributes, each cut at 1,000:
        held: ids of messages that an operator must retry, skip or bury.
        paused: paused keys, as bytes; ``b""`` is the queue itself.
        delayed: ids of messages that are not due yet.
        leased: ids of messages being handled.
        parked: ids of messages that have no place until a paused or stuck key opens.
    """

    def __init__(
        self,
        held: tuple[int, ...] = (),
        paused: tuple[bytes, ...] = (),
        delayed: tuple[int, ...] = (),
        leased: tuple[int, ...] = (),
        parked: tuple[int, ...] = (),
    ) -> None:
        self.held = held
        self.paused = paused
        self.delayed = delayed
        self.leased = leased
        self.parked = parked
        named = {"held": held, "parked": parked, "delayed": delayed, "leased": leased}
        parts = [f"{word}: messages {_some(ids)}" for word, ids in named.items() if ids]
        if paused:
            keys = [key.decode(errors="backslashreplace") or "the queue" for key in paused]
            parts.append(f"paused: {', '.join(keys[:5])}{', ...' if len(keys) > 5 else ''}")
        super().__init__("not drained in time" + (f" ({'; '.join(parts)})" if parts else ""))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.held, self.paused, self.delayed, self.leased, self.parked)


class RetryAfter(InterlockError):
    """Raised by a handler: try this message again, in its place, after ``seconds``.

    The attempt counts as failed, so the retry policy's ``attempts`` still applies. With
    ``attempt=False`` it does not count: the message is redelivered at the same attempt, as often as
    its handler asks (a 429 is not a failure).

    ``limit`` is a limit name: for ``seconds``, no message that carries it is leased. A service that
    answers 429 asks all callers to wait, not only this one.
    """

    def __init__(
        self,
        seconds: float | _dt.timedelta,
        *,
        attempt: bool = True,
        limit: str | None = None,
    ) -> None:
        if isinstance(seconds, _dt.timedelta):
            seconds = seconds.total_seconds()
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise TypeError(
                f"RetryAfter(): seconds is {type(seconds).__name__}; allowed: seconds as a "
                f"number, or a timedelta"
            )
        if not seconds >= 0:
            raise ValueError(f"RetryAfter(): seconds is {seconds}; allowed: 0 or more")
        if limit is not None and not isinstance(limit, str):
            raise TypeError(f"RetryAfter(): limit is {type(limit).__name__}; allowed: str or None")
        if limit is not None and ("\x1f" in limit or not 0 < _bytes_of(limit) <= 1_024):
            raise ValueError(
                f"RetryAfter(): limit is {limit!r}; allowed: 1 to 1,024 bytes of UTF-8, without "
                "the character U+001F"
            )
        self.seconds = seconds
        self.limit = limit
        """Limit name that is closed to all messages, or None."""
        self.attempt = bool(attempt)
        """True if this attempt counts as failed."""
        super().__init__(f"retry after {seconds} s")

    def __reduce__(self) -> tuple[object, ...]:
        if self.attempt and self.limit is None:
            return type(self), (self.seconds,)
        return _retry_after, (type(self), self.seconds, self.attempt, self.limit)


def _bytes_of(text: str) -> int:
    """Return the length of a text in UTF-8; 0 if it holds a lone surrogate."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return 0


def _retry_after(
    kind: type[RetryAfter], seconds: float, attempt: bool, limit: str | None
) -> RetryAfter:
    return kind(seconds, attempt=attempt, limit=limit)


class Reject(InterlockError):
    """Raised by a handler: this message cannot be handled; make it a dead letter immediately."""

    def __init__(self, reason: str) -> None:
        if not isinstance(reason, str):
            raise TypeError(f"Reject(): reason is {type(reason).__name__}; allowed: str")
        self.reason = reason
        super().__init__(reason)


class PayloadError(InterlockError, ValueError):
    """A payload cannot be encoded, or data from an engine cannot be decoded to its type.

    Attributes:
        id: the message; 0 if it was not put.
    """

    def __init__(self, text: str, id: int = 0) -> None:
        self.id = id
        super().__init__(text)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.id)


class OptionsMismatch(InterlockError, ValueError):
    """The queue was declared with other options, here or by another client; it is unchanged."""


class EngineUnavailable(InterlockError, ConnectionError):
    """The engine was unreachable, or did not answer in time.

    The text names its address and the failed operation.

    Attributes:
        unknown: True if the call may or may not have been executed.
    """

    def __init__(self, text: str, unknown: bool = False) -> None:
        self.unknown = unknown
        super().__init__(text)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.unknown)


class JobFailed(InterlockError):
    """The message whose result was awaited became a dead letter, was cancelled or was skipped.

    Attributes:
        id: the message.
        error: the last failure of its handler, one line, or ``cancelled`` or ``skipped``.
        reason: reason for the missing result:

            ``"exhausted"``: its handler failed at each of its attempts;
            ``"rejected"``: given up before its attempts were used up: by ``Reject``, for
            arguments that cannot be decoded, for an exception that its policy does not retry, or
            by an operator's ``bury``;
            ``"expired"``: its time to live passed before a handler began, and it was dropped;
            ``"revoked"``: its lease was revoked with ``then="dead"``, or at its last attempt;
            ``"cancelled"``, ``"skipped"``: by a call of that name.
        traceback: the part of the handler's traceback that was kept; empty if none.
    """

    def __init__(self, id: int, error: str, reason: str = "exhausted", traceback: str = "") -> None:
        self.id = id
        self.error = error
        self.reason = reason
        self.traceback = traceback
        super().__init__(f"message {id} failed: {error}")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.id, self.error, self.reason, self.traceback)


class WorkerBroken(InterlockError):
    """A worker can no longer handle messages, as when its pool's processes do not start.

    The text gives the reason, and ``__cause__`` is the error.
    """


class ResultGone(InterlockError, LookupError):
    """No result is kept: it has expired, none was requested, or the message does not exist."""


def _some(ids: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, ids[:5]))
    return f"{shown}, ... ({len(ids)} in all)" if len(ids) > 5 else shown


class RowBusy(InterlockError, TimeoutError):
    """A live process holds a row of a table and does not release it; nothing was changed."""


class TableFull(InterlockError):
    """The table has no slot for a new row, and may not overwrite one; nothing was changed."""


class TableKept(InterlockError):
    """A node of a cluster keeps the table, and only that node writes to it; nothing was changed."""


class SchemaMismatch(InterlockError, ValueError):
    """The existing table has other columns; its memory was not touched."""


class NotATable(InterlockError, ValueError):
    """Not a table, or one that this process cannot use; its memory was not touched."""
