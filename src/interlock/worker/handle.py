"""Runs one handler, and judges what came of it, by the rules of ``KeyedQueue.consume``."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from interlock.consumer import failed
from interlock.errors import PayloadError
from interlock.message import _current
from interlock.retry import Retry
from interlock.worker.work import Invocation, TaskLease, details

__all__ = ["Outcome", "ahandle", "handle", "judge"]

_log = logging.getLogger("interlock.worker")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a message is to be settled."""

    how: Literal["ack", "nack", "reject", "release"]
    result: bytes | None = None
    delay: float | None = None
    """Seconds; None: the backoff of the message's policy."""
    error: str = ""
    expected: str = "acked"
    """What the engine answers, if it judges as the worker did."""

    def settlement(self, lease: Any) -> Any:
        """As the engine's client takes it. Raises LeaseLost."""
        if self.how == "ack":
            # Encoded already, by the task's own types.
            result = None if self.result is None else msgspec.Raw(self.result)
            return lease.acking(result)
        if self.how == "nack":
            return lease.nacking(self.delay, self.error)
        return lease.rejecting(self.error) if self.how == "reject" else lease.releasing()


RELEASED = Outcome("release", expected="released")


def handle(invocation: Invocation, lease: TaskLease) -> Outcome:
    """Calls the handler of a message in this thread. Never raises."""
    token = _current.set(lease)
    try:
        return Outcome("ack", invocation.run())
    except BaseException as error:
        return judge(invocation.retry, lease, error)
    finally:
        _current.reset(token)


async def ahandle(invocation: Invocation, lease: TaskLease) -> Outcome:
    """Awaits the handler of a message. Never raises, not even when it is cancelled."""
    token = _current.set(lease)
    try:
        return Outcome("ack", await invocation.arun())
    except asyncio.CancelledError as error:
        return judge(invocation.retry, lease, error, "was cancelled")
    except BaseException as error:
        return judge(invocation.retry, lease, error)
    finally:
        _current.reset(token)


def judge(retry: Retry, lease: TaskLease, error: BaseException, what: str = "raised") -> Outcome:
    """A handler failed: logs it, and says what becomes of its message."""
    if isinstance(error, PayloadError):
        # Another attempt would fail alike; the dead letter keeps the message for a better worker.
        text = "message %d in queue %r cannot be handled: %s"
        _log.error(text, lease.id, lease.queue, error, extra=details(lease))
        return Outcome("reject", error=told(error), expected="dead")
    judged = _Judged(retry, lease)
    failed(judged, judged, error, what)  # type: ignore[arg-type]
    return judged.outcome


class _Judged:
    """In the place of queue and lease: notes how ``failed`` settles."""

    outcome: Outcome

    def __init__(self, retry: Retry, lease: TaskLease) -> None:
        self._retry = retry
        self.keys, self.shared = lease.keys, lease.shared
        self.queue, self.id, self.task = lease.queue, lease.id, lease.task
        self.attempt, self.token = lease.attempt, lease.token

    def nack(self, delay: float | None, error: BaseException) -> None:
        attempts = self._retry.attempts
        again = attempts is None or self.attempt < attempts
        expected = "retried" if again else "dead" if self._retry.then == "dead" else "held"
        self.outcome = Outcome("nack", delay=delay, error=told(error), expected=expected)

    def reject(self, reason: str) -> None:
        self.outcome = Outcome("reject", error=reason, expected="dead")

    def _give_up(self, error: BaseException) -> None:
        self.reject(told(error))


def told(error: BaseException) -> str:
    """An exception as a dead letter tells it: its name and text."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
