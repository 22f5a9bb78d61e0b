"""A refusal of a server: its text, and a client's reaction."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

Course = Literal["retry", "raise", "end"]
"""The reaction of a client to a refusal.

``retry``: repeats the call while it has time, and then raises EngineUnavailable. ``raise``: raises
immediately; a worker and `consume` log that and ask again later. ``end``: raises immediately, and
the worker or `consume` ends too, because repeating would not help.
"""

# Redis 7.0 adds the position in the library to an error in a function.
_BEFORE = r"(?:ERR )?(?:@?user_(?:function|script):\d+: )?(?:ERR |-)?"

TENANT = (
    "+@hash +@list +@set +@sortedset +@string +del +unlink +exists +rename +pexpire +time "
    "+ping +fcall"
)
"""Permissions of a Redis user: those of a client and a worker if an operator installs the
library."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One refusal of servers, in one or several wordings."""

    said: str
    """The beginning of the reply: a regular expression, after ``ERR`` if the server sends that."""
    course: Course
    who: str
    """The servers that use this wording."""
    when: str
    advice: str = ""
    raises: str = "EngineUnavailable"
    unsure: bool = False
    """The call may nevertheless have taken effect."""
    ends: bool = False
    """The connection can no longer be used."""
    shown: str = ""
    """Wording for the page; empty: as `said`."""
    pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)
    anywhere: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        word = r"\b" if self.said[-1].isalpha() else ""
        object.__setattr__(self, "pattern", re.compile(f"{_BEFORE}(?:{self.said}){word}"))
        object.__setattr__(self, "anywhere", re.compile(rf"\b(?:{self.said}){word}"))
