"""`Rate`: what it is equal to, and its two texts."""

from __future__ import annotations

import datetime as dt
import pickle
import random

import pytest

from interlock import Rate
from interlock.runtime.concurrency import limits_of, limits_text


def test_a_rate_equals_one_of_the_same_numbers_and_cannot_be_changed() -> None:
    rate = Rate(10, per=60, burst=3)
    assert rate == Rate(10, dt.timedelta(minutes=1), 3) and hash(rate) == hash(Rate(10, 60, 3))
    assert rate != Rate(10, 60)
    assert pickle.loads(pickle.dumps(rate)) == rate
    assert repr(Rate(2)) == "Rate(n=2, per=1, burst=1)"
    with pytest.raises(AttributeError):
        rate.n = 5  # type: ignore[misc]


def test_a_rate_is_read_again_from_its_text_and_from_that_of_the_engine() -> None:
    chance = random.Random(7)
    for _ in range(2_000):
        micros = chance.choice([1, 10, 10**6, 10**9, 10**13]) * chance.randrange(1, 100)
        rate = Rate(
            chance.randrange(1, micros + 1) % 10**9 + 1 if micros > 1 else 1,
            dt.timedelta(microseconds=micros + 1),
            chance.randrange(1, 50),
        )
        limits = {"a": rate, "b": 7}
        assert Rate.read(str(rate)) == rate
        assert limits_of(limits_text(limits, "test()")) == limits


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("10/s", Rate(10)),
        ("10/1.5m", Rate(10, 90)),
        ("3/h:2", Rate(3, 3_600, 2)),
        ("1/2d", Rate(1, 172_800)),
    ],
)
def test_a_rate_is_read_in_seconds_minutes_hours_and_days(text: str, rate: Rate) -> None:
    assert Rate.read(text) == rate


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10",
        "10/",
        "10/1",
        "/s",
        "10/s:",
        "10/s:x",
        "1.5/s",
        "1/-1s",
        "1/1ss",
        "1/1.2.3s",
        "1/\u0663s",
    ],
)
def test_a_text_that_is_not_a_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="rate"):
        Rate.read(text)
