"""The times of a timetable's ticks: a cron expression in a time zone, or a fixed interval.

A tick is identified by its time, in whole seconds since 1970, and a schedule gives the same ticks
on every machine: they depend only on its text and the requested time.
"""

from __future__ import annotations

import bisect
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
        """Text of the schedule: two schedules with the same text have the same ticks."""

    @property
    def zone(self) -> dt.tzinfo:
        """The time zone of its times."""

    def after(self, time: float) -> int:
        """Return the first tick after this time."""

    def among(self, first: int, last: float, most: int) -> tuple[list[int], bool]:
        """Return the ticks from ``first`` to ``last``, both included, and whether there are more.

        If there are more than ``most``, the latest are returned.
        """


class Cron:
    """The ticks of a cron expression, by the clock of a time zone.

    Five fields, or six with the seconds first. The rules are those of Debian's cron. If the minute
    or the hour begins with ``*``, the ticks are all matching moments, even if the clock is set that
    day. Otherwise each date has its ticks once: a tick that the clock skips is moved to the end of
    the gap, and a tick that occurs twice counts only the first time. If neither day field begins
    with ``*``, a day that matches one of them is enough; else it must match both.
    """

    def __init__(self, expression: str, tz: str) -> None:
        """Check both. Raises TypeError and ValueError for a wrong expression or time zone."""
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
        if self._expression.startswith("@"):
            self._expression = _nickname(expression, self._expression)
        self._fields = self._parsed(expression)
        self._goes_by_passing_time = any(
            field.startswith("*") for field in self._expression.split()[-5:-3]
        )
        self.text = f"{self._expression} {tz}"
        if self._fields.first(0) is None:
            raise ValueError(
                f"cron(): expression is {expression!r}: no date matches it; allowed: one that "
                f"matches some date"
            )

    @property
    def zone(self) -> dt.tzinfo:
        """See ``Schedule``."""
        return self._zone

    def after(self, time: float) -> int:
        """See ``Schedule``."""
        return next(self._from(int(time // 1)))

    def among(self, first: int, last: float, most: int) -> tuple[list[int], bool]:
        """See ``Schedule``."""
        # Searched backwards, in steps that double: an expression may have a tick a second or a tick
        # in four years. Enumerated only forwards, so that each tick is always the same one.
        step = 60.0 * most
        while True:
            begin = max(first - 1, int((last - step) // 1))
            found = []
            for tick in self._from(begin):
                if tick > last:
                    break
                found.append(tick)
            if begin == first - 1 or len(found) > most:
                return found[-most:], len(found) > most
            step *= 4

    def _from(self, time: int) -> Iterator[int]:
        """Yield the ticks after this time: a set that does not depend on the starting point."""
        return self._matching(time) if self._goes_by_passing_time else self._once_each(time)

    def _matching(self, time: int) -> Iterator[int]:
        """Yield all moments at which the clock of the zone matches."""
        at = time + 1
        while True:
            # While the offset is constant, the zone's clock is a sum.
            offset, until = self._offset(at), self._next_offset(at)
            while True:
                found = self._fields.first(at + offset)
                if found is None:
                    return
                if found - offset >= until:
                    break
                at = found - offset
                yield at
                at += 1
            at = until
            # No clock is set back by more than a day. If nothing of that day would match again,
            # nothing does until shortly before the next match.
            if self._fields.first(at + offset - DAY) == found:
                at = max(at, found - offset - 2 * DAY)

    def _once_each(self, time: int) -> Iterator[int]:
        """Yield one moment for each time of the clock that matches."""
        # Later times of the clock never lead to earlier moments, so this is where to begin.
        at = time + self._offset(time) + 1
        while (found := self._fields.first(at)) is not None:
            moment = self._moment(found)
            if moment > time:
                yield moment
                time = moment
            at = found + 1

    def _moment(self, local: int) -> int:
        """Return when the clock first shows a time, or the end of the gap that skips it."""
        before = self._offset_of(local)
        moment = local - before
        if self._offset(moment) == before:
            return moment
        # The gap lies between these two: its end is where the offset changes.
        return self._next_offset(local - max(before, self._offset(moment)) - 1, local - before)

    def _offset(self, time: int) -> int:
        """Return the seconds from UTC to the clock of the zone at a time."""
        return _seconds(dt.datetime.fromtimestamp(time, self._zone))

    def _offset_of(self, local: int) -> int:
        """Return the same for a time of the clock: if it is shown twice or skipped, the offset
        before the clock is set."""
        return _seconds((EPOCH + dt.timedelta(seconds=local)).replace(tzinfo=self._zone))

    def _next_offset(self, time: int, limit: int | None = None) -> int:
        """Return the first moment after this time with another offset, at most half a day later."""
        before, late = self._offset(time), time + DAY // 2 if limit is None else limit
        if self._zone is dt.UTC or self._offset(late) == before:
            return late
        early = time
        while late - early > 1:
            middle = (early + late) // 2
            if self._offset(middle) == before:
                early = middle
            else:
                late = middle
        return late

    def _parsed(self, given: str) -> Fields:
        from cronsim import CronSimError

        fields = self._expression.split()
        if len(fields) not in (5, 6):
            raise ValueError(
                f"cron(): expression is {given!r}, {len(fields)} fields; allowed: five fields "
                f"(minute, hour, day of the month, month, day of the week), six with the second "
                f"in front, or a nickname such as @daily"
            )
        try:
            return Fields(self._expression)
        except CronSimError as error:
            raise ValueError(
                f"cron(): expression is {given!r}: {error}; allowed: five or six fields of "
                f"numbers, ranges (1-5), lists (1,15), steps (*/10), names (MON, JAN), L"
            ) from None


class Fields:
    """The times of a clock that an expression matches, in seconds since its 1970."""

    def __init__(self, expression: str) -> None:
        """Parse it. Raises CronSimError."""
        from cronsim import CronSim

        self._parsed = parsed = CronSim(expression, EPOCH)
        self._hours, self._minutes, self._seconds = (
            sorted(values) for values in (parsed.hours, parsed.minutes, parsed.seconds)
        )

    def first(self, time: int) -> int | None:
        """Return the first one that is not before this time; None if there is no such time."""
        days, time = divmod(time, DAY)
        date = EPOCH.date() + dt.timedelta(days=days)
        last = date.year + YEARS
        while date.year <= last:
            if date.month not in self._parsed.months:
                date, time = (date.replace(day=1) + dt.timedelta(days=32)).replace(day=1), 0
            elif self._parsed.match_day(date) and (found := self._of_day(time)) is not None:
                return (date - EPOCH.date()).days * DAY + found
            else:
                date, time = date + dt.timedelta(days=1), 0
        return None

    def _of_day(self, time: int) -> int | None:
        """Return the first second of a day that is not before this one."""
        given = (time // 3600, time // 60 % 60, time % 60)
        values: list[int] = []
        for at, allowed in enumerate((self._hours, self._minutes, self._seconds)):
            if tuple(values) != given[:at]:
                values.append(allowed[0])
                continue
            place = bisect.bisect_left(allowed, given[at])
            if place == len(allowed):
                return self._carried(given, at)
            values.append(allowed[place])
        hour, minute, second = values
        return hour * 3600 + minute * 60 + second

    def _carried(self, given: tuple[int, int, int], at: int) -> int | None:
        """Return the next time if field `at` has no value this late: the previous field must
        increase."""
        if at == 0:
            return None
        hour, minute, _ = given
        return self._of_day((hour + 1) * 3600 if at == 1 else hour * 3600 + (minute + 1) * 60)


def _nickname(given: str, name: str) -> str:
    """Return the expression of a nickname."""
    if name.lower() == "@reboot":
        raise ValueError(
            "cron(): expression is '@reboot', which names no time; send the task from the app's "
            "lifespan instead"
        )
    found = NICKNAMES.get(name.lower())
    if found is None:
        raise ValueError(
            f"cron(): expression is {given!r}; allowed: {', '.join(NICKNAMES)}, or five or six "
            f"fields"
        )
    return found


def _seconds(moment: dt.datetime) -> int:
    offset = moment.utcoffset()
    assert offset is not None
    return offset.days * DAY + offset.seconds


class Every:
    """Ticks at a fixed interval in seconds, counted from 1970, UTC, on each machine."""

    def __init__(self, period: Seconds | str) -> None:
        """Check it. Raises TypeError and ValueError if it is not a period."""
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
    """Return a time zone. Raises TypeError, and ValueError if it is unknown here."""
    if not isinstance(name, str):
        raise TypeError(f"cron(): tz is {type(name).__name__}; allowed: str")
    if name == "UTC":
        return dt.UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        raise ValueError(
            f"cron(): tz is {name!r}, which this machine does not have; allowed: an IANA time "
            "zone, such as 'Europe/Berlin' (`pip install tzdata` if the system has none)"
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


NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
EPOCH = dt.datetime(1970, 1, 1)
DAY = 86_400
YEARS = 50
"""An expression that does not match for this long never matches."""
PARTS = re.compile(r"(\d{1,9})([wdhms])", re.ASCII)
UNITS = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}
LONGEST = 366 * 86_400
LONGEST_EXPRESSION = 500
"""Maximum length in characters: a timer is known by its entry's name and its schedule, in 1,024
bytes."""
