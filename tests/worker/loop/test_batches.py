"""Quick handlers: they are run in batches, with calls under way; until one is not quick."""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

from interlock import current_lease
from interlock.app import App
from interlock.client.faces import handler_time
from interlock.client.faces.handler_time import (
    AHEAD,
    COMPUTED,
    MOST,
    MOST_LEASED,
    QUICK,
    SPAN,
    HandlerTime,
)
from interlock.worker.loop import batch_runner, owner
from interlock.worker.loop.batch_lending import BatchLending
from interlock.worker.loop.lease_plan import LeasePlan
from interlock.worker.loop.state import Phase, Places
from interlock.worker.message.source import Source, SourceState
from interlock.worker.pools.thread_pool import ThreadPool
from tests.worker.workers import wait_for


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any handler that ends is quick, and a thread that this machine holds up for a moment is not
    taken for one that waits: what is tested is not how fast the machine is."""
    monkeypatch.setattr(handler_time, "QUICK", 1.0)
    monkeypatch.setattr(handler_time, "LONGEST_BATCH", 100.0)
    monkeypatch.setattr(handler_time, "LATE", 0.5)
    monkeypatch.setattr(handler_time, "LONGEST_RUN", 60.0)


ENGINES = pytest.mark.parametrize("engine", ["memory", "redis", "hub"], indirect=True)


def test_several_quick_calls_make_a_handler_quick_and_one_slow_call_does_not_end_it() -> None:
    one = HandlerTime(16)
    one.ended(0)
    assert not one.quick
    for _ in range(SPAN):
        one.ended(0)
    assert one.quick
    one.ended(MOST * 100)
    assert one.quick, "the thread was held up by others once"
    for _ in range(SPAN):
        one.ended(2 * QUICK)
    assert not one.quick


def test_handlers_as_slow_as_a_call_to_another_program_are_never_quick() -> None:
    one = HandlerTime(16)
    for _ in range(10 * SPAN):
        one.ended(QUICK)
        assert not one.quick


def test_a_lease_grows_while_handlers_are_quick_whatever_the_concurrency_is() -> None:
    for places in (1, 16):
        one = HandlerTime(places)
        for _ in range(10 * SPAN):
            one.ended(QUICK / 100)
        assert one.batch_size == MOST_LEASED
        one.batch_ended(MOST_LEASED * QUICK * 0.9, MOST_LEASED)
        one.batch_ended(MOST_LEASED * QUICK * 0.9, MOST_LEASED)
        assert one.quick
        for _ in range(10):
            one.batch_ended(2 * QUICK * 100, 100)
        assert not one.quick


def test_one_long_batch_does_not_end_quick_mode() -> None:
    one = HandlerTime(16)
    for _ in range(SPAN):
        one.ended(0)
    one.batch_ended(2 * QUICK * MOST_LEASED, MOST_LEASED)
    assert one.quick


def test_handlers_that_only_compute_are_quick_until_they_do_not_or_take_long() -> None:
    one = HandlerTime(16)
    for _ in range(10 * SPAN):
        one.ended(2 * QUICK)
    assert not one.quick
    one.computing = True
    one.ended(2 * QUICK)
    assert one.quick and 1 < one.batch_size < MOST_LEASED
    one.batch_ended(2 * QUICK * 40, 40)
    assert one.quick
    for _ in range(10):
        one.batch_ended(2 * COMPUTED * 10, 10)
    assert not one.quick and not one.computing


def test_with_one_handler_only_one_call_is_sent_ahead() -> None:
    assert HandlerTime(1).ahead == 1
    assert HandlerTime(2).ahead == AHEAD > 1


def test_each_slow_batch_doubles_the_calls_needed_to_be_quick_again() -> None:
    one = HandlerTime(16)
    waited = []
    for _ in range(3):
        count = 0
        while not one.quick:
            one.ended(0)
            count += 1
        waited.append(count)
        one.slow(held_up=True)
    assert waited[0] < waited[1] < waited[2]


@pytest.mark.usefixtures("quick")
@ENGINES
@pytest.mark.parametrize("threads", [1, 16])
def test_one_thread_leases_and_runs_quick_handlers_in_order(app: App, threads: int) -> None:
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
    assert "interlock-batches-default" in by
    figures = worker.figures()
    assert (figures.handled, figures.failed, figures.lost, figures.violations) == (1500, 0, 0, 0)
    assert app._queue("default").stats().acks == 1500


@pytest.mark.usefixtures("quick")
@ENGINES
def test_a_slow_handler_in_a_batch_does_not_delay_other_messages(app: App) -> None:
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
    assert kept == ["interlock-batches-default"], "it was to be found in a batch"
    figures = worker.figures()
    assert (figures.handled, figures.lost, figures.violations) == (1001, 0, 0)


@pytest.mark.usefixtures("quick")
@ENGINES
def test_messages_leased_ahead_are_returned_from_behind_a_slow_handler(app: App) -> None:
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


@pytest.mark.usefixtures("quick")
@ENGINES
@pytest.mark.parametrize("threads", [1, 4])
def test_a_worker_stopped_during_quick_handlers_holds_no_message(app: App, threads: int) -> None:
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


@pytest.mark.parametrize("ends", ["waits", "retried"])
def test_handlers_that_compute_run_in_batches_and_return_to_the_pool(
    app: App, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    monkeypatch.setattr(handler_time, "QUICK", 0.0)
    monkeypatch.setattr(handler_time, "COMPUTED", 60.0)
    monkeypatch.setattr(handler_time, "LATE", 60.0)
    monkeypatch.setattr(handler_time, "LONGEST_RUN", 60.0)
    computes, names, waited = threading.Event(), list[str](), [0]
    computes.set()
    monkeypatch.setattr(ThreadPool, "only_compute", property(lambda pool: computes.is_set()))
    monkeypatch.setattr(batch_runner, "waits", lambda: waited[0])
    monkeypatch.setattr(batch_runner, "thread_time", lambda: 0.0)
    monkeypatch.setattr(batch_runner, "RETRIED", 60.0 if ends == "waits" else -60.0)

    @app.task(keys="{key}")
    def work(key: int) -> None:
        names.append(threading.current_thread().name)
        if ends == "waits" and "interlock-batches" in names[-1]:
            # From now on, as if it waited.
            waited[0] += 1
            computes.clear()

    for n in range(600):
        work.send(n)
    with app.worker(threads=4):
        wait_for(lambda: len(names) == 600, "they are not handled")
    first = next(n for n, name in enumerate(names) if "interlock-batches" in name)
    assert any("interlock-handler" in name for name in names[first:])
    runs = itertools.groupby("interlock-batches" in name for name in names)
    # Two batches: calls are sent ahead.
    assert max(len(list(run)) for batched, run in runs if batched) <= 4 * MOST_LEASED


class Planned(Source):
    """A source whose calls are only noted."""

    def __init__(self) -> None:
        replies: Any = None
        super().__init__("default", None, "any", 30.0, replies)
        self.calls: list[object] = []

    def exchange(self, places: int) -> None:
        self.calls.append(places)

    def settle(self) -> None:
        self.calls.append("settle")


def test_a_pool_with_messages_leased_ahead_gets_no_more_until_a_batch_has_its_place() -> None:
    places, source = Places(4, 0), Planned()
    places.moved(4)
    state: Any = SimpleNamespace(
        places=places, sources=[source], lends=True, phase=Phase.RUNNING, alone_one=None,
        times=SimpleNamespace(quick=False, leased_ahead=20), deferrals=SimpleNamespace(full=False),
    )  # fmt: skip

    def lend(source: Source) -> bool:
        if not places.take(source.kind, 1):
            return False
        source.state = SourceState.BATCHES
        return True

    batches: Any = SimpleNamespace(lend=lend)
    plan = LeasePlan(state, batches)
    plan.begin()
    source.more = True
    plan.serve_all(0.0, False)
    assert source.calls == [24] and places.free("any") == -20
    # Handlers turn out to be quick, and more than half of what was leased ahead has ended.
    state.times.quick = True
    places.give("any", 15)
    plan.serve_all(0.0, False)
    assert source.calls == [24] and plan.enough == 6
    # Whatever happens to the rest: what has ended is settled.
    source.pending = [("ended", None, None)]  # type: ignore[list-item]
    plan.serve_all(0.0, True)
    assert source.calls == [24, "settle"]
    places.give("any", plan.enough)
    plan.serve_all(0.0, False)
    assert source.calls == [24, "settle"] and source.state is SourceState.BATCHES


def test_the_owner_checks_a_batch_when_its_present_message_may_hold_it_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handler_time, "LOOK", 1.0)
    monkeypatch.setattr(handler_time, "LATE", 2.0)
    monkeypatch.setattr(owner, "TICK", 5.0)
    times = SimpleNamespace(leased_ahead=20)
    state: Any = SimpleNamespace(runner=None, executions={}, times=times)
    batches = BatchLending(state, events=SimpleNamespace())
    checked: Any = SimpleNamespace(state=state, _batches=batches, _looked=10.0)

    def next_look(now: float) -> float:
        return owner.Owner._next_look(checked, now)

    assert next_look(10.0) == 11.0
    run = SimpleNamespace(at=0, since=0.0)
    state.runner = SimpleNamespace(run=None)
    assert next_look(10.5) == 13.5, "no batch has arrived yet"
    state.runner.run = run
    assert next_look(10.5) == 13.5, "no message has begun"
    run.at, run.since = 1, 10.75
    assert next_look(12.5) == 13.75
    run.at, run.since = 2, 11.75
    assert next_look(13.75) == 14.75, "another one has begun meanwhile"
    run.since = 14.0
    assert next_look(14.25) == 15.0, "all other checks are due by then"
    run.since = 1.0
    assert next_look(14.25) == 11.0, "a late one that is not taken over is looked at no sooner"
    state.executions[1] = "outside the batch"
    assert next_look(14.25) == 11.0
    state.runner, times.leased_ahead = None, 0
    assert next_look(14.25) == 15.0
