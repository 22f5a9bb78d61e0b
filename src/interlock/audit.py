"""The audit log: the user who changed a queue or message, the address, and the result.

An operator's changes are recorded once `acting` has named the user: the dashboard and the command
line do. Each is a record of the logger ``interlock.audit`` with the fields of `FIELDS`. The
variable INTERLOCK_AUDIT_LOG names a file to which each is appended as a line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from logging.handlers import WatchedFileHandler
from typing import TypeVar

from interlock.errors import EngineUnavailable, InterlockError
from interlock.explanation import PrintableFormatter, printable

R = TypeVar("R")

FIELDS = ("time", "who", "from", "action", "queue", "what", "result")
"""``time`` is in seconds since 1970; ``what`` names a message, keys, a worker, or nothing."""


@dataclass(frozen=True, slots=True)
class Actor:
    """The user who acts, and the address."""

    who: str
    """The user of the engine, or the name of a token."""
    address: str
    """The address of the browser, or USER@HOST of a command."""


def acting(who: str, address: str) -> None:
    """Name the user of the changes in this context (a request or a command) from now on."""
    _actor.set(Actor(who, address))


def recorded(
    action: str,
    queue: str,
    what: object,
    call: Callable[[], R],
    told: Callable[[R], str],
    partly: Callable[[], str] = str,
) -> R:
    """Make a change, and record it with its result, or with the reason why it failed.

    Args:
        partly: result so far of a change in several calls that failed; empty: nothing was changed.
    """
    actor = _actor.get()
    if actor is None:
        return call()
    try:
        found = call()
    except BaseException as error:
        done = partly()
        result = f"{done}, then {_failed(error)}" if done else _failed(error)
        _record(actor, action, queue, str(what), result)
        raise
    _record(actor, action, queue, str(what), told(found))
    return found


def refused(action: str, queue: str, what: object, why: str) -> None:
    """Record that a change was refused before the engine was called.

    At most once a second for one user and action, so that repeated tries do not fill the log.
    """
    actor = _actor.get()
    if actor is None:
        return
    now, known = time.monotonic(), (actor.who, action)
    if now - _refused.get(known, -1.0) < REFUSED_EVERY:
        return
    if len(_refused) >= MOST_REFUSED:
        _refused.clear()
    _refused[known] = now
    _record(actor, action, queue, str(what), f"refused: {why}")


def told(who: str, address: str, action: str, queue: str, what: str, result: str) -> None:
    """Record a change that a client requested of a hub. It is not one of this process's own."""
    _log_change(Actor(who, address), action, queue, what, result, by_hub=True)


def _failed(error: BaseException) -> str:
    if isinstance(error, EngineUnavailable) and error.unknown:
        return f"unknown, it may have been made: {error}"
    if isinstance(error, (InterlockError, ValueError)):
        return f"refused: {error}"
    return f"unknown, it was interrupted: {str(error) or type(error).__name__}"


def changed(done: object) -> str:
    """Return the result of a change that may have found nothing to do."""
    return "changed" if done else "unchanged"


def recent() -> list[dict[str, object]]:
    """Return the last changes of this process, the newest first."""
    return [*reversed(_recent)]


@contextlib.contextmanager
def to(handler: logging.Handler, *, as_json: bool = True) -> Iterator[None]:
    """Have a handler write the records, as lines of JSON or as text, and close it at the end."""
    text = PrintableFormatter("%(asctime)s %(message)s")
    handler.setFormatter(JsonLines() if as_json else text)
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)
    try:
        yield
    finally:
        _log.removeHandler(handler)
        handler.close()


@contextlib.contextmanager
def to_file(*, by_hub: bool = False) -> Iterator[None]:
    """Append to the file that INTERLOCK_AUDIT_LOG names, if set; reopen it after it was moved.

    Raises ValueError if the file cannot be written.

    Args:
        by_hub: also write the changes requested of a hub in this process. Default False: a caller
            in this same process has recorded them already.
    """
    path = os.environ.get("INTERLOCK_AUDIT_LOG")
    if not path:
        yield
        return
    try:
        handler = WatchedFileHandler(path, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise ValueError(
            f"INTERLOCK_AUDIT_LOG names {path!r}, which cannot be written: {error.strerror}"
        ) from None
    handler.addFilter(lambda record: by_hub or not getattr(record, "by_hub", False))
    with to(handler):
        yield


class JsonLines(logging.Formatter):
    """A record as a JSON object with the fields of the audit log."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record; see ``logging.Formatter``."""
        return json.dumps({name: getattr(record, name, None) for name in FIELDS})


def _record(actor: Actor, action: str, queue: str, what: str, result: str) -> None:
    _recent.append(_log_change(actor, action, queue, what, result))


def _log_change(
    actor: Actor, action: str, queue: str, what: str, result: str, by_hub: bool = False
) -> dict[str, object]:
    values = (round(time.time(), 3), actor.who, actor.address, action, queue, what, result)
    fields: dict[str, object] = dict(zip(FIELDS, values, strict=True))
    # One line for each, whatever handler prints it: names of keys and users come from outside.
    texts = (what or "the queue", actor.who, actor.address, result)
    named, who, address, told = (printable(text) for text in texts)
    _log.info(
        "%s of %s in queue %r by %s from %s: %s",
        action, named, queue, who, address, told, extra={**fields, "by_hub": by_hub},
    )  # fmt: skip
    return fields


_log = logging.getLogger("interlock.audit")
_actor: ContextVar[Actor | None] = ContextVar("interlock audit", default=None)
_recent: deque[dict[str, object]] = deque(maxlen=500)
_refused: dict[tuple[str, str], float] = {}
"""Last times at which a refused action of a user was recorded."""
REFUSED_EVERY = 1.0
"""Seconds."""
MOST_REFUSED = 1024
"""Number of users and actions that are remembered."""
