"""Hooks that a program can add: before and after a send, before and after a handler, on errors.

A hook is a function, given to the app by the decorator of its name (``@app.before_handle``), or a
method of that name of an object given to ``app.use``. ``before_`` hooks run in the order in which
they were added, the others in reverse, so that the first one added is the outermost.

An exception of a ``before_`` hook stops the send, or counts as the handler's failure. Exceptions of
the others are logged and change nothing: the message is queued, or its handler has ended.

While there are hooks around handlers, no message takes the fast path to its handler. An object
whose ``with_headers_only`` is true leaves that path to messages that came without headers.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from interlock.worker.message.execution import TaskLease

if TYPE_CHECKING:
    from interlock.app.job import Job

__all__ = ["AROUND_SENDS", "HOOKS", "Handling", "Hooks", "Middleware", "Sending"]

_log = logging.getLogger("interlock.worker")


@dataclass(slots=True)
class Sending:
    """A call that is being sent. Hooks may add to ``headers``; they travel with the message."""

    task: str
    queue: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    keys: frozenset[bytes]
    shared: frozenset[bytes]
    headers: dict[str, str] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    """Scratch space of the hooks, like that of ``Handling``."""

    engine: str = ""
    """The URL of the engine, with its password; empty for an engine in this process."""


@dataclass(slots=True)
class Handling:
    """A call that is being handled."""

    task: str
    lease: TaskLease
    """Its message: id, keys, attempt, token."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    headers: dict[str, str]
    """The headers that the sender's hooks left."""

    state: dict[str, Any] = field(default_factory=dict)
    """Scratch space shared by the hooks of one call of a handler. (A part of the lease would not
    identify it: messages that were leased together have one token.)"""

    engine: str = ""
    """Like that of ``Sending``."""


class Middleware:
    """All hooks, doing nothing: a class to derive from. Any other object works as well; its methods
    with these names are called."""

    with_headers_only = False
    """Its hooks around handlers ignore messages without headers, and are not called for one if the
    call would cost time."""

    def before_send(self, sending: Sending) -> None:
        """Act before a call is sent. An exception is raised by the send."""

    def after_send(self, sending: Sending, job: Job[Any]) -> None:
        """Act after a call was sent."""

    def on_send_error(self, sending: Sending, error: BaseException) -> None:
        """Act after a call could not be sent, or its outcome is unknown."""

    def before_handle(self, handling: Handling) -> None:
        """Act before a handler runs, in its thread or task. An exception counts as its failure."""

    def after_handle(self, handling: Handling, result: Any) -> None:
        """Act after a handler has returned; its message is not settled yet."""

    def on_error(self, handling: Handling, error: BaseException) -> None:
        """Act after a handler has raised.

        The exception may also be ``RetryAfter`` or ``Reject``.
        """


class Hooks:
    """The hooks of an app."""

    def __init__(self) -> None:
        self._of: dict[str, list[Callable[..., object]]] = {name: [] for name in HOOKS}
        self.handling = False
        """The hooks that surround the handlers of all messages."""
        self._tied: set[Callable[..., object]] = set()
        """The hooks that are for messages with headers only."""
        self._around_some = False

    def add(self, name: str, hook: Callable[..., object]) -> None:
        """Add one more hook of that name."""
        if not callable(hook):
            raise TypeError(f"{name}(): {type(hook).__name__} is given; allowed: a function")
        self._of[name].append(hook)
        self._look()

    def remove(self, name: str, hook: Callable[..., object]) -> None:
        """Remove a hook that was added."""
        self._of[name].remove(hook)
        self._look()

    def all(self) -> Iterable[tuple[str, Callable[..., object]]]:
        """Return the hooks, each with the name of its event."""
        return [(name, hook) for name, hooks in self._of.items() for hook in hooks]

    def around(self, headers: Mapping[str, str]) -> bool:
        """Return whether a hook must be called around the handler of such a message."""
        return self.handling or (self._around_some and bool(headers))

    def _look(self) -> None:
        around = [hook for name in AROUND_HANDLERS for hook in self._of[name]]
        self.handling = any(hook not in self._tied for hook in around)
        self._around_some = bool(around)

    def use(self, middleware: object) -> None:
        """Add all methods of an object that have names of hooks.

        Raises TypeError if it has none.
        """
        found = [name for name in HOOKS if callable(getattr(middleware, name, None))]
        if not found or isinstance(middleware, type):
            what = (
                middleware.__name__ if isinstance(middleware, type) else type(middleware).__name__
            )
            raise TypeError(
                f"use(): {what} is given; allowed: an object with one or more of the methods "
                f"{', '.join(HOOKS)}"
            )
        hooks = {name: getattr(middleware, name) for name in found}
        if getattr(middleware, "with_headers_only", False):
            self._tied.update(hooks.values())
        for name, hook in hooks.items():
            self.add(name, hook)

    def before(self, name: str, *arguments: Any) -> None:
        """Call the ``before_`` hooks; the first exception ends the call."""
        for hook in self._of[name]:
            hook(*arguments)

    def after_handling(self, name: str, *arguments: Any) -> None:
        """Call the other hooks around a handler, the last one added first.

        Their exceptions, even SystemExit, are logged: the handler has ended, and only that counts.
        """
        self.after(name, *arguments, caught=BaseException)

    def after(self, name: str, *arguments: Any, caught: type[BaseException] = Exception) -> None:
        """Call the other hooks, the last one added first; exceptions are logged."""
        for hook in reversed(self._of[name]):
            try:
                hook(*arguments)
            except caught:
                # The exception, or the hook itself, may raise again when it is formatted.
                with contextlib.suppress(caught):
                    _log.exception("the hook %s %r raised", name, hook)


AROUND_HANDLERS = ("before_handle", "after_handle", "on_error")
AROUND_SENDS = ("before_send", "after_send", "on_send_error")
HOOKS = (*AROUND_SENDS, *AROUND_HANDLERS)
