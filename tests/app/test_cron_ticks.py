"""The ticks of cron expressions against a model that looks at each minute, or each second."""

from __future__ import annotations

import datetime as dt
import random
from functools import cache
from zoneinfo import ZoneInfo

import pytest

from interlock.app import App
from interlock.app.timetable import Cron
from tests.seeds import seed

# Zones and days at which their clocks are set: by an hour, half of one, two hours, a whole day; at
# midnight, twice around a Ramadan, and by a zone's own laws.
CHANGES = [
    ("Australia/Lord_Howe", "2024-04-06T15:00"),
    ("Australia/Lord_Howe", "2024-10-05T15:30"),
    ("Europe/Berlin", "2026-03-29T01:00"),
    ("Europe/Berlin", "2026-10-25T01:00"),
    ("America/New_York", "2026-03-08T07:00"),
    ("America/New_York", "2026-11-01T06:00"),
    ("America/St_Johns", "2006-10-29T02:31"),
    ("America/Sao_Paulo", "2018-11-04T03:00"),
    ("America/Caracas", "2016-05-01T07:00"),
    ("Antarctica/Troll", "2026-03-29T01:00"),
    ("Antarctica/Troll", "2026-10-25T01:00"),
    ("Africa/Casablanca", "2026-02-15T02:00"),
    ("Africa/Casablanca", "2026-03-22T02:00"),
    ("Asia/Gaza", "2026-10-23T23:00"),
    ("Asia/Pyongyang", "2015-08-14T15:00"),
    ("Asia/Pyongyang", "2018-05-04T15:00"),
    ("Asia/Kathmandu", "1985-12-31T18:30"),
    ("Pacific/Apia", "2011-12-30T10:00"),
    ("Pacific/Kwajalein", "1993-08-21T12:00"),
    ("Europe/Dublin", "1971-10-31T02:00"),
    ("UTC", "2026-02-28T23:59"),
]
EXPRESSIONS = [
    "* * * * *", "*/7 * * * *", "30 * * * *", "* 2 * * *", "*/20 1-3 * * *", "15 */2 * * *",
    "0 0 * * *", "30 2 * * *", "0,15,45 1,2 * * *", "5-59/13 0-4 * * *", "30 1 */2 * 0",
    "30 1 1,15 * 0", "* 1 * * sun",
    "45 23 L * *", "10 0 * * 6#1", "0 12 29 2 *", "0 0 1 1 *", "59 23 * * 5L",
]  # fmt: skip
WITH_SECONDS = [
    "* * * * * *", "*/25 * * * * *", "30 30 * * * *", "15,45 */30 2 * * *", "1 30 2 * * *",
    "*/20 0 0,1,2 * * *",
]  # fmt: skip
DAY = 86_400


def values(field: str, least: int, most: int, names: str = "") -> set[int]:
    """Read a field as crontab(5) has it; L and # are left to the caller."""
    found: set[int] = set()
    for part in field.upper().split(","):
        span, _, step = part.partition("/")
        begin, _, end = span.partition("-")
        if span == "*":
            begin, end = str(least), str(most)
        if begin in names.split():
            begin = str(names.split().index(begin))
        found |= set(range(int(begin), int(end or begin) + 1, int(step or 1)))
    return found


class Model:
    """Says of a time of the clock whether it matches, by the words of crontab(5)."""

    def __init__(self, expression: str) -> None:
        fields = expression.split()
        self.seconds = values(fields.pop(0), 0, 59) if len(fields) == 6 else {0}
        minute, hour, self.day, month, self.weekday = fields
        self.minutes, self.hours = values(minute, 0, 59), values(hour, 0, 23)
        self.months = values(month, 1, 12)
        self.is_passing = minute[0] == "*" or hour[0] == "*"
        self.of_date = cache(self._of_date)

    def _of_date(self, date: dt.date) -> bool:
        following, in_a_week = date + dt.timedelta(days=1), date + dt.timedelta(days=7)
        number, weekday = self.day, self.weekday
        by_number = following.day == 1 if number == "L" else date.day in values(number, 1, 31)
        if "#" in weekday:
            of, nth = weekday.split("#")
            by_weekday = date.isoweekday() % 7 == int(of) and (date.day + 6) // 7 == int(nth)
        elif weekday.endswith("L"):
            is_last = in_a_week.month != date.month
            by_weekday = date.isoweekday() % 7 == int(weekday[:-1]) and is_last
        else:
            names = "SUN MON TUE WED THU FRI SAT"
            by_weekday = date.isoweekday() % 7 in {n % 7 for n in values(weekday, 0, 7, names)}
        # The first character alone decides, so `*/2` counts as a star.
        both = number[0] == "*" or weekday[0] == "*"
        return by_number and by_weekday if both else by_number or by_weekday

    def matches(self, clock: dt.datetime) -> bool:
        return (
            clock.second in self.seconds and clock.minute in self.minutes
            and clock.hour in self.hours and clock.month in self.months
            and self.of_date(clock.date())
        )  # fmt: skip

    def ticks(self, shown: list[tuple[int, dt.datetime]], step: dt.timedelta) -> list[int]:
        """Go through what the clock of a zone has shown, moment by moment."""
        found, latest = [], shown[0][1]
        for time, clock in shown[1:]:
            is_tick = self.is_passing and self.matches(clock)
            # A time that was shown before does not count again; one that is skipped counts now.
            while latest < clock:
                latest += step
                is_tick = is_tick or (not self.is_passing and self.matches(latest))
            if is_tick:
                found.append(time)
        return found


