"""The figures of a worker, in each pool and in batches: every message once, as what it came to."""

from __future__ import annotations

import threading
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from interlock import Reject, RetryAfter
from interlock.app import App
from interlock.client.faces import handler_time
from interlock.retry import Retry
from interlock.worker.loop.batch_run import BatchRun
from interlock.worker.message import meter
from interlock.worker.message.execution import ACKED
from interlock.worker.message.meter import BOUNDS, OTHER, Meter, Reading
from interlock.worker.reports.summed_figures import Gathering
from interlock.worker.worker import Worker
from tests.worker import workers
from tests.worker.workers import wait_for

ENGINES = pytest.mark.parametrize("engine", ["memory", "redis", "hub"], indirect=True)


def counted(reading: Reading, name: str) -> dict[tuple[str, ...], Any]:
    """The figures of one name by their labels."""
    rows = (*reading.counters, *reading.gauges, *reading.histograms)
    return {tuple(labels): value for found, labels, value in rows if found == name}


def outcomes(worker: Worker, queue: str = "default") -> dict[tuple[str, ...], int]:
    """By task and outcome, without zeros."""
    found = counted(worker.reading(), "handled")
    return {labels[1:]: count for labels, count in found.items() if labels[0] == queue and count}


def observed(worker: Worker, name: str) -> dict[tuple[str, ...], int]:
    """Return how many durations a histogram has counted, by its labels."""
    return {labels: sum(value[:-1]) for labels, value in counted(worker.reading(), name).items()}


@ENGINES
def test_every_message_is_counted_once_with_its_wait_and_handling_time(app: App) -> None:
    calls = Counter[str]()
    lock = threading.Lock()

    def called(name: str) -> None:
        with lock:
            calls[name] += 1

    @app.task(keys="{number}")
    def quick(number: int) -> None:
        called("quick")

    @app.task(keys="{number}", retry=Retry(attempts=2, first=0.01))
    def picky(number: int) -> None:
        called("picky")
        if number % 4 == 0:
            raise Reject("even")
        if number % 4 == 1:
            raise ValueError("odd")

    @app.task(result_ttl=60)
    def kept(number: int) -> int:
        called("kept")
        return number

    for number in range(400):
        quick.send(number % 20)
        if number % 2:
            quick.send(number % 20)
        if number < 40:
            picky.send(number)
            kept.send(number)
    with app.worker(threads=4).measure() as worker:
        app._queue("default").join(workers.PATIENCE)
        wait_for(lambda: outcomes(worker).get(("quick", "acked")) == 600, "not all are counted")
        assert outcomes(worker) == {
            ("quick", "acked"): 600,
            ("kept", "acked"): 40,
            ("picky", "acked"): 20,
            ("picky", "rejected"): 10,
            ("picky", "retried"): 10,
            ("picky", "dead"): 10,
        }
        handled: dict[tuple[str, ...], int] = {
            ("default", name): count for name, count in calls.items()
        }
        assert observed(worker, "handling") == handled
        # A second attempt has not waited: it was backing off.
        assert observed(worker, "wait") == handled | {("default", "picky"): 40}
        assert counted(worker.reading(), "running") == {("default",): 0}


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_waits_and_handling_times_are_those_of_the_messages(app: App) -> None:
    release = threading.Event()

    @app.task(keys="one")
    def first(number: int) -> None:
        if number == 0:
            release.wait(workers.PATIENCE)

    began = time.monotonic()
    first.send(0)
    with app.worker(threads=2).measure() as worker:
        wait_for(lambda: counted(worker.reading(), "running") == {("default",): 1}, "not begun")
        first.send(1)
        time.sleep(0.3)  # so long the second one waits at least
        release.set()
        app._queue("default").join(workers.PATIENCE)
        wait_for(lambda: outcomes(worker) == {("first", "acked"): 2}, "not counted")
        waited = time.monotonic() - began
        for name in ("wait", "handling"):
            *counts, seconds = counted(worker.reading(), name)["default", "first"]
            assert 0.3 <= seconds <= waited + 1.0, name
            # A busy machine may let the other be slow, too.
            assert 1 <= sum(counts[BOUNDS.index(0.25) + 1 :]) <= sum(counts) == 2, (name, counts)


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_slow_and_failed_messages_of_a_batch_are_counted_separately(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler_time, "QUICK", 1.0)
    monkeypatch.setattr(handler_time, "LATE", 5.0)
    monkeypatch.setattr(handler_time, "LONGEST_BATCH", 100.0)
    monkeypatch.setattr(handler_time, "LONGEST_RUN", 60.0)
    done = []

    @app.task
    def a(number: int) -> None:
        done.append(number)
        if number % 100 == 7:
            time.sleep(0.03)
        if number % 100 == 8:
            raise Reject("no")

    @app.task
    def b(number: int) -> None:
        done.append(number)

    for number in range(1000):
        (b if number % 3 == 0 else a).send(number)
    with app.worker(threads=4).measure() as worker:
        app._queue("default").join(workers.PATIENCE)
        wait_for(lambda: sum(outcomes(worker).values()) == 1000, "not all are counted")
        assert worker.figures().handled + worker.figures().failed == 1000
        slow = [number for number in range(1000) if number % 100 == 7 and number % 3]
        bad = [number for number in range(1000) if number % 100 == 8 and number % 3]
        assert outcomes(worker) == {
            ("a", "acked"): 666 - len(bad),
            ("a", "rejected"): len(bad),
            ("b", "acked"): 334,
        }
        *counts, seconds = counted(worker.reading(), "handling")["default", "a"]
        assert sum(counts) == 666
        assert sum(counts[BOUNDS.index(0.025) + 1 :]) >= len(slow)
        assert seconds >= 0.03 * len(slow)
        assert counts[0] > 500, "most took no time"
        assert observed(worker, "wait") == {("default", "a"): 666, ("default", "b"): 334}


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_a_slow_handler_of_a_batch_is_counted_once_when_it_ends(app: App) -> None:
    release, begun = threading.Event(), threading.Event()

    @app.task
    def plain(number: int) -> None:
        if number == 500:
            begun.set()
            release.wait(workers.PATIENCE)

    for number in range(1000):
        plain.send(number)
    with app.worker(threads=2).measure() as worker:
        assert begun.wait(workers.PATIENCE)
        wait_for(lambda: outcomes(worker).get(("plain", "acked")) == 999, "the rest is kept")
        time.sleep(0.1)  # so long it takes at least
        release.set()
        app._queue("default").join(workers.PATIENCE)
        wait_for(lambda: outcomes(worker) == {("plain", "acked"): 1000}, "not counted")
        *counts, _ = counted(worker.reading(), "handling")["default", "plain"]
        assert sum(counts) == 1000 and sum(counts[BOUNDS.index(0.1) + 1 :]) >= 1


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
@pytest.mark.parametrize("pool", ["thread", "asyncio"])
def test_deferred_expired_unknown_and_timed_out_messages_have_their_own_outcome(
    app: App, pool: str
) -> None:
    asked = Counter[int]()

    @app.task
    async def again(number: int) -> None:
        asked[number] += 1
        if asked[number] == 1:
            raise RetryAfter(0.01, attempt=False)

    @app.task(expires=0.001)
    def late(number: int) -> None: ...

    @app.task(timeout=0.05, retry=Retry(attempts=1))
    async def endless(number: int) -> None:
        stop = threading.Event()
        until = time.monotonic() + workers.PATIENCE
        while not stop.is_set() and time.monotonic() < until:
            import asyncio

            await asyncio.sleep(0.01)
            from interlock import current_lease

            if current_lease().lost:
                return

    @app.task
    def gone() -> None: ...

    again.send(1)
    late.send(1)
    endless.send(1)
    gone.send()
    del app._tasks["gone"]
    time.sleep(0.01)  # longer than `late` may wait
    with app.worker(pool=pool, threads=4).measure() as worker:
        expected = {
            ("again", "deferred"): 1,
            ("again", "acked"): 1,
            ("late", "expired"): 1,
            ("endless", "dead"): 1,
        }
        wait_for(lambda: outcomes(worker) == expected, "not counted so")
        assert counted(worker.reading(), "timeouts")["default", "endless"] == 1
        wait_for(lambda: counted(worker.reading(), "unknown").get(("default",), 0), "not unknown")
        wait_for(lambda: counted(worker.reading(), "released").get(("default",), 0), "not released")


