"""Timetables: which ticks a schedule has, and that each is sent once, in the time of a test."""

from __future__ import annotations

import datetime as dt
import json
import logging
import random
from collections.abc import Iterator
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from interlock.app import App
from interlock.app.timetable import Cron, Every
from interlock.app.timetable import timer as timers
from interlock.app.timetable.keeper import MOST_LEFT, Keeper
from interlock.app.timetable.runner import by_queue
from interlock.errors import EngineUnavailable, Full
from interlock.testing import TestWorker

START = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)
SEED = random.SystemRandom().randrange(2**32)


def of(text: str, zone: str) -> float:
    return dt.datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def ticks(schedule: Any, begin: float, count: int) -> list[str]:
    found = []
    for _ in range(count):
        begin = schedule.after(begin)
        found.append(dt.datetime.fromtimestamp(begin, schedule.zone).strftime("%d %H:%M%z"))
    return found


@pytest.mark.parametrize(
    ("expression", "from_", "expected"),
    [
        # The clock goes from 02:00 to 03:00 on the 29th of March, and back on the 25th of October.
        ("30 2 * * *", "2026-03-28T00:00", ["28 02:30+0100", "29 03:00+0200", "30 02:30+0200"]),
        ("0 2,3 * * *", "2026-03-29T00:00", ["29 03:00+0200", "30 02:00+0200", "30 03:00+0200"]),
        ("30 2 * * *", "2026-10-24T12:00", ["25 02:30+0200", "26 02:30+0100"]),
        ("30 * * * *", "2026-10-25T01:00",
         ["25 01:30+0200", "25 02:30+0200", "25 02:30+0100", "25 03:30+0100"]),
        ("*/30 1-2 * * *", "2026-03-29T00:59", ["29 01:00+0100", "29 01:30+0100", "30 01:00+0200"]),
        ("0 0 31 * *", "2026-04-01T00:00", ["31 00:00+0200", "31 00:00+0200", "31 00:00+0200"]),
    ],
)  # fmt: skip
def test_a_cron_expression_uses_the_local_time_of_its_zone(
    expression: str, from_: str, expected: list[str]
) -> None:
    schedule = Cron(expression, "Europe/Berlin")
    assert ticks(schedule, of(from_, "Europe/Berlin"), len(expected)) == expected


def test_ticks_rise_where_the_clock_goes_back() -> None:
    schedule = Cron("30 2 * * *", "Europe/Berlin")
    # Between the two 02:30 of that night: the first was the tick.
    between = of("2026-10-25T02:30", "Europe/Berlin") + 1800
    assert ticks(schedule, between, 1) == ["26 02:30+0100"]


@pytest.mark.parametrize("expression", ["* * * * *", "*/7 3 * * *", "30 2 * * *", "0 4 29 2 *"])
def test_missed_ticks_equal_the_ticks_the_schedule_lists(expression: str) -> None:
    schedule = Cron(expression, "Europe/Berlin")
    chosen = random.Random(SEED)
    for _ in range(5):
        first = schedule.after(of("2026-01-01T00:00", "Europe/Berlin") + chosen.randrange(10**8))
        come = [first]
        for _ in range(chosen.randrange(30)):
            come.append(schedule.after(come[-1]))
        last = come[-1] + chosen.randrange(max(schedule.after(come[-1]) - come[-1], 1))
        for most in (1, 3, len(come), 100):
            found = schedule.among(first, last, most)
            assert found == (come[-most:], len(come) > most), (SEED, first, last, most)
        assert schedule.among(last + 1, last, 10)[0] == []


@pytest.mark.parametrize(
    ("period", "seconds"),
    [("15m", 900), ("1h30m", 5400), ("1d", 86400), (10, 10), (dt.timedelta(minutes=2), 120)],
)
def test_ticks_of_an_interval_are_multiples_since_1970(period: Any, seconds: int) -> None:
    schedule = Every(period)
    begin = START.timestamp() + 1
    tick = schedule.after(begin)
    assert tick % seconds == 0 and begin < tick <= begin + seconds
    assert schedule.after(tick) == tick + seconds
    assert schedule.among(tick, tick + 5 * seconds + 1, 4) == (
        [tick + n * seconds for n in (2, 3, 4, 5)], True,
    )  # fmt: skip
    assert schedule.among(tick, tick + seconds, 2) == ([tick, tick + seconds], False)


