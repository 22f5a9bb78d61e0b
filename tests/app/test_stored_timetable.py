"""Entries that are stored at run time, in a test's time."""

from __future__ import annotations

import contextlib
import datetime as dt
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from interlock.app import App
from interlock.app.timetable import timer as timers
from interlock.app.timetable.keeper import MOST_LEFT, OFTEN_LEFT, Keeper
from interlock.testing import TestWorker
from tests import seeds

START = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)


class Reports:
    """An app with a task, no declared entry, and what was handled."""

    def __init__(self) -> None:
        self.app = App("memory://")
        self.seen: list[str] = []

        def report(tenant: str) -> None:
            self.seen.append(tenant)

        self.task = self.app.task(name="report")(report)

    def add(self, name: str = "daily", **options: Any) -> bool:
        options = {"every": "1h", "args": ["a"]} | options
        return self.app.timetable.add(name, self.task, **options)

    def after(self, worker: TestWorker, seconds: float) -> list[str]:
        """Advance; return the arguments of the calls that were handled."""
        before = len(self.seen)
        worker.advance(seconds)
        worker.run_until_idle()
        return self.seen[before:]


@pytest.fixture
def reports() -> Reports:
    return Reports()


def test_an_added_entry_sends_its_calls_until_it_is_removed(reports: Reports) -> None:
    with reports.app.testing(start=START) as worker:
        assert reports.add()
        worker.run_until_idle()
        assert reports.after(worker, 3 * 3600) == ["a"] * 3
        (entry,) = reports.app.timetable.stored()
        assert (entry.name, entry.task, entry.schedule) == ("daily", "report", "every 1h")
        assert entry.tick == START.timestamp() + 4 * 3600
        assert reports.app.timetable.remove("daily")
        worker.run_until_idle()
        assert reports.after(worker, 3 * 3600) == []
        assert reports.app.timetable.stored() == []
        assert not reports.app.timetable.remove("daily")
        stats = reports.app._queue("default:timetable").stats()
        assert stats.unsettled == 0, "nothing is left"


def test_a_change_replaces_the_entry_as_a_whole(reports: Reports) -> None:
    with reports.app.testing(start=START) as worker:
        reports.add()
        worker.run_until_idle()
        change = reports.app.timetable.change
        change("daily", reports.task, every="10m", args=["b"])
        worker.run_until_idle()
        assert reports.after(worker, 3600) == ["b"] * 6
        change("daily", reports.task, every="1h", args=["a"])
        worker.run_until_idle()
        assert reports.after(worker, 2 * 3600) == ["a"] * 2
        with pytest.raises(KeyError, match="no stored entry 'weekly'; add"):
            change("weekly", reports.task, every="1w", args=["a"])


def test_an_entry_is_changed_at_once_while_its_timer_sleeps(reports: Reports) -> None:
    with reports.app.testing(start=START) as worker:
        reports.add(every="1d")
        for _ in range(3):
            worker.run_until_idle()
            worker.clock.advance(60)
        worker.run_until_idle()
        reports.app.timetable.change("daily", reports.task, every="1h", args=["b"])
        worker.run_until_idle()
        (entry,) = reports.app.timetable.stored()
        assert (entry.schedule, entry.tick > 0) == ("every 1h", True)


