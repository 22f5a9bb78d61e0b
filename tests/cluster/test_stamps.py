"""Stamps: never twice, never back, in one order also as bytes."""

from __future__ import annotations

import random

import pytest

from interlock.cluster.stamps import NEVER, HybridClock, hybrid, packed, unpacked
from tests import seeds
from tests.cluster.rows import Time


def test_stamps_only_rise_whatever_the_time_of_day_does() -> None:
    chance, time = random.Random(seeds.seed()), Time()
    clock = time.clock("east")
    last = clock.next()
    assert last == (hybrid(time.ms), "east")
    for _ in range(2000):
        time.ms += chance.choice([0, 0, 0, 1, 5, -3, -1000])
        if chance.random() < 0.1:
            seen = (hybrid(time.ms) + chance.randrange(-(10**9), 10**9), "west")
            clock.saw(seen)
            assert clock.next() > seen
        stamp = clock.next(time.ms if chance.random() < 0.5 else None)
        assert stamp > last and stamp[0] >= hybrid(time.ms)
        assert clock.ms == stamp[0] >> 16
        last = stamp


def test_a_clock_goes_by_the_time_of_day_again_when_that_has_come() -> None:
    time = Time()
    clock = time.clock("east")
    clock.saw((hybrid(time.ms + 1000), "west"))
    assert clock.next() == (hybrid(time.ms + 1000) + 1, "east")
    time.ms += 1001
    assert clock.next() == (hybrid(time.ms), "east")


def test_packed_stamps_are_in_the_order_of_stamps() -> None:
    chance = random.Random(seeds.seed())
    names = ["", "a", "ab", "b", "east", "east.1", "east.zz", "west", "Z", "_", "-"]
    stamps = [(chance.choice([0, 1, 255, 256, chance.getrandbits(58)]), n) for n in names * 30]
    assert [unpacked(packed(stamp)) for stamp in stamps] == stamps
    assert sorted(stamps) == [unpacked(text) for text in sorted(map(packed, stamps))]
    assert unpacked(NEVER) == (0, "") and packed((0, "")) > NEVER


def test_terms_are_named_in_stamps_and_differ() -> None:
    clock = Time().clock("east")
    names = set()
    for token in [*range(1, 100), 36**5, 2**62]:
        clock.begin_term(token)
        dc, _, term = clock.next()[1].partition(".")
        assert (dc, int(term, 36)) == ("east", token)
        names.add(term)
    assert len(names) == 101


@pytest.mark.parametrize("dc", ["", "a b", "ä", "x" * 33, "a.b", "a\n"])
def test_a_data_centre_has_a_short_and_plain_name(dc: str) -> None:
    with pytest.raises(ValueError, match=r"dc is .*; allowed: 1 to 32 letters, digits, '-' and"):
        HybridClock(dc)


def test_without_a_source_it_is_the_systems_time() -> None:
    import time

    before = time.time_ns() // 1_000_000
    reading, _ = HybridClock("east").next()
    assert hybrid(before) <= reading <= hybrid(time.time_ns() // 1_000_000)