@pytest.mark.parametrize(
    ("declare", "error"),
    [
        (lambda app: app.cron("* * * *"), "4 fields; allowed: five"),
        (lambda app: app.cron("* * * * * * *"), "7 fields; allowed: five"),
        (lambda app: app.cron("61 * * * *"), "expression is '61 .*: Bad minute; allowed"),
        (lambda app: app.cron("0 0 30 2 *"), "expression is '0 0 30 2 .*; allowed"),
        (lambda app: app.cron(7), "expression is int; allowed: str"),
        (lambda app: app.cron("0 0 * * *", tz="Mars/Base"), "tz is 'Mars/Base', .*; allowed"),
        (lambda app: app.cron("0 0 * * *", tz=None), "tz is NoneType; allowed: str"),
        (lambda app: app.cron("0 0 * * *", missed="never"), "missed is 'never'; allowed: 'skip'"),
        (lambda app: app.cron("0 0 * * *", name=""), "name is ''; allowed: 1 to 200 bytes"),
        (lambda app: app.cron("0 0 * * *", name="\ud800"), "name is .*; allowed: UTF-8"),
        (lambda app: app.cron("0,0" + ",0" * 250 + " 0 * * *"), "511 characters; allowed: 500"),
        (lambda app: app.cron("0 0 * * *", args="ann"), "args is str; allowed: a tuple"),
        (lambda app: app.cron("0 0 * * *", kwargs=[1]), "kwargs is list; allowed: a dict"),
        (lambda app: app.every("15"), "period is '15'; allowed: numbers with w, d"),
        (lambda app: app.every("m15"), "period is 'm15'; allowed"),
        (lambda app: app.every(0), "period is 0; allowed: whole seconds, from 1 s"),
        (lambda app: app.every(1.5), "period is 1.5; allowed: whole seconds"),
        (lambda app: app.every(float("nan")), "period is nan; allowed"),
        (lambda app: app.every(True), "period is bool; allowed: seconds"),
    ],
)
def test_an_invalid_schedule_is_refused_at_the_declaration(declare: Any, error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        declare(App("memory://"))


def test_the_call_is_checked_at_the_declaration() -> None:
    app = App("memory://")
    with pytest.raises(TypeError, match="is not a task; write it above"):
        app.every("1m")(lambda: None)  # type: ignore[type-var]

    @app.task(keys="day:{day}")
    def close(day: str) -> None: ...

    with pytest.raises(TypeError, match=r"close\(day\): missing .*; give args= or kwargs="):
        app.cron("0 3 * * *")(close)
    with pytest.raises(ValueError, match="key"):
        app.cron("0 3 * * *", args=[""])(app.task(name="bare", keys="{day}")(close.function))
    assert app.cron("0 3 * * *", args=["today"])(close) is close
    with pytest.raises(ValueError, match="'close' is already an entry of the timetable; give"):
        app.cron("0 4 * * *", args=["today"])(close)
    app.cron("0 4 * * *", args=["today"], name="close again")(close)
    assert list(app.timetable) == ["close", "close again"]


# -- In a test's time -------------------------------------------------------------------------


class Shop:
    """An app with one entry, and what came of it."""

    def __init__(self, schedule: str = "1h", **options: Any) -> None:
        self.app = App("memory://")
        self.seen: list[str] = []

        def look(at: str) -> None:
            self.seen.append(at)

        self.task = self.app.task(name="look")(look)
        options.setdefault("args", lambda when: [when.strftime("%d %H:%M")])
        self.app.every(schedule, **options)(self.task)


@pytest.fixture
def shop() -> Shop:
    return Shop()


def keepers(app: App, worker: TestWorker) -> list[Keeper]:
    return [
        Keeper(name, found, app._open) for name, found in by_queue(app.timetable.values()).items()
    ]


def test_advance_stops_at_each_tick(shop: Shop) -> None:
    with shop.app.testing(start=START) as worker:
        assert worker.run_until_idle() == 0
        worker.advance(3599)
        assert worker.run_until_idle() == 0
        worker.advance(1)
        assert worker.run_until_idle() == 1
        worker.advance(dt.timedelta(hours=3))
        assert [call.args for call in worker.sent[1:]] == [
            ("23 14:00",), ("23 15:00",), ("23 16:00",),
        ]  # fmt: skip
        worker.run_until_idle()
        assert shop.seen == ["23 13:00", "23 14:00", "23 15:00", "23 16:00"]
        assert worker.clock.now() == pytest.approx(START.timestamp() + 4 * 3600, abs=1e-5)


@pytest.mark.parametrize(
    ("missed", "gone", "expected"),
    [
        ("once", 10 * 3600 + 1800, ["23 22:00"]),
        ("skip", 10 * 3600 + 1800, []),
        ("skip", 10 * 3600 + 59, ["23 22:00"]),
        ("all", 3 * 3600 + 5, ["23 13:00", "23 14:00", "23 15:00"]),
    ],
)
def test_missed_ticks_are_made_up_for_by_the_policy(
    missed: Any, gone: float, expected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    shop = Shop(missed=missed)
    with shop.app.testing(start=START) as worker:
        worker.clock.advance(gone)  # with no worker
        worker.run_until_idle()
        assert shop.seen == expected
        if missed != "all":
            assert "missed ticks since 2026-11-23T13:00:00Z" in caplog.text
        worker.advance(3600)
        worker.run_until_idle()
        assert len(shop.seen) == len(expected) + 1, "the next tick comes as ever"


def test_more_missed_ticks_than_the_limit_are_dropped_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shop = Shop("1m", missed="all", args=lambda when: [when.isoformat()])
    with shop.app.testing(start=START) as worker:
        worker.clock.advance(1500 * 60)
        worker.run_until_idle()
        assert len(shop.seen) == len(set(shop.seen)) == 1000
        last = START + dt.timedelta(minutes=1500)
        assert max(shop.seen) == last.isoformat()
        assert "only the last 1000 are made up for (missed='all')" in caplog.text


@pytest.mark.parametrize("step", ["_send", "_put", "_settle"])
@pytest.mark.parametrize("after", [False, True])
def test_a_worker_that_dies_between_two_steps_sends_no_tick_twice(
    shop: Shop, step: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(Exception):
        pass

    done = getattr(Keeper, step)

    def dies(keeper: Keeper, *given: Any, **options: Any) -> Any:
        if after:
            done(keeper, *given, **options)
        raise Died

    with shop.app.testing(start=START) as worker:
        worker.clock.advance(3600)
        monkeypatch.setattr(Keeper, step, dies)
        (dying,) = keepers(shop.app, worker)
        with pytest.raises(Died):
            dying.step(0.0)
        monkeypatch.setattr(Keeper, step, done)
        worker.run_until_idle()
        for _ in range(2):
            worker.clock.advance(60)  # its lease runs out, and the backoff ends
            worker.run_until_idle()
        assert shop.seen == ["23 13:00"]
        assert len(dying.pending()) == 1, "each timer once, too"
        worker.advance(3600)
        worker.run_until_idle()
        assert shop.seen == ["23 13:00", "23 14:00"]


def test_two_workers_send_each_tick_once(shop: Shop) -> None:
    chosen = random.Random(SEED)
    with shop.app.testing(start=START) as worker:
        both = [*keepers(shop.app, worker), *keepers(shop.app, worker)]
        for hour in range(30):
            worker.clock.advance(3600 if hour else 3600.5)
            for _ in range(6):
                one = chosen.choice(both)
                one.plan() if chosen.random() < 0.3 else one.step(0.0)
            while both[0].step(0.0):
                pass
        worker.run_until_idle()
        assert len(shop.seen) == len(set(shop.seen)) == 30, SEED
        assert len(both[0].pending()) == 1, SEED


@pytest.fixture
def releases() -> Iterator[tuple[Shop, Shop, TestWorker]]:
    """Two releases of an app on one engine; of the second the schedule is another."""
    old, new = Shop("2h"), Shop("3h")
    with old.app.testing(start=START) as worker:
        new.app._redirected(worker._client)
        yield old, new, worker


def test_two_releases_side_by_side_send_a_common_tick_once(
    releases: tuple[Shop, Shop, TestWorker],
) -> None:
    old, new, worker = releases
    (first,), (second,) = keepers(old.app, worker), keepers(new.app, worker)
    second.plan()
    for _ in range(25):
        worker.clock.advance(3600 - 8 * 5)
        for turn in range(8):
            # Each may be handed what is the other's, and gives it back for a while.
            for one in (first, second) if turn % 2 else (second, first):
                while one.step(0.0):
                    pass
            worker.clock.advance(5)
    worker.run_until_idle()
    hours = sorted(
        (START + dt.timedelta(hours=n)).strftime("%d %H:%M")
        for n in range(1, 25)
        if n % 2 == 0 or n % 3 == 0
    )
    assert sorted(old.seen) == hours


def test_timers_of_a_release_are_removed_with_its_last_worker(
    releases: tuple[Shop, Shop, TestWorker], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "interlock.timetable")
    old, new, worker = releases
    (keeper,) = keepers(new.app, worker)
    keeper.plan()
    assert {one.schedule for one in keeper.pending()} == {"every 2h", "every 3h"}
    # Nobody has "every 2h" any more: its tick at 14:00 is nobody's.
    worker.clock.advance(7200)
    for _ in range(MOST_LEFT + 1):
        while keeper.step(0.0):
            pass
        worker.clock.advance(5)
    worker.run_until_idle()
    assert old.seen == [] and new.seen == []
    assert {one.schedule for one in keeper.pending()} == {"every 3h"}
    assert "timetable entry 'look' (every 2h) is removed" in caplog.text
    worker.clock.advance(3600)
    keeper.step(0.0)
    worker.run_until_idle()
    assert [call.args for call in worker.acked] == [("23 15:00",)]


def test_an_emptied_engine_gets_its_timers_again(shop: Shop) -> None:
    with shop.app.testing(start=START) as worker:
        (keeper,) = keepers(shop.app, worker)
        keeper.queue.drop(force=True)
        assert keeper.pending() == []
        keeper.plan()
        keeper.plan()
        assert [one.tick for one in keeper.pending()] == [int(START.timestamp()) + 3600]


@pytest.mark.parametrize("tick", [10**18, -(10**18), 2**70, 253402300800, -1])
@pytest.mark.parametrize("field", ["tick", "last"])
def test_a_timer_with_an_impossible_date_is_dropped_and_blocks_nothing(
    shop: Shop, tick: int, field: str
) -> None:
    with shop.app.testing(start=START) as worker:
        (keeper,) = keepers(shop.app, worker)
        (pending,) = keeper.pending()
        payload = {**msgspec.structs.asdict(pending), field: tick}
        keeper.queue.put(json.dumps(payload).encode(), keys="look")
        assert len(keeper.pending()) == 1
        assert keeper.step(0.0) and not keeper.step(0.0)
        assert shop.seen == [] and keeper.queue.stats().unsettled == 1
        worker.clock.advance(3600)
        worker.run_until_idle()
        assert len(shop.seen) == 1


def test_ticks_of_a_paused_timetable_are_missed(shop: Shop) -> None:
    with shop.app.testing(start=START) as worker:
        queue = shop.app._queue(timers.queue_name("default"))
        queue.pause("look")
        worker.clock.advance(5 * 3600)
        worker.run_until_idle()
        assert shop.seen == []
        queue.resume("look")
        worker.run_until_idle()
        assert shop.seen == ["23 17:00"]
        queue.pause()
        queue.drop(force=True)
        queue.pause()
        (keeper,) = keepers(shop.app, worker)
        keeper.plan()  # it cannot know the time, and does not hang


def test_a_tick_for_a_full_queue_is_sent_later(shop: Shop) -> None:
    shop.app.send_timeout = 0.01
    with shop.app.testing(start=START) as worker:
        queue = shop.app._open("default", maxsize=1)
        first = queue.put(b"x")
        (keeper,) = keepers(shop.app, worker)
        worker.clock.advance(3600)
        with pytest.raises((Full, EngineUnavailable)):
            keeper.step(0.0)
        queue.cancel(first)
        worker.run_until_idle()
        assert shop.seen == ["23 13:00"]


def test_a_call_that_may_not_be_parked_delays_no_other_entry(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    paid = []

    @shop.app.every("1h", name="a: before the other")
    @shop.app.task(keys="account:7", behind="park")
    def pay() -> None:
        paid.append(7)

    with shop.app.testing(start=START) as worker:
        queue = shop.app._open("default", maxsize=4)
        queue.pause("account:7")
        parked = [queue.put(b"x", keys="account:7", behind="park") for _ in range(2)]
        worker.advance(3600)
        worker.run_until_idle()
        assert shop.seen == ["23 13:00"]
        assert "'a: before the other' waits: " in caplog.text
        for id in parked:
            queue.cancel(id)
        queue.resume("account:7")
        worker.advance(60)
        worker.run_until_idle()
        assert paid == [7]


def test_an_exception_of_a_timetable_s_callable_skips_only_that_tick(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def args(when: dt.datetime) -> list[str]:
        if when.hour == 13:
            raise LookupError("no day")
        return [when.strftime("%d %H:%M")]

    shop = Shop(args=args)
    with shop.app.testing(start=START) as worker:
        worker.advance(2 * 3600)
        worker.run_until_idle()
        assert shop.seen == ["23 14:00"]
        assert "at 2026-11-23T13:00:00Z cannot be sent; that tick is lost" in caplog.text
        assert "LookupError: no day" in caplog.text


def test_last_and_next_tick_are_known_to_the_engine(shop: Shop) -> None:
    with shop.app.testing(start=START) as worker:
        worker.advance(7200)
        (keeper,) = keepers(shop.app, worker)
        (timer,) = keeper.pending()
        begun = int(START.timestamp())
        assert (timer.last, timer.tick) == (begun + 7200, begun + 10_800)
        assert (timer.name, timer.task, timer.schedule) == ("look", "look", "every 1h")