def test_a_change_does_not_wait_for_the_tick_of_a_timer_whose_worker_died(
    reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(Exception):
        pass

    def dies(*given: Any) -> None:
        raise Died

    with reports.app.testing(start=START) as worker:
        reports.add(every="1d")
        worker.run_until_idle()
        worker.clock.advance(60)
        dying = Keeper("default", {}, reports.app._open, tasks=reports.app.tasks)
        settle = Keeper._settle
        monkeypatch.setattr(Keeper, "_settle", dies)
        with pytest.raises(Died):
            dying.step(0.0)
        monkeypatch.setattr(Keeper, "_settle", settle)
        # It is leased, so that it cannot be cancelled, and the change waits behind it.
        reports.app.timetable.change("daily", reports.task, every="1h", args=["b"])
        for _ in range(3):
            worker.clock.advance(60)
            worker.run_until_idle()
        assert [timer.schedule for timer in dying.pending()] == ["every 1h"]


def test_a_change_back_to_a_schedule_whose_timer_is_still_known_keeps_the_entry(
    reports: Reports,
) -> None:
    with reports.app.testing(start=START) as worker:
        reports.add(every="1d")
        worker.run_until_idle()
        without = Keeper("default", {}, reports.app._open)
        for _ in range(MOST_LEFT // 2 + 1):
            worker.clock.advance(60)
            without.step(0.0)
        # Returned so often that it is replaced by another of the same tick.
        worker.clock.advance(60)
        for every in ("2d", "1d"):
            worker.run_until_idle()
            reports.app.timetable.change("daily", reports.task, every=every, args=["b"])
        worker.run_until_idle()
        assert reports.after(worker, 86_400) == ["b"]


def test_changes_that_no_worker_has_seen_apply_in_their_order(reports: Reports) -> None:
    with reports.app.testing(start=START) as worker:
        reports.add(args=["a"])
        reports.app.timetable.remove("daily")
        assert reports.app.timetable.stored() == []
        reports.add(args=["b"])
        reports.app.timetable.change("daily", reports.task, every="30m", args=["c"])
        (entry,) = reports.app.timetable.stored()
        assert (entry.schedule, entry.tick) == ("every 30m", 0)
        worker.run_until_idle()
        assert reports.after(worker, 3600) == ["c", "c"]


def test_the_same_entry_again_is_known_and_another_one_refused(reports: Reports) -> None:
    with reports.app.testing(start=START) as worker:
        for _ in "ab":
            assert reports.add() is True
            assert reports.add() is False
            worker.run_until_idle()
            assert reports.add() is False
            with pytest.raises(ValueError, match=r"there is an entry 'daily' \(every 1h, task"):
                reports.add(every="2h")
            reports.app.timetable.remove("daily")
            worker.run_until_idle()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"every": None}, "give either cron= or every="),
        ({"cron": "0 3 * * *"}, "give either cron= or every="),
        ({"every": "soon"}, "period is 'soon'"),
        ({"tz": "Europe/Berlin"}, "tz is 'Europe/Berlin' with every="),
        ({"args": []}, "missing a required argument"),
        ({"args": lambda when: [when]}, "a function, which cannot be stored"),
        ({"args": [object()]}, "cannot be stored as JSON"),
        ({"args": [(1, 2)]}, "would change if stored as JSON"),
        ({"copies": 0}, "copies is 0; allowed: 1 to 100"),
        ({"missed": "never"}, "missed is 'never'"),
        ({"name": ""}, "allowed: 1 to 200 bytes"),
    ],
)
def test_invalid_entries_are_refused(reports: Reports, options: dict[str, Any], error: str) -> None:
    with reports.app.testing(start=START), pytest.raises((TypeError, ValueError), match=error):
        reports.add(**options)
    with pytest.raises(TypeError, match="allowed: a task of this app"):
        reports.app.timetable.add("x", report, every="1h")


def report() -> None: ...


def test_a_declared_name_is_refused(reports: Reports) -> None:
    reports.app.every("1h", name="daily", args=["a"])(reports.task)
    with pytest.raises(ValueError, match="the app declares an entry 'daily'"):
        reports.add()


