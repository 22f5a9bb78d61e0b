"""Judgement of what a handler raised: how its message is settled, and the text kept of it.

Whatever a handler raises, its message is settled, for one that is not stays leased and keeps its
lanes closed. An exception is code of somebody else: its text, its class and what it carries may
raise in their turn, so nothing here lets that through.
"""

from __future__ import annotations

import os
import traceback
from dataclasses import dataclass
from typing import Literal

from interlock.errors import Reject, RetryAfter
from interlock.limits import MAX_ERROR, MAX_TEXT
from interlock.retry import seconds

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
"""The beginning of the error of a message whose time was over before a handler began."""


class Expired(Exception):
    """A message's time was over before its handler began. No handler raises it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The settlement of a message whose handler raised."""

    how: Literal["nack", "reject", "give_up", "defer"]
    """``give_up``: as if that had been the last attempt. ``defer``: as if it had not been one."""
    text: str
    """Kept as the message's last error."""
    delay: float | None = None
    """Seconds; None: the backoff of the policy."""
    steered: bool = False
    """By ``RetryAfter`` or ``Reject``, as they are meant: nothing to be logged."""
    details: str = ""
    """The places where it was raised, line by line; an engine keeps them behind the text."""

    @property
    def whole(self) -> str:
        """The text with its details, at most 4,096 bytes."""
        return kept(f"{self.text}\n{self.details}", MAX_ERROR) if self.details else self.text


def judged(error: BaseException, on: tuple[type[Exception], ...], details: bool = False) -> Failure:
    """Judge how the message is settled whose handler raised this. Never raises.

    Args:
        on: exceptions that are retried, of the retry policy.
        details: with where it was raised, unless it was raised to steer.
    """
    text = text_of(error)
    # By the class itself: an instance may say that it is of another, or raise when it is asked.
    kind = type(error)
    if issubclass(kind, RetryAfter):
        delay = _delay(error)
        if delay is not None:
            counts = _is_attempt(error)
            return Failure("nack" if counts else "defer", text, delay, steered=True)
        how: Literal["nack", "reject", "give_up"] = "nack"
    elif issubclass(kind, Reject):
        reason = _reason(error)
        if reason is not None:
            return Failure("reject", reason, steered=True)
        how = "reject"
    else:
        try:
            retried = issubclass(kind, on) or not issubclass(kind, Exception)
        except BaseException:
            # A class among those of the policy that cannot be asked.
            retried = True
        how = "nack" if retried else "give_up"
    return Failure(how, text, details=details_of(error) if details else "")


def text_of(error: BaseException) -> str:
    """Return an exception as a dead letter tells it: its name and text, see ``kept``.

    Never raises; one whose text cannot be made is still known by its name.
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
    """Return where an exception was raised, and what caused it. Never raises.

    The lines are as in a traceback, without those of this package; of many frames the last ones.
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
        # An exception may say what it likes of its causes.
        return ""


def _before(error: BaseException) -> BaseException | None:
    """Return what caused an exception, or what was handled when it was raised."""
    cause: BaseException | None = _CAUSE(error)
    context: BaseException | None = _CONTEXT(error)
    return cause or (None if _IS_ALONE(error) else context)


def _frames(error: BaseException, room: int) -> str:
    """Return the last frames of an exception, as many as have room."""
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
    """Return what is told of an error in one line."""
    return text.partition("\n")[0].removesuffix("\r")


def kept(text: str, most: int = MAX_TEXT) -> str:
    """Return a text as it is kept with a message: at most so many bytes of UTF-8.

    What is no Unicode, a lone surrogate, is escaped.
    """
    # Not by methods of its own: it may be of a class derived from str.
    plain = str.__str__(text)[:most]
    return plain.encode(errors="backslashreplace")[:most].decode(errors="ignore")


def _delay(error: BaseException) -> float | None:
    """Return the seconds that a RetryAfter names; None: none that can be waited for."""
    try:
        return seconds(error.seconds, "RetryAfter")  # type: ignore[attr-defined]
    except BaseException:
        # Of a class of its own, that made it without ours, or changed it since.
        return None


def _is_attempt(error: BaseException) -> bool:
    """Return whether a RetryAfter counts as a failed attempt."""
    try:
        return error.attempt is not False  # type: ignore[attr-defined]
    except BaseException:
        return True


def _reason(error: BaseException) -> str | None:
    """Return the reason that a Reject names; None: none that is a text."""
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
