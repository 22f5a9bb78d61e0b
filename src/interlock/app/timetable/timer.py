"""The message by which a queue of timers knows the next tick of an entry."""

from __future__ import annotations

import msgspec

from interlock.app.timetable.entry import Entry, moment

__all__ = ["SUFFIX", "Timer", "call_name", "queue_name", "timer_name", "window"]

SUFFIX = ":timetable"


class Timer(msgspec.Struct, omit_defaults=True):
    """The payload: JSON, because operators read it too."""

    name: str
    """Name of the entry."""
    task: str
    schedule: str
    """As ``Schedule.text``: a worker whose entry has a different one leaves this timer alone."""
    missed: str
    tick: int
    """The next tick, in seconds since 1970."""
    last: int = 0
    """The tick that was fired before it; 0: none."""

    def is_of(self, entry: Entry | None) -> bool:
        """Return whether it is a tick of this entry."""
        return (
            entry is not None
            and self.schedule == entry.schedule.text
            and self.task == entry.task.name
        )


def queue_name(queue: str) -> str:
    """Return the name of the queue with the timers of the tasks on a queue."""
    return queue + SUFFIX


def timer(entry: Entry, tick: int, last: int = 0) -> Timer:
    """Return the timer of a tick."""
    return Timer(entry.name, entry.task.name, entry.schedule.text, entry.missed, tick, last)


def timer_name(entry: Entry, tick: int) -> str:
    """Return the dedup string of a timer: specific to a schedule, because two schedules have
    different ticks."""
    return f"{entry.name} {entry.schedule.text} {moment(tick)}"


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
    try:
        found = _decode(payload)
        # Years of the calendar; other times can be neither formatted nor waited for.
        moment(found.tick), moment(found.last)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, OverflowError, OSError):
        return None
    return found if min(found.tick, found.last) >= 0 else None


SHORTEST_WINDOW = 3600
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Timer).decode