@pytest.mark.parametrize("step", ["_send", "_put", "_settle"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", ["change", "tick"])
def test_a_worker_that_dies_between_two_steps_loses_no_entry_and_repeats_no_tick(
    reports: Reports, step: str, after: bool, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(Exception):
        pass

    done: Callable[..., Any] = getattr(Keeper, step)

    def dies(keeper: Keeper, *given: Any, **options: Any) -> Any:
        if after:
            done(keeper, *given, **options)
        raise Died

    with reports.app.testing(start=START) as worker:
        reports.add()
        if at == "tick":
            worker.run_until_idle()
            worker.clock.advance(3600)
        dying = Keeper("default", {}, reports.app._open, tasks=reports.app.tasks)
        monkeypatch.setattr(Keeper, step, dies)
        if (at, step) == ("change", "_send"):
            dying.step(0.0)
        else:
            with pytest.raises(Died):
                dying.step(0.0)
        monkeypatch.setattr(Keeper, step, done)
        for _ in range(2):
            worker.clock.advance(60)  # its lease runs out, and the backoff ends
            worker.run_until_idle()
        expected = ["a"] if at == "tick" else []
        assert reports.seen == expected
        assert len(dying.pending()) == 1
        worker.advance(3600)
        worker.run_until_idle()
        assert reports.seen == [*expected, "a"]


@pytest.mark.parametrize(
    ("at", "step"),
    [
        ("change", "_apply"),
        ("change", "_put"),
        ("change", "_settle"),
        ("tick", "_fire"),
        ("tick", "_put"),
        ("tick", "_settle"),
    ],
)
@pytest.mark.parametrize("end", ["remove", "change", "again"])
@pytest.mark.parametrize("passed", [0, 3700])
def test_a_worker_that_was_frozen_beyond_its_lease_brings_no_timer_back_and_cancels_none(
    reports: Reports, at: str, step: str, end: str, passed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: Callable[..., Any] = getattr(Keeper, step)
    timetable = reports.app.timetable

    def others(worker: TestWorker) -> None:
        """Let the lease end, and remove or replace the entry."""
        monkeypatch.setattr(Keeper, step, done)
        for _ in range(2):
            # After an hour their next tick is a later one than that of the frozen worker.
            worker.clock.advance(passed / 2)
            worker.run_until_idle()
        if end == "change":
            timetable.change("daily", reports.task, every="3h", args=["b"])
        else:
            timetable.remove("daily")
        for _ in range(3):
            worker.clock.advance(60)
            worker.run_until_idle()
        if end == "again":
            reports.add(every="3h", args=["b"])
            worker.run_until_idle()

    with reports.app.testing(start=START) as worker:
        reports.add()
        if at == "tick":
            worker.run_until_idle()
            worker.clock.advance(3600)
        frozen = Keeper("default", {}, reports.app._open, tasks=reports.app.tasks)

        def freezes(keeper: Keeper, *given: Any, **options: Any) -> Any:
            others(worker)
            return done(keeper, *given, **options)

        monkeypatch.setattr(Keeper, step, freezes)
        assert frozen.step(0.0)
        monkeypatch.setattr(Keeper, step, done)
        expected = [] if end == "remove" else ["every 3h"]
        assert [timer.schedule for timer in frozen.pending()] == expected
        assert [one.schedule for one in timetable.stored()] == expected
        seen = reports.after(worker, 6 * 3600)
        assert seen in ([], ["a"]) if end == "remove" else seen[-2:] == ["b", "b"]
        assert timetable.remove("daily") is (end != "remove")
        worker.run_until_idle()
        assert reports.app._queue("default:timetable").stats().unsettled == 0


def test_a_timer_that_is_leased_when_its_entry_is_changed_has_no_successor(
    reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reports.app.testing(start=START) as worker:
        reports.add()
        worker.run_until_idle()
        worker.clock.advance(3600)
        keeper = Keeper("default", {}, reports.app._open, tasks=reports.app.tasks)
        put = Keeper._put

        def changed(keeper: Keeper, *given: Any, **options: Any) -> None:
            monkeypatch.setattr(Keeper, "_put", put)
            reports.app.timetable.change("daily", reports.task, every="2h", args=["b"])
            put(keeper, *given, **options)

        monkeypatch.setattr(Keeper, "_put", changed)
        assert keeper.step(0.0)
        worker.run_until_idle()
        assert reports.seen == ["a"]
        assert [timer.schedule for timer in keeper.pending()] == ["every 2h"]
        assert reports.after(worker, 4 * 3600) == ["b", "b"]


def test_a_tick_is_left_out_while_as_many_calls_as_allowed_are_unsettled(
    reports: Reports, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "interlock.timetable")
    with reports.app.testing(start=START) as worker:
        reports.add(copies=2)
        worker.run_until_idle()
        worker.advance(5 * 3600)
        assert reports.app._queue("default").stats().unsettled == 2
        assert "is left out, for 2 calls are unsettled (copies=2)" in caplog.text
        worker.run_until_idle()
        assert reports.seen == ["a", "a"]
        assert reports.after(worker, 3600) == ["a"]


def test_a_declared_entry_may_bound_its_calls(reports: Reports) -> None:
    reports.app.every("1h", missed="all", args=["a"], copies=1)(reports.task)
    with reports.app.testing(start=START) as worker:
        worker.clock.advance(5 * 3600)
        worker.run_until_idle()
        assert reports.seen == ["a"], "of the missed ones, too"


def test_an_entry_whose_task_no_worker_has_stays_and_is_reported(
    reports: Reports, caplog: pytest.LogCaptureFixture
) -> None:
    with reports.app.testing(start=START) as worker:
        reports.add()
        without = Keeper("default", {}, reports.app._open)
        for _ in range(MOST_LEFT + 2):
            without.step(0.0)
            worker.clock.advance(60)
        assert without.queue.stats().unsettled == 1
        assert "waits for a worker of queue 'default' that has task 'report'" in caplog.text
        assert caplog.text.count("waits for a worker") == 1, OFTEN_LEFT
        worker.run_until_idle()
        assert reports.after(worker, 3600) == ["a"]


def test_an_entry_whose_task_no_worker_has_can_be_removed_before_and_after_it_was_applied(
    reports: Reports,
) -> None:
    with reports.app.testing(start=START) as worker:
        for is_applied in (False, True):
            reports.add()
            if is_applied:
                worker.run_until_idle()
                worker.clock.advance(60)
            without = Keeper("default", {}, reports.app._open)
            assert without.step(0.0), "it is returned"
            reports.app.timetable.remove("daily")
            for _ in range(3):
                worker.clock.advance(60)
                while without.step(0.0):
                    pass
            assert without.queue.stats().unsettled == 0


def test_calls_of_before_a_change_count_as_copies(reports: Reports) -> None:
    with reports.app.testing(start=START) as worker:
        reports.add(copies=1)
        worker.run_until_idle()
        worker.advance(3600)
        calls = reports.app._queue("default")
        assert calls.stats().unsettled == 1
        for every in ("30m", "10m"):
            options: dict[str, Any] = {"every": every, "args": ["b"], "copies": 1}
            reports.app.timetable.change("daily", reports.task, **options)
            worker.advance(3600)
            assert calls.stats().unsettled == 1
        worker.run_until_idle()
        assert reports.after(worker, 600) == ["b"]


def test_a_change_to_a_task_of_another_queue_moves_the_entry(reports: Reports) -> None:
    def other(tenant: str) -> None:
        reports.seen.append(f"other {tenant}")

    task = reports.app.task(name="other", queue="another")(other)
    timetable = reports.app.timetable
    with reports.app.testing(start=START) as worker:
        reports.add()
        worker.run_until_idle()
        timetable.change("daily", task, every="1h", args=["b"])
        # The removal in the other queue is not applied yet.
        assert [(one.name, one.task) for one in timetable.stored()] == [("daily", "other")]
        worker.run_until_idle()
        assert reports.after(worker, 3600) == ["other b"]


def test_an_entry_that_was_added_in_two_queues_at_once_is_removed_from_both(
    reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(tenant: str) -> None:
        reports.seen.append(f"other {tenant}")

    task = reports.app.task(name="other", queue="another")(other)
    timetable = reports.app.timetable
    with reports.app.testing(start=START) as worker:
        reports.add()
        with monkeypatch.context() as patched:
            # The other process looked before this one had stored its entry.
            patched.setattr(timetable, "_queues", list)
            timetable.add("daily", task, every="1h", args=["b"])
        worker.run_until_idle()
        assert sorted(reports.after(worker, 3600)) == ["a", "other b"]
        assert timetable.remove("daily")
        worker.run_until_idle()
        assert (reports.after(worker, 3600), timetable.stored()) == ([], [])


@pytest.mark.parametrize("change", ["", "set"])
def test_an_entry_that_a_newer_release_stored_is_left_to_its_workers(
    reports: Reports, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    with reports.app.testing(start=START) as worker:
        stored = {"args": ["a"], "jitter": 5}
        payload = {"name": "daily", "task": "report", "schedule": "every 1h", "missed": "once",
                   "tick": 0, "stored": stored, "change": change}  # fmt: skip
        queue = reports.app._queue("default:timetable")
        queue._sent(msgspec.json.encode(payload), 5.0, keys="daily", retry=timers.FOR_EVER)
        for _ in range(MOST_LEFT + 2):
            worker.run_until_idle()
            worker.clock.advance(60)
        (left,) = queue.messages()
        assert msgspec.json.decode(left.payload) == payload
        assert caplog.text.count("waits for a worker of the newer release that stored it") == 1
        assert reports.seen == []


@pytest.mark.parametrize("run", range(20))
def test_random_changes_with_workers_that_die_or_freeze_end_in_the_last_one(
    reports: Reports, run: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seeds.seed() * 100 + run)
    print(f"INTERLOCK_SEED={seeds.seed()}")

    class Died(Exception):
        pass

    frozen: list[Callable[[], Any]] = []

    def dying(done: Callable[..., Any]) -> Callable[..., Any]:
        def step(keeper: Keeper, *given: Any, **options: Any) -> Any:
            if chance.random() < deadly:
                # A call may be sent late; after its dedup window a second time.
                if done is not send and chance.random() < 0.7:
                    # It is only frozen, and takes this step later.
                    frozen.append(partial(step, keeper, *given, **options))
                raise Died
            found = done(keeper, *given, **options)
            if done is send:
                assert ids.setdefault(given[1], found) == found, "no tick is sent twice"
            if chance.random() < deadly:
                raise Died
            return found

        return step

    send, ids = Keeper._send, dict[int, int]()
    expected: str | None = None
    timetable = reports.app.timetable
    with reports.app.testing(start=START) as worker:
        deadly = 0.2
        without = Keeper("default", {}, reports.app._open)
        for step in ("_apply", "_send", "_put", "_settle"):
            monkeypatch.setattr(Keeper, step, dying(getattr(Keeper, step)))
        for _ in range(60):
            what = chance.choice(
                ("add", "change", "remove", "tick", "tick", "tick", "return", "thaw", "thaw")
            )
            every = chance.choice(("10m", "1h", "1d"))
            if what == "add" and expected is None:
                assert reports.add(every=every)
                expected = every
            elif what == "change" and expected is not None:
                timetable.change("daily", reports.task, every=every, args=["a"])
                expected = every
            elif what == "remove":
                assert timetable.remove("daily") is (expected is not None)
                expected = None
            elif what == "return":
                with contextlib.suppress(Died):
                    without.step(0.0)
            elif what == "thaw" and frozen:
                with contextlib.suppress(Died):
                    frozen.pop(chance.randrange(len(frozen)))()
            else:
                worker.clock.advance(chance.choice((1, 40, 60, 600, 3600)))
                with contextlib.suppress(Died):
                    worker.run_until_idle()
            found = [(one.name, one.schedule) for one in timetable.stored()]
            assert found == ([("daily", f"every {expected}")] if expected else [])
        deadly = 0.0
        for _ in range(30):
            worker.clock.advance(60)
            worker.run_until_idle()
            for _ in frozen[:3]:
                frozen.pop(chance.randrange(len(frozen)))()
        left = reports.app._queue("default:timetable").messages()
        assert len(left) == (expected is not None), left
