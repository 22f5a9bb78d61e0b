"""Errors of all attempts of a message, as an engine stores them: one history, the newest first."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from interlock.failure import first_line

_ENTRIES, _FIELDS = b"\x1e", b"\x1f"


@dataclass(frozen=True, slots=True)
class Failure:
    """One attempt that failed."""

    text: str
    """The error: from a worker its type and message, then, from the next line on, its location."""

    attempt: int | None
    """The attempt that failed; None: an older release stored it without this."""

    time: int | None
    """The time of the failure, µs since 1970; None as above."""

    @property
    def line(self) -> str:
        """The first line of the text."""
        return first_line(self.text)

    @property
    def traceback(self) -> str:
        """All lines of the text after the first; empty if there are none."""
        return self.text.partition("\n")[2]


class Failures(tuple[Failure, ...]):
    """The failed attempts of a message, the newest first."""

    __slots__ = ()

    @classmethod
    def parse(cls, history: bytes) -> Self:
        """Parse the error field of a message; what is not UTF-8 is escaped."""
        return cls(map(_failure, history.split(_ENTRIES)) if history else ())

    def as_bytes(self) -> bytes:
        """Return the encoded history of these failures."""
        return _ENTRIES.join(_entry(one) for one in self)

    @classmethod
    def of(cls, failures: Iterable[Failure]) -> Self:
        """Return these, the newest first."""
        return cls(failures)


def newest_line(history: bytes) -> str:
    """Return the first line of the newest error; empty if there is no error."""
    text = history.partition(_ENTRIES)[0].partition(_FIELDS)[0]
    return first_line(text.decode(errors="backslashreplace"))


def _failure(entry: bytes) -> Failure:
    text, *rest = entry.split(_FIELDS)
    told = text.decode(errors="backslashreplace")
    if len(rest) == 2 and all(part.isdigit() for part in rest):
        return Failure(told, int(rest[0]), int(rest[1]))
    # An error stored by an older release may have any bytes.
    return Failure(entry.decode(errors="backslashreplace"), None, None)


def _entry(one: Failure) -> bytes:
    text = one.text.encode(errors="surrogateescape")
    if one.attempt is None or one.time is None:
        return text
    return _FIELDS.join((text, b"%d" % one.attempt, b"%d" % one.time))


def error_group(line: str) -> str:
    """Return the common form of errors of one kind: numbers and apparent ids become N."""
    return VARIES.sub("N", line.partition("\n")[0])[:LONGEST_GROUP]


VARIES = re.compile(r"\b0x[0-9a-fA-F]+\b|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\d+")
LONGEST_GROUP = 300
"""Maximum number of characters."""
