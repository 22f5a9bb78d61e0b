"""The record of a test: sent and handled calls, raised errors; and its interface to the
timetable."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["Noted", "TestCall", "Timetable"]


@dataclass(frozen=True, slots=True)
class TestCall:
    """One call of a task in a test."""

    __test__ = False  # keeps pytest from collecting it, for its name

    task: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    queue: str
    id: int
    keys: frozenset[bytes] = frozenset()
    shared: frozenset[bytes] = frozenset()
    attempt: int = 0
    """Attempt at which it was handled; 0 if it was only sent."""
    error: str = ""
    """Last error of a dead letter."""


@dataclass(slots=True)
class Noted:
    """The record of a test."""

    sent: list[TestCall] = field(default_factory=list)
    acked: list[TestCall] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)


class Timetable(Protocol):
    """The timetable of an app, as a test advances it."""

    def begin(self) -> None:
        """Put the timers of all entries."""

    def due(self) -> float | None:
        """Return the time of the next tick, in seconds since 1970; None if there is no tick."""

    def fire(self) -> int:
        """Send the calls that are due; return the number of timers that were due."""
