"""The state of a lease of a message on an engine, whichever face it is of."""

from __future__ import annotations

import contextlib
import contextvars
import time
import warnings
from typing import Any, Generic, TypeVar

from interlock.client.requests.lease_renewal import Grant
from interlock.client.wire import messages as wire
from interlock.client.wire.codec import encode_result
from interlock.errors import LeaseLost
from interlock.failure import Failure, judged, whole_of
from interlock.message import _current
from interlock.retry import Seconds, seconds
from interlock.runtime import forks
from interlock.watch import log_handled

T = TypeVar("T")
L = TypeVar("L", bound="LeaseState[Any]")

OPEN, SETTLED, LOST = range(3)


class LeaseState(Generic[T]):
    """The common part of a `RemoteLease` and an `AsyncRemoteLease`."""

    __slots__ = (
        "_context",
        "_grant",
        "_of",
        "_state",
        "attempt",
        "id",
        "keys",
        "payload",
        "quiet",
        "sequence",
        "shared",
    )

    def __init__(self, of: Any, grant: Grant, message: wire.Handed, payload: T) -> None:
        self._of = of
        self._grant = grant
        self._state = OPEN
        # One for each entry.
        self._context: tuple[contextvars.Token[Any], ...] = ()
        self.payload = payload
        self.id = message.id
        self.sequence = message.sequence
        """Its position in the queue; equal to its id, unless it was delayed."""
        self.attempt = message.attempt
        """Attempt number; the first is 1."""
        self.keys = message.keys
        self.shared = message.shared
        self.quiet = message.quiet
        """It was put as quiet: its handling is not logged."""

    @property
    def queue(self) -> str:
        """The queue's name."""
        return self._grant.handle.name

    @property
    def token(self) -> int:
        """Rises with every lease of the queue: a fence for the handler's writes."""
        return self._grant.token

    @property
    def lost(self) -> bool:
        """It expired or was revoked, as far as this client knows."""
        if self._state != OPEN:
            return self._state == LOST
        return self._grant.lost or self.id not in self._grant.out

    def stop_renewing(self) -> None:
        """Stop renewing: it expires at its deadline, unless it is settled or extended before."""
        self._grant.stop_renewing()

    def acking(self, result: Any = None, log: bool = True) -> wire.Settlement:
        """Return the settlement by which ``exchange`` and ``settle`` acknowledge it.

        It counts as settled now. ``log``: log at level debug that it was handled; else the caller
        does, with ``log_handled``.
        """
        encoded = None if result is None else encode_result(result)
        self._gone(SETTLED)
        since = self._grant.told_from
        if since is not None and log and not self.quiet:
            self.log_handled(time.monotonic() - since)
        return wire.acking(self._grant.token, self.id, encoded)

    @property
    def is_logged(self) -> bool:
        """True if the handling of the message is to be logged."""
        return self._grant.told_from is not None and not self.quiet

    def log_handled(self, seconds: float, task: str = "") -> None:
        """Log that it was handled in this time; at level debug."""
        # A sequence is the server's time at which the message took its position, a token that of
        # its lease.
        waited = max(self.token - self.sequence, 0) / 1e6
        log_handled(
            self.queue, self.id, sorted(self.keys | self.shared), self.attempt, waited,
            seconds, token=self.token, task=task,
        )  # fmt: skip

    def nacking(
        self, delay: Seconds | None = None, error: BaseException | str | None = None
    ) -> wire.Settlement:
        """Return the settlement for ``nack``; see ``acking``."""
        after = None if delay is None else seconds(delay, "nack(): delay")
        text = "" if error is None else error_text(error)
        self._gone(SETTLED)
        return wire.nacking(self.token, self.id, after, text)

    def rejecting(self, reason: str) -> wire.Settlement:
        """Return the settlement for ``reject``; see ``acking``."""
        if not isinstance(reason, str):
            raise TypeError(f"reject(): reason is {type(reason).__name__}; allowed: str")
        self._gone(SETTLED)
        return wire.rejecting(self.token, self.id, reason)

    def releasing(self) -> wire.Settlement:
        """Return the settlement for ``release``; see ``acking``."""
        self._gone(SETTLED)
        return wire.releasing(self.token, self.id)

    def _gone(self, state: int) -> None:
        self._state = state
        out = self._grant.out
        out.discard(self.id)
        if not out:
            self._grant.renewer.let_go(self._grant)

    def _check_open(self) -> None:
        if self._state != OPEN:
            raise self._refusal()

    def _refusal(self) -> LeaseLost:
        return LeaseLost(
            f"the lease of message {self.id} (token {self.token}) was settled, expired or was "
            "revoked; nothing was changed"
        )

    def _took(self, answer: bytes) -> None:
        """Process the engine's answer to a settlement; raise if the lease is lost."""
        if answer == wire.LOST:
            self._gone(LOST)
            raise self._refusal()

    def _reopened(self) -> None:
        """Reopen the lease, because a settlement did not reach the engine: it may be tried
        again."""
        if self._state == SETTLED:
            self._state = OPEN
            self._grant.out.add(self.id)
            self._grant.renewer.hold(self._grant)

    def _failing(self, failure: Failure) -> wire.Settlement:
        """Return the settlement for a handler that raised."""
        if failure.limit is not None:
            self._gone(SETTLED)
            return wire.closing(
                self.token, self.id, failure.delay or 0.0, failure.whole, failure.limit,
                failure.how == "nack",
            )  # fmt: skip
        if failure.how == "nack":
            return self.nacking(failure.delay, failure.whole)
        if failure.how == "give_up":
            return self._giving_up(failure.whole)
        if failure.how == "defer":
            self._gone(SETTLED)
            return wire.deferring(self.token, self.id, failure.delay or 0.0)
        return self.rejecting(failure.whole)

    def _judged(self, error: BaseException) -> wire.Settlement:
        """Return the settlement for a handler that raised.

        The exception may choose the outcome, and the policy decides whether to retry.
        """
        return self._failing(judged(error, self._of._retry.on, details=True))

    def _giving_up(self, error: BaseException | str) -> wire.Settlement:
        text = error_text(error)
        self._gone(SETTLED)
        return wire.exhausting(self.token, self.id, text)

    def _entered(self) -> T:
        self._context = (*self._context, _current.set(self))
        return self.payload

    def _left(self) -> None:
        if not self._context:
            # It was not entered: ExitStack.push() only leaves.
            return
        *outer, context = self._context
        self._context = tuple(outer)
        # Entered in another context (a generator that moved): there is nothing to reset here.
        with contextlib.suppress(ValueError):
            _current.reset(context)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of message {self.id} in queue {self.queue!r}, attempt "
            f"{self.attempt}, token {self.token}>"
        )

    def __del__(self) -> None:
        if getattr(self, "_state", SETTLED) != OPEN or self.lost:
            return
        if self._grant.forks != forks.count:
            return
        self._grant.out.discard(self.id)
        if not self._grant.out:
            self._grant.renewer.leave(self._grant.key)
        if not self._of._sessions.alive:
            return
        self._grant.renewer.abandon(
            self._grant.handle, wire.nacking(self.token, self.id, None, "abandoned")
        )
        warnings.warn(
            f"the lease of message {self.id} in queue {self.queue!r} was dropped without being "
            f"settled; it counts as a nack",
            ResourceWarning,
            stacklevel=2,
        )


def error_text(error: BaseException | str) -> str:
    """Return the text that is stored as a message's last error."""
    if isinstance(error, str):
        return error
    if not isinstance(error, BaseException):
        raise TypeError(f"nack(): error is {type(error).__name__}; allowed: str or an exception")
    return whole_of(error)


def extension(value: Seconds) -> float:
    """Return the seconds by which a lease is extended."""
    return seconds(value, "extend(): seconds")


class RemoteLeaseBatch(list[L], Generic[L]):
    """The leases of one ``get_many``, of either face: a list with their ``payloads``."""

    @property
    def payloads(self) -> list[Any]:
        """The payloads of its messages, in their order; a new list each time."""
        return [lease.payload for lease in self]
