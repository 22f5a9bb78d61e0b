"""The interface of an app as a worker sees it: its tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from interlock.client.wire.records import NewKeys
from interlock.errors import InterlockError
from interlock.retry import Retry
from interlock.worker.message.execution import Invocation, TaskLease
from interlock.worker.message.scope import Scope

__all__ = [
    "NotHere",
    "PlainCall",
    "SetupRefused",
    "Tasks",
    "UnknownArgument",
    "UnknownTask",
    "UnknownVersion",
    "head",
]


class NotHere(LookupError):
    """The message calls something that this worker does not know, but another, perhaps newer, may.

    Its text continues the words "the message".
    """


class UnknownTask(NotHere):
    """The message calls a task that this worker does not have."""

    def __init__(self, task: str) -> None:
        super().__init__(f"calls the task {task!r}, which this worker does not have")


class UnknownArgument(NotHere):
    """The message calls a task with arguments that its function does not take here."""

    def __init__(self, task: str, what: str) -> None:
        super().__init__(f"calls the task {task!r} with {what}, which this worker does not know")


class UnknownVersion(NotHere):
    """The message is a call in the format of a later release of Interlock."""

    def __init__(self, version: int, known: int) -> None:
        super().__init__(
            f"is a call of version {version}, which this worker does not know (it knows {known})"
        )


class SetupRefused(InterlockError):
    """A process of a pool lacks something that the program added to the app; the text names it."""


class Tasks(Protocol):
    """The calls that a worker makes to an app."""

    def prepare(self, lease: TaskLease) -> Invocation:
        """Return the call of this lease's message; set ``lease.task``. Raises NotHere if another
        worker may know the task, and PayloadError if the message is not a call that any worker
        could make."""

    def takes_runs(self, queue: str) -> bool:
        """Return whether a task of this queue is given lists of messages."""

    @property
    def plain(self) -> Mapping[bytes, PlainCall]:
        """The known plain calls, by the first bytes of their payloads, see ``head``; empty while
        there are hooks around handlers."""

    def scope(self, worker: bool, process: bool) -> Scope | None:
        """Return the scope to hold around all handlers: with the hooks of the ``worker``, with
        those of each ``process`` that runs handlers. None: there is no scope."""

    def keys_of(self, payload: bytes) -> NewKeys:
        """Return the keys, limits, group and run that a send of this call would give it.

        Raises NotHere if another worker may know the task, and PayloadError, TypeError or
        ValueError if the arguments do not yield them; the program's key function may raise
        anything.
        """

    def process_setup(self, reference: str) -> bytes:
        """Return what each process of a pool needs, pickled: an object whose ``app()`` imports the
        app there and configures it as it is here. Nothing may be registered from then until
        ``processes_end``. Raises ValueError if it cannot be sent."""

    def processes_end(self) -> None:
        """Note that the pool starts no further process."""

    def learn(self, invocation: Any, payload: bytes) -> None:
        """Add calls like this one, which was prepared from this payload, to ``plain`` if it is
        plain."""


class PlainCall(NamedTuple):
    """A way to call a task from its payload in the common case: a function with positional
    arguments, without hooks, a timeout or a kept result."""

    function: Callable[..., Any]
    decode: Callable[[bytes], tuple[Any, ...]]
    """Decode the arguments, from ``arguments`` on; raises what msgspec raises."""
    arguments: int
    retry: Retry
    task: str
    is_async: bool
    """The function is a coroutine function."""


def head(payload: bytes) -> bytes:
    """Return the prefix of calls of the same task with the same number of arguments: a map of
    ``v``, ``task`` and ``args``, up to the arguments themselves. For any other payload the result
    is arbitrary and matches no plain call."""
    return payload[: payload[TASK_AT] - HEAD] if len(payload) > TASK_AT else b""


TASK_AT = 9
"""Position of the length of the task's name in a call, as MessagePack: of a short text."""
HEAD = 0xA0 - 16
"""Added to that length, it gives the length of the head."""
