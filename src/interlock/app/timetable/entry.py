"""One entry of a timetable: which call is sent at which ticks."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import msgspec

from interlock.app.timetable.schedule import Schedule

if TYPE_CHECKING:
    from interlock.app.job import Job
    from interlock.app.task import AsyncTask, Task

__all__ = ["Args", "Definition", "Due", "Entry", "Kwargs", "Missed", "moment"]

Missed = Literal["skip", "once", "all"]
Args = Sequence[Any] | Callable[[dt.datetime], Sequence[Any]]
Kwargs = Mapping[str, Any] | Callable[[dt.datetime], Mapping[str, Any]]


class Due(NamedTuple):
    """The ticks to fire."""

    ticks: list[int]
    dropped: bool
    """More ticks were missed that are not fired, because of the entry's policy or because they are
    too many."""


class Definition(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The part of a stored entry that a declared one's timer lacks: values of JSON."""

    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    copies: int = 0
    number: int = 0
    """Id of the message that set the entry, so that each change has timers of its own."""


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One entry, checked where it was declared or added."""

    name: str
    task: Task[..., Any] | AsyncTask[..., Any]
    schedule: Schedule
    missed: Missed
    args: Args
    kwargs: Kwargs
    copies: int = 0
    """Maximum calls that may be unsettled at once; 0: any number."""
    stored: Definition | None = None
    """Its definition in the engine; None: the app declares it."""

    @property
    def queue(self) -> str:
        """The queue of its task."""
        return self.task.declared.queue

    def due(self, tick: int, now: float) -> Due:
        """Return the ticks to fire now, starting with the pending one."""
        if self.missed == "all":
            return Due(*self.schedule.among(tick, now, MOST))
        last, more = self.schedule.among(tick, now, 1)
        if self.missed == "skip" and last and now - last[0] > LATE:
            return Due([], True)
        return Due(last, more)

    def send(self, tick: int, **options: Any) -> Job[Any]:
        """Send the call of a tick. Raises as ``Task.send``, and whatever ``args`` raises."""
        args, kwargs = self.call(tick)
        task = self.task.options()
        task._options.update(options)
        return task.send(*args, **kwargs)

    def call(self, tick: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of the call of a tick."""
        when = dt.datetime.fromtimestamp(tick, self.schedule.zone)
        args = self.args(when) if callable(self.args) else self.args
        kwargs = self.kwargs(when) if callable(self.kwargs) else self.kwargs
        return tuple(args), dict(kwargs)

    def check(self) -> None:
        """Raise the error that a send of its call would raise, as far as it can be known
        beforehand.

        Arguments that are computed for each tick are not checked.
        """
        if self.task._coalesce is not None:
            raise ValueError(
                f"timetable entry {self.name!r}: task {self.task.name!r} has coalesce; allowed: a "
                "task without, for each tick sends a call of its own"
            )
        if callable(self.args) or callable(self.kwargs):
            return
        self.task._checked(tuple(self.args), dict(self.kwargs))


def check_arguments(
    call: str, name: str, missed: str, args: object, kwargs: object, copies: object = None
) -> None:
    """Check the arguments that all kinds of entries have. Raises TypeError and ValueError."""
    if not isinstance(name, str):
        raise TypeError(f"{call}: name is {type(name).__name__}; allowed: str")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{call}: name is {name[:80]!r}; allowed: UTF-8 ({error})") from None
    if not 1 <= len(name.encode()) <= LONGEST_NAME:
        raise ValueError(f"{call}: name is {name[:80]!r}; allowed: 1 to {LONGEST_NAME} bytes")
    if missed not in get_args(Missed):
        raise ValueError(f"{call}: missed is {missed!r}; allowed: 'skip', 'once', 'all'")
    if copies is not None:
        if isinstance(copies, bool) or not isinstance(copies, int):
            raise TypeError(f"{call}: copies is {type(copies).__name__}; allowed: int or None")
        if not 1 <= copies <= MOST_COPIES:
            raise ValueError(f"{call}: copies is {copies}; allowed: 1 to {MOST_COPIES}, or None")
    if not callable(args) and (isinstance(args, str | bytes) or not isinstance(args, Sequence)):
        kind = type(args).__name__
        raise TypeError(f"{call}: args is {kind}; allowed: a tuple or list, or a function of the "
                        f"tick's time that returns one")  # fmt: skip
    if not callable(kwargs) and not isinstance(kwargs, Mapping):
        kind = type(kwargs).__name__
        raise TypeError(f"{call}: kwargs is {kind}; allowed: a dict, or a function of the tick's "
                        f"time that returns one")  # fmt: skip


def moment(tick: int) -> str:
    """Return a tick's time as text, in UTC."""
    return dt.datetime.fromtimestamp(tick, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


LATE = 60.0
"""Seconds after which a tick counts as missed."""
MOST = 1000
"""Missed ticks that are made up for in one go."""
LONGEST_NAME = 200
MOST_COPIES = 100
"""A timer lists the calls that it counts."""
