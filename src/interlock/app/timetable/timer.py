"""The message by which a queue of timers knows the next tick of an entry."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import msgspec

from interlock.app.timetable.entry import Definition, Entry, Missed, moment
from interlock.app.timetable.schedule import Cron, Every, Schedule
from interlock.retry import Retry

__all__ = ["SUFFIX", "Timer", "call_name", "entry_of", "queue_name", "timer_name", "window"]

SUFFIX = ":timetable"


class Timer(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The payload: JSON, because operators read it too."""

    name: str
    """Name of the entry."""
    task: str
    schedule: str
    """As ``Schedule.text``: a worker whose entry has a different one leaves this timer alone."""
    missed: Missed
    tick: int
    """The next tick, in seconds since 1970. A change has 0."""
    last: int = 0
    """The tick that was fired before it; 0: none."""
    sent: list[int] = []
    """Ids of calls that were sent and may be unsettled, where the entry bounds their number."""
    stored: Definition | None = None
    """The rest of an entry that no app declares: it was added at run time."""
    change: Literal["", "set", "remove"] = ""
    """It is not a timer but sets or removes the entry."""
    dedup: str = ""
    """The dedup string of this message of a stored entry. The queue knows it until the message is
    settled, and takes no timer in its place afterwards."""

    def is_of(self, entry: Entry | None) -> bool:
        """Return whether it is a tick of this entry."""
        return (
            entry is not None
            and self.stored is None
            and self.schedule == entry.schedule.text
            and self.task == entry.task.name
        )


class Unread(msgspec.Struct):
    """A timer or change as far as a release reads it that does not know its form."""

    name: str
    tick: int
    last: int = 0
    task: str = ""
    schedule: str = ""
    stored: Any = None


_Found = TypeVar("_Found", Timer, Unread)


def queue_name(queue: str) -> str:
    """Return the name of the queue with the timers of the tasks on a queue."""
    return queue + SUFFIX


def timer(entry: Entry, tick: int, last: int = 0, sent: list[int] | None = None) -> Timer:
    """Return the timer of a tick."""
    return Timer(
        entry.name, entry.task.name, entry.schedule.text, entry.missed, tick, last, sent or [],
        entry.stored,
    )  # fmt: skip


def entry_of(timer: Timer, tasks: Mapping[str, Any], queue: str) -> Entry | None:
    """Return the entry that a timer contains; None: this app has no such task on this queue.

    Raises:
        ValueError: this machine does not know the time zone, or the schedule is invalid.
    """
    task, found = tasks.get(timer.task), timer.stored
    if found is None or task is None or task.declared.queue != queue:
        return None
    schedule = schedule_of(timer.schedule)
    return Entry(
        timer.name, task, schedule, timer.missed, found.args, found.kwargs, found.copies, found
    )


@functools.lru_cache(1024)
def schedule_of(text: str) -> Schedule:
    """Return the schedule that has this text. Raises ValueError."""
    if text.startswith("every "):
        return Every(text.removeprefix("every "))
    expression, _, zone = text.rpartition(" ")
    return Cron(expression, zone)


def timer_name(entry: Entry, tick: int) -> str:
    """Return the dedup string of a timer: specific to a schedule, because two schedules have
    different ticks."""
    # Back to an earlier schedule is another change: its ticks have new timers.
    change = f" of {entry.stored.number}" if entry.stored else ""
    return f"{entry.name} {entry.schedule.text} {moment(tick)}{change}"


def call_name(entry: Entry, tick: int) -> str:
    """Return the dedup string of the call of a tick, independent of the schedule."""
    return f"cron:{entry.name}:{moment(tick)}"


def window(entry: Entry, tick: int) -> float:
    """Return the seconds for which the strings of a tick stay known after settlement."""
    return float(max(SHORTEST_WINDOW, 2 * (entry.schedule.after(tick) - tick)))


def encode(timer: Timer) -> bytes:
    """Return the timer as encoded on the wire."""
    return _encode(timer)


def decode(payload: bytes) -> Timer | None:
    """Return the timer of a message; None if the message is not a timer."""
    return _read(_decode, payload)


def unread(payload: bytes) -> Unread | None:
    """Return what can be read of a payload that is perhaps a timer of a newer release."""
    return _read(_decode_unread, payload)


def _read(form: Callable[[bytes], _Found], payload: bytes) -> _Found | None:
    try:
        found = form(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return found if _has_dates(found) else None


def _has_dates(found: Timer | Unread) -> bool:
    """Return whether its times are in years of the calendar: others can be neither formatted nor
    waited for."""
    try:
        moment(found.tick), moment(found.last)
    except (ValueError, OverflowError, OSError):
        return False
    return min(found.tick, found.last) >= 0


SHORTEST_WINDOW = 3600
FOR_EVER = Retry(attempts=None, first=1, longest=60)
"""The policy of all messages of such a queue."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Timer).decode
_decode_unread = msgspec.json.Decoder(Unread).decode
