"""Tasks as a worker sees them: what is asked of an app."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from interlock.errors import InterlockError
from interlock.retry import Retry
from interlock.worker.execution import Invocation, TaskLease
from interlock.worker.scope import Scope

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


class SetupRefused(InterlockError):
    """A process of a pool lacks what the program has added to the app; the text says what."""


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

    def scope(self, worker: bool, process: bool) -> Scope | None:
        """Return what is to be held around all handlers: with the hooks of the ``worker``, with
        those of each ``process`` that runs handlers. None: nothing."""

    def keys_of(self, payload: bytes) -> tuple[list[bytes], list[bytes]]:
        """Return the exclusive and the shared keys that a send of this call would give it.

        Raises NotHere where another worker may know that, and PayloadError, TypeError or
        ValueError where the arguments give no keys; a rule of the program may raise anything.
        """

    def process_setup(self, reference: str) -> bytes:
        """Return what each process of a pool needs, pickled: an object whose ``app()`` imports the
        app there and configures it as it is here. Nothing is registered from then on until
        ``processes_end``. Raises ValueError where that cannot be sent."""

    def processes_end(self) -> None:
        """Note that the pool starts no process any more."""

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