def test_a_late_settlement_is_counted_as_lost(app: App) -> None:
    begun, release = threading.Event(), threading.Event()

    @app.task
    def held() -> None:
        begun.set()
        release.wait(workers.PATIENCE)

    job = held.send()
    with app.worker(threads=1).measure() as worker:
        assert begun.wait(workers.PATIENCE)
        app._queue("default").revoke(job.id, then="dead")
        release.set()
        wait_for(
            lambda: counted(worker.reading(), "lost").get(("default", "held")) == 1, "not lost"
        )
        assert worker.figures().lost == 1


def test_an_unreachable_engine_is_a_metric(app: App) -> None:
    @app.task
    def plain() -> None: ...

    worker = app.worker(threads=1).measure()
    assert counted(worker.reading(), "connected") == {("default",): 0}
    with worker:
        assert worker.wait_until_ready(workers.PATIENCE)
        assert counted(worker.reading(), "connected") == {("default",): 1}
        (source,) = worker._owner.state.sources
        source.failures = 1
        assert counted(worker.reading(), "connected") == {("default",): 0}
        source.failures = 0


def test_a_worker_without_metrics_still_reports_its_state(app: App) -> None:
    reading = app.worker(threads=3).reading()
    assert counted(reading, "concurrency") == {(): 3}
    assert not reading.histograms


def test_tasks_beyond_the_limit_are_summed_under_a_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "MOST_TASKS", 2)
    one = Meter()

    class Held:
        queue = "q"

        def __init__(self, task: str) -> None:
            self.task = task

    for task in ("a", "b", "c", "d", "c", ""):
        one.lost(Held(task))  # type: ignore[arg-type]
    reading = one.read()
    assert counted(reading, "lost") == {("q", "a"): 1, ("q", "b"): 1, ("q", OTHER): 4}
    assert counted(reading, "tasks_cut") == {(): 3}


