"""Runs one handler, and says what came of it: for all pools, and for batches."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Literal

from interlock import consumer
from interlock.engine import wire
from interlock.errors import PayloadError
from interlock.failure import text_of
from interlock.message import _current
from interlock.retry import Retry
from interlock.worker.tasks import Invocation, TaskLease, details

__all__ = ["Outcome", "ahandle", "handle", "judge"]

_log = logging.getLogger("interlock.worker")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The way in which a message is to be settled."""

    how: Literal["ack", "nack", "reject", "exhaust", "release"]
    result: bytes | None = None
    delay: float | None = None
    """Seconds; None: the backoff of the message's policy."""
    error: str = ""
    expected: str = "acked"
    """The engine's answer, if it judges as the worker did."""

    def settlement(self, token: int, id: int) -> wire.Settlement:
        """Return the settlement of a message, as the engine takes it."""
        if self.how == "ack":
            return wire.acking(token, id, self.result)
        if self.how == "nack":
            return wire.nacking(token, id, self.delay, self.error)
        if self.how == "exhaust":
            return wire.exhausting(token, id, self.error)
        if self.how == "reject":
            return wire.rejecting(token, id, self.error)
        return wire.releasing(token, id)


ACKED = Outcome("ack")
RELEASED = Outcome("release", expected="released")


def handle(invocation: Invocation, lease: TaskLease) -> Outcome:
    """Call the handler of a message in this thread. Never raises."""
    token = _current.set(lease)
    try:
        return acked(invocation.run())
    except BaseException as error:
        return judge(invocation.retry, lease, error)
    finally:
        _current.reset(token)


async def ahandle(invocation: Invocation, lease: TaskLease) -> Outcome:
    """Awaits the handler of a message. Never raises, not even when it is cancelled."""
    token = _current.set(lease)
    try:
        return acked(await invocation.arun())
    except asyncio.CancelledError as error:
        return judge(invocation.retry, lease, error, "was cancelled")
    except BaseException as error:
        return judge(invocation.retry, lease, error)
    finally:
        _current.reset(token)


def acked(result: bytes | None) -> Outcome:
    """Return the outcome of a handler that has returned."""
    return ACKED if result is None else Outcome("ack", result)


def judge(retry: Retry, lease: TaskLease, error: BaseException, what: str = "raised") -> Outcome:
    """Log that a handler failed, and return what becomes of its message. Never raises."""
    if issubclass(type(error), PayloadError):
        # Another attempt would fail alike; the dead letter keeps the message for a better worker.
        text = text_of(error)
        said = "message %d in queue %r cannot be handled: %s"
        _log.error(said, lease.id, lease.queue, text, extra=details(lease))
        return Outcome("reject", error=text, expected="dead")
    found = consumer.judge(retry, lease, error, what)  # type: ignore[arg-type]
    if found.how == "nack":
        return failure(retry, lease, found.text, found.delay)
    if found.how == "reject":
        return Outcome("reject", error=found.text, expected="dead")
    expected = "dead" if retry.then == "dead" else "held"
    return Outcome("exhaust", error=found.text, expected=expected)


def failure(retry: Retry, lease: TaskLease, error: str, delay: float | None = None) -> Outcome:
    """Return that an attempt is used up; after `delay` seconds, or the backoff of the message's
    policy, it comes again."""
    again = retry.attempts is None or lease.attempt < retry.attempts
    expected = "retried" if again else "dead" if retry.then == "dead" else "held"
    return Outcome("nack", delay=delay, error=error, expected=expected)
