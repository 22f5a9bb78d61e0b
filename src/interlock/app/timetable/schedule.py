"""The times of a timetable's ticks: by a cron expression in a time zone, or at a fixed distance.

A tick is known by its time, in whole seconds since 1970, and a schedule tells the same ticks
on every machine: what it answers depends on nothing but its own text and the time asked about.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from typing import Protocol
from zoneinfo import ZoneInfo

from interlock.retry import Seconds

__all__ = ["Cron", "Every", "Schedule", "duration"]


class Schedule(Protocol):
    """The ticks of one entry."""

    @property
    def text(self) -> str:
        """It in words: two schedules with the same text have the same ticks."""

    @property
    def zone(self) -> dt.tzinfo:
        """The time zone in which its times are told."""

    def after(self, time: float) -> int:
        """Return the first tick after this time."""

    def among(self, first: int, last: float, most: int) -> tuple[list[int], bool]:
        """Return the ticks from ``first`` to ``last``, both included, and whether there are more.

        Of more than ``most`` the latest are returned.
        """


class Cron:
    """The ticks of a cron expression of five fields, by the clock of a time zone.

    Daylight saving is as in Debian's cron: a job at fixed hours and minutes whose time the clock
    skips runs once right behind the gap, and one whose time comes twice runs the first time alone;
    a job of ``*`` or ``*/n`` minutes or hours goes by the time that really passes.
    """

    def __init__(self, expression: str, tz: str) -> None:
        """Check both. Raises TypeError and ValueError for what is no expression or time zone."""
        self._zone = zone(tz)
        if not isinstance(expression, str):
            kind = type(expression).__name__
            raise TypeError(f"cron(): expression is {kind}; allowed: str")
        self._expression = " ".join(expression.split())
        if len(self._expression) > LONGEST_EXPRESSION:
            raise ValueError(
                f"cron(): expression has {len(self._expression)} characters; allowed: "
                f"{LONGEST_EXPRESSION}"
            )
        self._checked(expression)
        self.text = f"{self._expression} {tz}"

    @property
    def zone(self) -> dt.tzinfo:
        """See ``Schedule``."""
        return self._zone

    def after(self, time: float) -> int:
        """See ``Schedule``."""
        return next(self._from(time))

    def among(self, first: int, last: float, most: int) -> tuple[list[int], bool]:
        """See ``Schedule``."""
        # Looked for backwards, in steps that double: an expression may have a tick a minute or a
        # tick in four years. Only ever counted forwards, so that each tick is always the same one.
        step = 60.0 * most
        while True:
            begin = max(first - 1, last - step)
            found = []
            for tick in self._from(begin):
                if tick > last:
                    break
                found.append(tick)
            if begin == first - 1 or len(found) > most:
                return found[-most:], len(found) > most
            step *= 4

    def _from(self, time: float) -> Iterator[int]:
        from cronsim import CronSim

        begun = dt.datetime.fromtimestamp(time // 1, self._zone)
        before = time
        for found in CronSim(self._expression, begun):
            tick = int(found.timestamp())
            # Where the clock is set, two of them may be the same moment, or one already over.
            if tick > before:
                yield tick
                before = tick

    def _checked(self, given: str) -> None:
        from cronsim import CronSimError

        fields = self._expression.split()
        if len(fields) != 5:
            raise ValueError(
                f"cron(): expression is {given!r}, {len(fields)} fields; allowed: five fields "
                f"(minute, hour, day of the month, month, day of the week)"
            )
        try:
            self.after(0.0)
        except CronSimError as error:
            raise ValueError(
                f"cron(): expression is {given!r}: {error}; allowed: five fields of numbers, "
                f"ranges (1-5), lists (1,15), steps (*/10), names (MON, JAN), L"
            ) from None
        except StopIteration:
            raise ValueError(
                f"cron(): expression is {given!r}: it never comes; allowed: one with a time"
            ) from None


class Every:
    """Ticks that are so many seconds apart, counted from 1970, UTC, on each machine."""

    def __init__(self, period: Seconds | str) -> None:
        """Check it. Raises TypeError and ValueError for what is no period."""
        length = duration(period)
        if length != int(length) or not 1 <= length <= LONGEST:
            raise ValueError(
                f"every(): period is {period!r}; allowed: whole seconds, from 1 s to a year"
            )
        self.period = int(length)
        """Seconds."""
        self.text = f"every {shown(self.period)}"

    @property
    def zone(self) -> dt.tzinfo:
        """See ``Schedule``."""
        return dt.UTC

    def after(self, time: float) -> int:
        """See ``Schedule``."""
        return int(time // self.period + 1) * self.period

    def among(self, first: int, last: float, most: int) -> tuple[list[int], bool]:
        """See ``Schedule``."""
        begin, end = -(-first // self.period), int(last // self.period)
        cut = end - begin + 1 > most
        begin = max(begin, end - most + 1)
        return [number * self.period for number in range(begin, end + 1)], cut


def zone(name: str) -> dt.tzinfo:
    """Return a time zone. Raises TypeError, and ValueError for one that is not known here."""
    if not isinstance(name, str):
        raise TypeError(f"cron(): tz is {type(name).__name__}; allowed: str")
    if name == "UTC":
        return dt.UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        raise ValueError(
            f"cron(): tz is {name!r}, which this machine does not know; allowed: a name of the "
            f"IANA time zones, such as 'Europe/Berlin' (`pip install tzdata` brings them where "
            f"the system has none)"
        ) from None


def duration(period: Seconds | str) -> float:
    """Return the seconds of a period: a number, a timedelta, or a text such as ``"1h30m"``."""
    if isinstance(period, dt.timedelta):
        return period.total_seconds()
    if isinstance(period, str):
        parts = PARTS.findall(period)
        if not parts or "".join(number + unit for number, unit in parts) != period:
            raise ValueError(
                f"every(): period is {period!r}; allowed: numbers with w, d, h, m or s, such as "
                f"'15m' or '1h30m'"
            )
        return float(sum(int(number) * UNITS[unit] for number, unit in parts))
    if isinstance(period, bool) or not isinstance(period, int | float):
        kind = type(period).__name__
        raise TypeError(f"every(): period is {kind}; allowed: seconds, a timedelta, or a str")
    if period != period or abs(period) == float("inf"):
        raise ValueError(f"every(): period is {period}; allowed: a number of seconds")
    return float(period)


def shown(seconds: int) -> str:
    """Return a period as ``duration`` reads it, the shortest way."""
    text = ""
    for unit, size in UNITS.items():
        number, seconds = divmod(seconds, size)
        text += f"{number}{unit}" if number else ""
    return text


PARTS = re.compile(r"(\d{1,9})([wdhms])", re.ASCII)
UNITS = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}
LONGEST = 366 * 86_400
LONGEST_EXPRESSION = 500
"""Characters: a timer is known by its entry's name and its schedule, in 1,024 bytes."""