def test_a_duration_is_counted_in_the_first_bucket_that_covers_it() -> None:
    one = Meter()
    for seconds in (0.0, BOUNDS[0], BOUNDS[0] * 1.01, BOUNDS[-1], BOUNDS[-1] + 1):
        # The lease is a microsecond before its message was put: a clock was set back.
        held = SimpleNamespace(queue="q", task="t", attempt=1, token=1, _leased_at=1, sequence=2)
        execution: Any = SimpleNamespace(held=held, started=0.0, ended=seconds)
        one.ended(execution, ACKED, settles=False)
    *counts, seconds = counted(one.read(), "handling")["q", "t"]
    assert counts == [2, 1, *[0] * (len(BOUNDS) - 3), 1, 1]
    assert counted(one.read(), "wait")["q", "t"] == [5, *[0] * len(BOUNDS), 0.0]
    assert not counted(one.read(), "handled")


def test_counters_of_an_ended_process_are_kept_and_gauges_are_not() -> None:
    def said(count: int) -> Reading:
        return Reading(
            [["lost", ["q", "t"], count]],
            [["running", ["q"], 1], ["info", ["1", "thread"], 1]],
            [["wait", ["q", "t"], [count, 0, 0.5]]],
        )

    both = Gathering()
    both.said(0, said(3))
    both.said(1, said(4))
    assert counted(both.sum(), "lost") == {("q", "t"): 7}
    assert counted(both.sum(), "wait") == {("q", "t"): [7, 0, 1.0]}
    assert counted(both.sum(), "info") == {("1", "thread"): 1}
    both.ended(0)
    assert counted(both.sum(), "lost") == {("q", "t"): 7}
    assert counted(both.sum(), "running") == {("q",): 1}
    both.said(0, said(1))
    both.said(0, said(2))
    assert counted(both.sum(), "lost") == {("q", "t"): 9}
    both.ended(0)
    both.ended(0)
    assert counted(both.sum(), "lost") == {("q", "t"): 9}
    assert counted(both.sum(), "wait") == {("q", "t"): [9, 0, 1.5]}


class Batch:
    """A batch as a meter looks at it: the reply, where messages begin, and when it was leased."""

    token = 10_000_000

    def __init__(self, attempts: str) -> None:
        self.reply: list[bytes] = []
        for number, attempt in enumerate(attempts):
            # Each was put a second before the next; the last one a second before the lease.
            put = self.token - (len(attempts) - number) * 1_000_000
            self.reply += [b"%d" % put, b"", attempt.encode(), b"", b"0", b"0"]
        self.places = range(0, len(self.reply), 6)
        self.all_first = set(attempts) == {"1"}


def run_of(batch: Batch) -> BatchRun:
    """A run in which each message took a millisecond at most, but for the third: a second."""

    class Source:
        name = "q"

    run = BatchRun(Source(), None, batch, 0.0)  # type: ignore[arg-type]
    run.turns = [(0, 0.0, "a"), (2, 0.002, "b"), (4, 1.003, "a")]
    run.slow = [(2, 1.0)]
    run.done = list(batch.places)
    run.begun = 1.003 + 0.001 * (len(batch.places) - 5)
    return run


@pytest.mark.parametrize(
    ("attempts", "waited"), [("111111", 6), ("121111", 5), ("122121", 3), ("222222", 0)]
)
def test_only_first_attempts_of_a_batch_count_a_wait(attempts: str, waited: int) -> None:
    one = Meter()
    one.handled(run_of(Batch(attempts)), 0, 6, 1.0045)
    reading = one.read()
    waits = counted(reading, "wait")
    assert sum(sum(value[:-1]) for value in waits.values()) == waited
    if attempts != "111111":
        # Where some were handled before each is looked at.
        longest = {number: 6 - number for number, attempt in enumerate(attempts) if attempt == "1"}
        assert sum(value[-1] for value in waits.values()) == sum(longest.values())
    handlings = counted(reading, "handling")
    assert {labels[1]: sum(value[:-1]) for labels, value in handlings.items()} == {"a": 4, "b": 2}
    assert handlings["q", "b"][BOUNDS.index(1.0)] == 1
    assert handlings["q", "b"][-1] == pytest.approx(1.001)


@pytest.mark.parametrize("cut", range(7))
def test_a_batch_that_is_counted_in_two_parts_is_counted_once(cut: int) -> None:
    whole, parts = Meter(), Meter()
    whole.handled(run_of(Batch("211211")), 0, 6, 1.0045)
    run = run_of(Batch("211211"))
    begun, run.begun = run.begun, 0.0
    parts.handled(run, 0, cut, 0.0 if cut == 0 else 1.0045)
    # The thread has ended the batch by the time that the rest is counted.
    run.begun = begun
    parts.handled(run, cut, 6, 1.0045)
    for name in ("handled", "wait"):
        assert counted(parts.read(), name) == counted(whole.read(), name)
    for labels, (*counts, _) in counted(parts.read(), "handling").items():
        assert counts == counted(whole.read(), "handling")[labels][:-1]
