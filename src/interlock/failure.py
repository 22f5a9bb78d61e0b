"""Handling of a handler's exception: how its message is settled, and the text kept with it.

Whatever a handler raises, its message is settled; an unsettled message stays leased and keeps its
lanes closed. An exception is foreign code: its text, its class and its attributes may raise in
turn, so nothing here lets that through.
"""

from __future__ import annotations

import os
import traceback
from dataclasses import dataclass
from typing import Literal

from interlock.errors import Reject, RetryAfter
from interlock.retry import seconds
from interlock.runtime.concurrency import is_limit_name
from interlock.runtime.limits import MAX_ERROR, MAX_TEXT

__all__ = [
    "EXPIRED",
    "Expired",
    "Failure",
    "details_of",
    "first_line",
    "judged",
    "kept",
    "text_of",
    "whole_of",
]

EXPIRED = "expired: "
"""The beginning of the error of a message that expired before a handler began."""


class Expired(Exception):
    """A message expired before its handler began. No handler raises it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The settlement of a message whose handler raised."""

    how: Literal["nack", "reject", "give_up", "defer"]
    """``give_up``: as if this was the last attempt. ``defer``: as if it was not an attempt."""
    text: str
    """Kept as the message's last error."""
    delay: float | None = None
    """Seconds; None: the backoff of the policy."""
    limit: str | None = None
    """Limit name that is closed to all messages for ``delay`` seconds."""
    steered: bool = False
    """True if raised on purpose, by ``RetryAfter`` or ``Reject``: nothing is logged."""
    details: str = ""
    """The traceback, line by line; an engine keeps it behind the text."""

    @property
    def whole(self) -> str:
        """The text with its details, at most 4,096 bytes."""
        return kept(f"{self.text}\n{self.details}", MAX_ERROR) if self.details else self.text


def judged(error: BaseException, on: tuple[type[Exception], ...], details: bool = False) -> Failure:
    """Decide how to settle the message whose handler raised this. Never raises.

    Args:
        on: exceptions that the retry policy retries.
        details: include the traceback, except for ``RetryAfter`` and ``Reject``.
    """
    text = text_of(error)
    how: Literal["nack", "reject", "give_up", "defer"]
    # By the class itself: an instance may claim another class, or raise when it is asked.
    kind = type(error)
    if issubclass(kind, RetryAfter):
        delay = _delay(error)
        if delay is not None:
            counts = _is_attempt(error)
            how = "nack" if counts else "defer"
            return Failure(how, text, delay, _limit(error), steered=True)
        how = "nack"
    elif issubclass(kind, Reject):
        reason = _reason(error)
        if reason is not None:
            return Failure("reject", reason, steered=True)
        how = "reject"
    else:
        try:
            retried = issubclass(kind, on) or not issubclass(kind, Exception)
        except BaseException:
            # A class among those of the policy whose check raises.
            retried = True
        how = "nack" if retried else "give_up"
    return Failure(how, text, details=details_of(error) if details else "")


def text_of(error: BaseException) -> str:
    """Return an exception as a dead letter shows it: its name and text, see ``kept``.

    Never raises; an exception whose text cannot be made still has its name.
    """
    try:
        name = str.__str__(type(error).__name__)
    except BaseException:
        name = "an exception"
    try:
        text = kept(str(error))
    except BaseException:
        text = ""
    return kept(f"{name}: {text}" if text else name)


def whole_of(error: BaseException) -> str:
    """Return an exception as an engine keeps it: `text_of` it, then `details_of` it."""
    return Failure("nack", text_of(error), details=details_of(error)).whole


def details_of(error: BaseException) -> str:
    """Return an exception's traceback, and its causes. Never raises.

    The lines are as in a traceback, without this package's frames; only the last of many frames are
    kept.
    """
    parts, cause, room = [], error, MAX_ERROR - MAX_TEXT
    try:
        for depth in range(_CAUSES):
            title = f"caused by {text_of(cause)}\n" if depth else ""
            lines = _frames(cause, room - len(title.encode()))
            room -= len(title.encode()) + len(lines.encode())
            if room < 0:
                break
            parts.append(title + lines)
            before = _before(cause)
            if before is None:
                break
            cause = before
        return "".join(parts).rstrip("\n")
    except BaseException:
        # An exception may return anything as its causes.
        return ""


def _before(error: BaseException) -> BaseException | None:
    """Return an exception's cause, or the exception that was being handled when it was raised."""
    cause: BaseException | None = _CAUSE(error)
    context: BaseException | None = _CONTEXT(error)
    return cause or (None if _IS_ALONE(error) else context)


def _frames(error: BaseException, room: int) -> str:
    """Return the last frames of an exception, as many as fit."""
    lines: list[str] = []
    for frame in reversed(traceback.extract_tb(_TRACEBACK(error), limit=-_FRAMES)):
        if frame.filename.startswith(_OURS):
            continue
        code = f"    {frame.line}\n" if frame.line else ""
        said = f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}\n{code}'
        text = said.encode(errors="backslashreplace").decode()
        room -= len(text.encode())
        if room < 0:
            break
        lines.append(text)
    return "".join(reversed(lines))


def first_line(text: str) -> str:
    """Return the one-line form of an error."""
    return text.partition("\n")[0].removesuffix("\r")


def kept(text: str, most: int = MAX_TEXT) -> str:
    """Return a text as it is kept with a message: at most this many bytes of UTF-8.

    A lone surrogate, which is not Unicode, is escaped.
    """
    # Not by methods of its own: its class may be derived from str.
    plain = str.__str__(text)[:most]
    return plain.encode(errors="backslashreplace")[:most].decode(errors="ignore")


def _delay(error: BaseException) -> float | None:
    """Return the seconds of a RetryAfter; None if it has no usable number."""
    try:
        return seconds(error.seconds, "RetryAfter")  # type: ignore[attr-defined]
    except BaseException:
        # A subclass may skip our constructor, or change the value later.
        return None


def _is_attempt(error: BaseException) -> bool:
    """Return whether a RetryAfter counts as a failed attempt."""
    try:
        return error.attempt is not False  # type: ignore[attr-defined]
    except BaseException:
        return True


def _limit(error: BaseException) -> str | None:
    """Return the limit name that a RetryAfter closes; None if it names none that can be one."""
    try:
        limit = error.limit  # type: ignore[attr-defined]
        return str.__str__(limit) if limit is not None and is_limit_name(limit) else None
    except BaseException:
        return None


def _reason(error: BaseException) -> str | None:
    """Return the reason of a Reject; None if it is not text."""
    try:
        reason = error.reason  # type: ignore[attr-defined]
        return kept(reason) if issubclass(type(reason), str) else None
    except BaseException:
        return None


_OURS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
_FRAMES = 50
_CAUSES = 3
# By the class itself: an instance may have attributes of its own, or raise when it is asked.
_TRACEBACK, _CAUSE, _CONTEXT, _IS_ALONE = (
    vars(BaseException)[name].__get__
    for name in ("__traceback__", "__cause__", "__context__", "__suppress_context__")
)
