"""Quick handlers: the thread that leases runs them, and leases ahead; until one is not quick."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

import pytest

from interlock import current_lease
from interlock.app import App
from interlock.worker import keeper, pace
from interlock.worker.pace import AHEAD, MOST, QUICK, SPAN, Pace
from interlock.worker.slots import Slots
from tests.worker.workers import wait_for


@pytest.fixture
def paced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any handler that ends is quick, and a thread that this machine holds up for a moment is not
    taken for one that waits: what is tested is not how fast the machine is."""
    monkeypatch.setattr(pace, "QUICK", 1.0)
    monkeypatch.setattr(keeper, "LATE", 0.5)


ENGINES = pytest.mark.parametrize("engine", ["memory", "redis", "hub"], indirect=True)


def made() -> tuple[Pace, list[bool]]:
    told: list[bool] = []
    return Pace(16, told.append), told


def test_some_quick_handlers_in_a_row_make_a_pace_and_a_slow_one_by_itself_does_not_end_it() -> (
    None
):
    one, told = made()
    one.ended(0)
    assert not one.quick
    for _ in range(SPAN):
        one.ended(0)
    assert one.quick and told == [True]
    one.ended(MOST * 100)
    assert one.quick, "the thread was held up by others once"
    for _ in range(SPAN):
        one.ended(2 * QUICK)
    assert not one.quick and told == [True, False]


def test_handlers_as_slow_as_a_call_to_another_program_never_make_one() -> None:
    one, told = made()
    for _ in range(10 * SPAN):
        one.ended(QUICK)
    assert told == []


def test_one_place_has_one_call_under_way_which_keeps_the_order() -> None:
    assert Pace(1, lambda _: None).ahead == 1
    assert Pace(2, lambda _: None).ahead == AHEAD > 1


def test_whoever_kept_the_thread_that_leases_makes_the_next_pace_wait_for_longer() -> None:
    one, told = made()
    waited = []
    for _ in range(3):
        count = 0
        while not one.quick:
            one.ended(0)
            count += 1
        waited.append(count)
        one.slow(held_up=True)
    assert waited[0] < waited[1] < waited[2]
    assert told == [True, False] * 3


def test_places_for_what_is_leased_ahead_are_taken_back_when_they_are_free() -> None:
    slots = Slots(4, 1)
    bell = threading.Condition(slots.lock)
    with slots.lock:
        slots.widen(2)
        # A call takes as many as there are handlers, though more are free.
        assert [slots.take_ahead() for _ in range(4)] == [4, 4, 4, 0]
        slots.widen(0)
        slots.give(8)
        assert slots.take_ahead() == slots.take(bell) == 0
        slots.give(4)
        assert slots.take(bell) == 4


@pytest.mark.usefixtures("paced")
@ENGINES
@pytest.mark.parametrize("threads", [1, 16])
def test_the_thread_that_leases_runs_quick_handlers_in_order(app: App, threads: int) -> None:
    seen: dict[int, list[int]] = defaultdict(list)
    by: set[str] = set()

    @app.task(keys="{key}")
    def quick(key: int, n: int) -> None:
        by.add(threading.current_thread().name)
        seen[key].append(n)

    for n in range(1500):
        quick.send(n % 37, n)
    with app.worker(threads=threads) as worker:
        app._queue("default").join(60)
    assert all(seen[key] == list(range(key, 1500, 37)) for key in range(37))
    assert "interlock-feed-default" in by
    figures = worker.figures()
    assert (figures.handled, figures.failed, figures.lost, figures.violations) == (1500, 0, 0, 0)
    assert app._queue("default").stats().acks == 1500


@pytest.mark.usefixtures("paced")
@ENGINES
def test_a_handler_that_keeps_the_thread_that_leases_holds_up_no_other(app: App) -> None:
    gate, stuck = threading.Event(), threading.Event()
    seen: list[int] = []
    kept: list[str] = []

    @app.task()
    def quick(n: int) -> None:
        seen.append(n)
        if n == 999:
            gate.set()

    @app.task()
    def waits() -> None:
        kept.append(threading.current_thread().name)
        stuck.set()
        # For what comes after it: both what is leased already, and what is sent from now on.
        assert gate.wait(20)

    for n in range(500):
        quick.send(n)
    waits.send()
    for n in range(500, 900):
        quick.send(n)
    with app.worker(threads=4) as worker:
        assert stuck.wait(60)
        for n in range(900, 1000):
            quick.send(n)
        app._queue("default").join(60)
    assert sorted(seen) == list(range(1000))
    assert kept == ["interlock-feed-default"], "it was to be found by the thread that leases"
    figures = worker.figures()
    assert (figures.handled, figures.lost, figures.violations) == (1001, 0, 0)


@pytest.mark.usefixtures("paced")
@ENGINES
def test_what_was_leased_ahead_goes_back_from_behind_a_slow_handler(app: App) -> None:
    attempts: dict[int, int] = {}

    @app.task()
    def quick(n: int) -> None:
        attempts[n] = current_lease().attempt

    @app.task()
    def waits() -> None:
        queue: Any = app._queue("default")
        wait_for(lambda: queue.stats().leased == 1, "what was leased ahead to go back")

    for n in range(500):
        quick.send(n)
    waits.send()
    for n in range(500, 600):
        quick.send(n)
    with app.worker(threads=1) as worker:
        app._queue("default").join(60)
    assert attempts == dict.fromkeys(range(600), 1)
    assert worker.figures().violations == 0


@pytest.mark.usefixtures("paced")
@ENGINES
@pytest.mark.parametrize("threads", [1, 4])
def test_a_worker_that_is_stopped_amid_quick_handlers_keeps_nothing(app: App, threads: int) -> None:
    seen: list[int] = []
    some = threading.Event()

    @app.task()
    def quick(n: int) -> None:
        seen.append(n)
        if len(seen) == 300:
            some.set()

    for n in range(2000):
        quick.send(n)
    worker = app.worker(threads=threads).start()
    assert some.wait(60)
    assert worker.stop(30)
    left = app._queue("default").stats()
    assert left.leased == 0 and left.acks == len(seen) and left.unsettled == 2000 - len(seen)
    assert seen == sorted(seen) or threads > 1
