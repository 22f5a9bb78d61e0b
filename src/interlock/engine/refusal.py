"""A refusal of a server: what it says, and what a client does about it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

Course = Literal["retry", "raise", "end"]
"""The act of a client after a refusal.

``retry``: asks again as long as the call has time, and then raises EngineUnavailable. ``raise``:
raises at once; a worker and `consume` say so in the log and ask again later. ``end``: raises at
once, and they end with it, for no repeat would help.
"""

# Redis 7.0 says of an error in a function where in the library it was.
_BEFORE = r"(?:ERR )?(?:@?user_(?:function|script):\d+: )?(?:ERR |-)?"

TENANT = (
    "+@hash +@list +@set +@sortedset +@string +del +unlink +exists +rename +pexpire +time "
    "+ping +fcall"
)
"""Of a user of Redis: what a client and a worker need where an operator installs the library."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One thing that servers say, in one of their wordings or in several."""

    said: str
    """The begin of the reply: a regular expression, behind ``ERR`` if the server says that."""
    course: Course
    who: str
    """The servers that say so."""
    when: str
    advice: str = ""
    raises: str = "EngineUnavailable"
    unsure: bool = False
    """The call may have been done all the same."""
    ends: bool = False
    """The connection is of no use any more."""
    shown: str = ""
    """As the page names it; empty: as `said`."""
    pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)
    anywhere: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        word = r"\b" if self.said[-1].isalpha() else ""
        object.__setattr__(self, "pattern", re.compile(f"{_BEFORE}(?:{self.said}){word}"))
        object.__setattr__(self, "anywhere", re.compile(rf"\b(?:{self.said}){word}"))
