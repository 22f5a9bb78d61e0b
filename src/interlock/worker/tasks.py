"""Tasks as a worker sees them: the lease under which one runs, and what is asked of an app."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn, Protocol

from interlock.explanation import key_names
from interlock.retry import Retry

__all__ = [
    "Invocation",
    "NotHere",
    "PlainCall",
    "TaskLease",
    "Tasks",
    "UnknownArgument",
    "UnknownTask",
    "UnknownVersion",
    "head",
]


class TaskLease:
    """The lease under which a task's handler runs, as ``current_lease()`` gives it, in any pool.

    The worker settles it when the handler has ended, so it has no ``ack``: a handler returns, or
    raises, for instance ``RetryAfter`` or ``Reject``.
    """

    __slots__ = (
        "_is_lost", "_over", "attempt", "id", "keys", "payload", "queue", "sequence", "shared",
        "task", "token",
    )  # fmt: skip

    def __init__(
        self,
        queue: str,
        id: int,
        sequence: int,
        attempt: int,
        token: int,
        keys: frozenset[bytes],
        shared: frozenset[bytes],
        payload: bytes,
        task: str = "",
        is_lost: Callable[[], bool] = bool,
    ) -> None:
        self.queue = queue
        self.id = id
        self.sequence = sequence
        """Its place in the queue; the id, unless it was delayed."""
        self.attempt = attempt
        """1 for the first."""
        self.token = token
        """Rises with every lease of the queue: a fence for what the handler writes. Messages that
        were leased together, of which no two conflict, have the same."""
        self.keys = keys
        self.shared = shared
        self.payload = payload
        """The call as it is on the wire."""
        self.task = task
        """The task's name."""
        self._is_lost = is_lost
        self._over = False
        """The worker has settled it, or is about to."""

    @property
    def lost(self) -> bool:
        """It ran out or was revoked, as far as the worker knows: what the handler still does may
        be done a second time by another."""
        return self._over or self._is_lost()

    def ack(self, *_: object) -> NoReturn:
        """Not here."""
        self._settled_by_the_worker("ack")

    def nack(self, *_: object, **__: object) -> NoReturn:
        """Not here."""
        self._settled_by_the_worker("nack")

    def reject(self, *_: object) -> NoReturn:
        """Not here."""
        self._settled_by_the_worker("reject")

    def release(self) -> NoReturn:
        """Not here."""
        self._settled_by_the_worker("release")

    def extend(self, *_: object) -> NoReturn:
        """Not here."""
        raise TypeError("extend(): the worker extends the lease while the handler runs")

    def _settled_by_the_worker(self, call: str) -> NoReturn:
        raise TypeError(
            f"{call}(): the worker settles when the handler has ended: return for ack, raise for "
            f"nack; raise RetryAfter(seconds) or Reject(reason) to steer"
        )

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of message {self.id} in queue {self.queue!r}, "
            f"attempt {self.attempt}, token {self.token}>"
        )


class NotHere(LookupError):
    """The message calls what this worker does not know, and another, perhaps a newer one, may.

    Its text says what, after the words "the message".
    """


class UnknownTask(NotHere):
    """The message calls a task that this worker does not have."""

    def __init__(self, task: str) -> None:
        super().__init__(f"calls the task {task!r}, which this worker does not have")


class UnknownArgument(NotHere):
    """The message calls a task with what its function does not take here."""

    def __init__(self, task: str, what: str) -> None:
        super().__init__(f"calls the task {task!r} with {what}, which this worker does not know")


class UnknownVersion(NotHere):
    """The message is a call as a later release of Interlock writes it."""

    def __init__(self, version: int, known: int) -> None:
        super().__init__(
            f"is a call of version {version}, which this worker does not know (it knows {known})"
        )


class Invocation(Protocol):
    """One message, ready to be handled. Its arguments are decoded when it runs."""

    @property
    def task(self) -> str:
        """The task's name."""

    @property
    def timeout(self) -> float | None:
        """Seconds after which the lease is revoked."""

    @property
    def retry(self) -> Retry:
        """By which failures are judged."""

    @property
    def is_async(self) -> bool:
        """True if ``arun`` is to be awaited, rather than ``run`` called."""

    def run(self) -> bytes | None:
        """Call the handler; return its result, encoded, where one is kept."""

    async def arun(self) -> bytes | None:
        """Do the same for a coroutine function."""


class Tasks(Protocol):
    """The calls that a worker makes on an app."""

    def prepare(self, lease: TaskLease) -> Invocation:
        """Return the call of the message of this lease; sets ``lease.task``. Raises NotHere where
        another worker may know that, and PayloadError where the message is no call that any could
        make."""

    @property
    def plain(self) -> Mapping[bytes, PlainCall]:
        """The plain calls that are known, by the first bytes of their payloads, see ``head``; none
        while there are hooks around handlers."""

    def learn(self, invocation: Any, payload: bytes) -> None:
        """Add to ``plain`` calls like this one, which was prepared from this payload, if it is
        plain."""


class PlainCall(NamedTuple):
    """A way to call a task from its payload, where all is as it nearly always is: a plain function
    whose arguments are sent by place, without hooks, a timeout or a result that is kept."""

    function: Callable[..., object]
    decode: Callable[[bytes], tuple[Any, ...]]
    """Of the payload from ``arguments`` on; raises what msgspec does."""
    arguments: int
    retry: Retry
    task: str


def head(payload: bytes) -> bytes:
    """Return what calls of the same task with as many arguments begin with: a map of ``v``,
    ``task`` and ``args``, up to the arguments themselves. Of any other payload it is whatever, and
    no plain call is known by that."""
    return payload[: payload[TASK_AT] - HEAD] if len(payload) > TASK_AT else b""


TASK_AT = 9
"""The place of the length of the task's name in a call, as MessagePack: of a short text."""
HEAD = 0xA0 - 16
"""Taken from that length it gives the length of the head."""


def details(lease: TaskLease) -> dict[str, Any]:
    """Return the fields that a log line about a message carries as ``extra``."""
    return {
        "queue": lease.queue,
        "id": lease.id,
        "keys": key_names(lease.keys | lease.shared),
        "attempt": lease.attempt,
        "token": lease.token,
        "task": lease.task,
    }