def shown(zone: str, begin: int, end: int, step: int) -> list[tuple[int, dt.datetime]]:
    def clock(time: int) -> dt.datetime:
        return dt.datetime.fromtimestamp(time, ZoneInfo(zone)).replace(tzinfo=None, fold=0)

    return [(time, clock(time)) for time in range(begin, end, step)]


def compare(zone: str, expressions: list[str], around: int, reach: int, step: int) -> None:
    chosen = random.Random(seed())
    begin, end = around - reach, around + reach
    clocks = shown(zone, begin, end, step)
    for expression in expressions:
        expected = Model(expression).ticks(clocks, dt.timedelta(seconds=step))
        schedule = Cron(expression, zone)
        assert schedule.among(begin + 1, end - 1, 10**6) == (expected, False), expression
        # One at a time, from any moment on: the same set.
        starts = [chosen.randrange(begin, end) for _ in range(12)]
        starts += [around + near for near in (-3601, -1800, -60, -1, 0, 1, 60, 1799, 3600)]
        for start in starts:
            following = next((tick for tick in expected if tick > start), None)
            found = schedule.after(start)
            assert found == following if following else found >= end, (expression, start)
        for start in chosen.sample(expected, min(len(expected), 3)):
            come: list[int] = []
            last = start - 1
            while len(come) < 40 and (last := schedule.after(last)) < end:
                come.append(last)
            at = expected.index(start)
            assert come == expected[at : at + 40], (expression, start)


def at(text: str) -> int:
    """The moment of a change. It may be some hours off: a day and a half around it is compared."""
    return int(dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC).timestamp()) // 60 * 60


@pytest.mark.parametrize(("zone", "change"), CHANGES)
def test_ticks_are_those_of_a_model_that_looks_at_each_minute(zone: str, change: str) -> None:
    some = random.Random(seed()).sample(EXPRESSIONS, 9)
    compare(zone, some, at(change), 36 * 3600, 60)


@pytest.mark.parametrize(("zone", "change"), [*CHANGES, ("Africa/Monrovia", "1972-01-07T00:44")])
def test_ticks_are_those_of_a_model_that_looks_at_each_second(zone: str, change: str) -> None:
    some = random.Random(seed()).sample(WITH_SECONDS, 3)
    compare(zone, some, at(change), 4200, 1)


def test_a_half_hour_clock_change_loses_no_tick() -> None:
    # The clock of Lord Howe goes back by half an hour at 02:00 on the 7th of April 2024.
    schedule = Cron("* 7 * * 0", "Australia/Lord_Howe")
    begin = at("2024-04-05T20:00")
    assert len(schedule.among(begin, begin + 2 * DAY, 100)[0]) == 60


def test_a_repeated_hour_has_its_ticks_twice() -> None:
    schedule = Cron("* 1 * * sun", "America/New_York")
    begin = at("2026-10-31T12:00")
    assert len(schedule.among(begin, begin + 2 * DAY, 200)[0]) == 120


@pytest.mark.parametrize(
    ("expression", "following"),
    [
        ("0 0 13 * 5", "2026-11-06T00:00"),  # the 13th, and each Friday
        ("0 0 */2 * 5", "2026-11-13T00:00"),  # Fridays of odd number: the field begins with a star
        ("0 0 1-31/2 * 5", "2026-11-03T00:00"),
        ("0 0 14 * */5", "2027-02-14T00:00"),
    ],
)
def test_two_day_fields_are_combined_as_in_debian(expression: str, following: str) -> None:
    assert Cron(expression, "UTC").after(at("2026-11-01T12:00")) == at(following)


@pytest.mark.parametrize(
    ("nickname", "expression"),
    [
        ("@yearly", "0 0 1 1 *"), ("@annually", "0 0 1 1 *"), ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"), ("@daily", "0 0 * * *"), ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"), (" @Daily ", "0 0 * * *"),
    ],
)  # fmt: skip
def test_a_nickname_is_the_same_schedule_as_its_expression(nickname: str, expression: str) -> None:
    assert Cron(nickname, "Europe/Berlin").text == Cron(expression, "Europe/Berlin").text


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("@reboot", "names no time; send the task from the app's lifespan"),
        ("@fortnightly", "expression is '@fortnightly'; allowed: @yearly, .*@hourly, or five"),
        ("@daily 5", "expression is '@daily 5'; allowed: @yearly"),
        ("60 * * * * *", "Bad second; allowed"),
        ("* * * * * * *", "7 fields; allowed: five .*, six with the second in front"),
        ("0 0 31 2,4 1#6", "Bad day-of-week; allowed"),
        ("0 0 30 2 *", "Bad day-of-month; allowed"),
    ],
)
def test_an_invalid_expression_is_refused(expression: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        App("memory://").cron(expression)
