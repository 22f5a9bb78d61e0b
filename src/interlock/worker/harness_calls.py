"""The record of a test: what was sent, handled and raised; and the timetable it goes through."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["Noted", "TestCall", "Timetable"]


@dataclass(frozen=True, slots=True)
class TestCall:
    """One call of a task in a test."""

    __test__ = False  # pytest would take it for a test by its name

    task: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    queue: str
    id: int
    keys: frozenset[bytes] = frozenset()
    shared: frozenset[bytes] = frozenset()
    attempt: int = 0
    """At which it was handled; 0 for one that was only sent."""
    error: str = ""
    """Of a dead letter, its last error."""


@dataclass(slots=True)
class Noted:
    """The record of a test."""

    sent: list[TestCall] = field(default_factory=list)
    acked: list[TestCall] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)


class Timetable(Protocol):
    """The timetable of an app, as a test goes through it."""

    def begin(self) -> None:
        """Put the timers of all entries."""

    def due(self) -> float | None:
        """Return the time of the next tick, in seconds since 1970; None: there is none."""

    def fire(self) -> int:
        """Send what is due by now; return how many timers were."""
