"""Coroutine functions that do not wait: messages of a batch share a task; until one waits."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from interlock import Reject, RetryAfter, current_lease
from interlock.app import App
from interlock.client.faces import handler_time
from interlock.retry import Retry
from interlock.worker.loop import batch_runner
from interlock.worker.reports.audit import Audit
from tests.worker.workers import wait_for

ENGINES = pytest.mark.parametrize("engine", ["memory", "redis", "hub"], indirect=True)
THREADS = pytest.mark.parametrize("threads", [1, 4])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any handler that does not wait is quick: what is tested is not how fast the machine is."""
    monkeypatch.setattr(handler_time, "QUICK", 10.0)
    monkeypatch.setattr(handler_time, "LONGEST_BATCH", 100.0)
    monkeypatch.setattr(handler_time, "COMPUTED", 60.0)
    monkeypatch.setattr(handler_time, "LATE", 60.0)
    monkeypatch.setattr(handler_time, "LONGEST_RUN", 60.0)


@pytest.fixture
def batched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of messages that were handled in a batch, one for each batch."""
    counts: list[int] = []
    after = batch_runner.BatchRunner._handle

    def handle(runner: Any, run: Any, returned: Any) -> bool:
        try:
            return after(runner, run, returned)
        finally:
            counts.append(run.ended)

    monkeypatch.setattr(batch_runner.BatchRunner, "_handle", handle)
    return counts


def send_with_one_that_waits(app: App, pool: str, gate: threading.Event) -> list[int]:
    """Send 400 messages; that of n = 300 waits for the gate. Return their ids."""

    @app.task(keys="{n}")
    def task(n: int) -> None:
        if n == 300:
            gate.wait(60)

    @app.task(keys="{n}")
    async def atask(n: int) -> None:
        while n == 300 and not gate.is_set():
            await asyncio.sleep(0.001)

    if pool == "asyncio":
        return [atask.send(n).id for n in range(400)]
    return [task.send(n).id for n in range(400)]


def queue_of(app: App) -> Any:
    return app._queue("default")


@ENGINES
@THREADS
def test_coroutines_that_do_not_wait_share_tasks_and_keep_order(
    app: App, threads: int, batched: list[int]
) -> None:
    seen: dict[int, list[int]] = defaultdict(list)
    # By name: a message that keeps its task would be the last of it.
    tasks: set[str] = set()
    loops: set[Any] = set()

    @app.task(keys="{key}")
    async def quick(key: int, n: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task.get_name())
        loops.add(asyncio.get_running_loop())
        assert threading.current_thread().name == "interlock-handlers"
        async with asyncio.timeout(20):
            seen[key].append(n)

    for n in range(2000):
        quick.send(n % 500, n)
    with app.worker(pool="asyncio", threads=threads) as worker:
        queue_of(app).join(60)
    assert all(seen[key] == list(range(key, 2000, 500)) for key in range(500))
    assert len(loops) == 1 and sum(batched) > 0 and len(tasks) < 2000 - sum(batched) // 2
    figures = worker.figures()
    assert (figures.handled, figures.failed, figures.lost, figures.violations) == (2000, 0, 0, 0)


def test_each_message_of_a_shared_task_has_its_own_context_and_lease(
    app: App, batched: list[int]
) -> None:
    variable: ContextVar[int] = ContextVar("variable")
    found: dict[int, Any] = {}
    later: dict[int, int] = {}

    @app.task(keys="account:{n}")
    async def quick(n: int) -> None:
        assert variable.get(None) is None
        variable.set(n)
        found[n] = current_lease()
        if n % 50 == 49:
            await asyncio.sleep(0)
            assert variable.get() == n and current_lease() is found[n]
        else:
            asyncio.get_running_loop().call_soon(note, n)

    def note(n: int) -> None:
        assert variable.get() == n
        later[n] = current_lease().id

    jobs = {n: quick.send(n) for n in range(600)}
    with app.worker(pool="asyncio", threads=4) as worker:
        queue_of(app).join(60)
    assert sum(batched) > 0 and worker.figures().failed == 0
    assert {n: lease.id for n, lease in found.items()} == {n: job.id for n, job in jobs.items()}
    assert later == {n: job.id for n, job in jobs.items() if n % 50 != 49}


@ENGINES
@THREADS
def test_a_coroutine_may_end_in_any_way_in_the_middle_of_a_batch(
    app: App, threads: int, batched: list[int]
) -> None:
    seen: Counter[str] = Counter()
    kinds = ("reject", "retry", "raise", "exit", "cancels", "leaves", "waits", "fine")

    @app.task(keys="{n}", retry=Retry(3, first=0))
    async def task(n: int) -> None:
        # The first ones have batches begin.
        what = kinds[n % len(kinds)] if n >= 400 else "fine"
        seen[what] += 1
        if what == "reject":
            raise Reject("too large")
        if what == "waits":
            await asyncio.sleep(0)
        if what == "leaves":
            # It never waits, so the cancellation is not raised here, nor in the next message.
            running = asyncio.current_task()
            assert running is not None and not running.cancelling()
            running.cancel()
        if current_lease().attempt == 1:
            if what == "retry":
                raise RetryAfter(0)
            if what == "raise":
                raise LookupError(n)
            if what == "exit":
                raise SystemExit(3)
            if what == "cancels":
                raise asyncio.CancelledError

    for n in range(800):
        task.send(n)
    with app.worker(pool="asyncio", threads=threads) as worker:
        queue_of(app).join(60)
        assert worker.broken is None
    once = dict.fromkeys(("reject", "waits", "leaves"), 50) | {"fine": 450}
    assert seen == once | dict.fromkeys(("retry", "raise", "exit", "cancels"), 100)
    assert sum(batched) > 0
    assert [one.error for one in queue_of(app).dead_letters(1000)] == ["too large"] * 50
    figures = worker.figures()
    # One that is delivered later, as RetryAfter asks, has not failed.
    assert (figures.handled, figures.lost, figures.violations) == (750, 0, 0)


@ENGINES
def test_a_coroutine_that_waits_in_a_batch_does_not_delay_other_messages(
    app: App, batched: list[int]
) -> None:
    seen: list[int] = []
    gate = threading.Event()

    @app.task()
    async def quick(n: int) -> None:
        seen.append(n)

    @app.task()
    async def waits() -> None:
        while not gate.is_set():
            await asyncio.sleep(0.001)

    for n in range(500):
        quick.send(n)
    waits.send()
    for n in range(500, 1000):
        quick.send(n)
    with app.worker(pool="asyncio", threads=4) as worker:
        wait_for(lambda: len(seen) == 1000, "those behind it are not handled")

        def shown() -> bool:
            return any("await asyncio.sleep(0.001)" in one["stack"] for one in worker.stacks())

        wait_for(shown, "its stack does not show where it waits")
        gate.set()
        queue_of(app).join(60)
    assert sorted(seen) == list(range(1000)) and sum(batched) > 0
    figures = worker.figures()
    assert (figures.handled, figures.lost, figures.violations) == (1001, 0, 0)


@ENGINES
def test_a_coroutine_of_a_batch_that_runs_too_long_is_cancelled_and_no_other_is(
    app: App, caplog: pytest.LogCaptureFixture, batched: list[int]
) -> None:
    attempts: list[int] = []
    cancelled: list[int] = []
    seen: list[int] = []

    @app.task()
    async def plain(n: int) -> None:
        seen.append(n)

    @app.task(keys="k", timeout=0.5, retry=Retry(first=0))
    async def hangs() -> None:
        attempts.append(current_lease().attempt)
        if attempts == [1]:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(1)
                raise

    for n in range(300):
        plain.send(n)
    hangs.send()
    for n in range(300, 400):
        plain.send(n)
    with app.worker(pool="asyncio", threads=2) as worker:
        queue_of(app).join(60)
        wait_for(lambda: worker.figures().running == 0, "the handler did not end")
    assert attempts == [1, 2] and cancelled == [1] and sum(batched) > 0
    assert sorted(seen) == list(range(400))
    assert "asyncio.Event().wait()" in caplog.text, "its stack is logged"
    assert worker.figures().violations == 0


@ENGINES
@THREADS
def test_a_worker_stopped_while_a_coroutine_of_a_batch_waits_returns_what_has_not_begun(
    app: App, threads: int, batched: list[int]
) -> None:
    gate, stuck = threading.Event(), threading.Event()
    seen: list[int] = []

    @app.task(keys="{n}")
    async def task(n: int) -> None:
        seen.append(n)
        if n == 700:
            stuck.set()
            while not gate.is_set():
                await asyncio.sleep(0.001)

    for n in range(1500):
        task.send(n)
    worker = app.worker(pool="asyncio", threads=threads).start()
    assert stuck.wait(60)
    worker.quiesce()
    queue = queue_of(app)
    wait_for(lambda: queue.stats().leased == 1, "what has not begun did not go back")
    gate.set()
    assert worker.stop(30)
    stats = queue.stats()
    assert (stats.leased, stats.acks, stats.retries) == (0, len(seen), 0)
    with app.worker(pool="asyncio", threads=threads):
        queue.join(60)
    assert sorted(seen) == list(range(1500)) and sum(batched) > 0


@ENGINES
def test_other_calls_run_in_a_batch_of_coroutines_as_elsewhere(
    app: App, batched: list[int]
) -> None:
    seen: list[tuple[str, int]] = []

    @app.task(keys="{n}", result_ttl=60)
    async def kept(n: int) -> int:
        if n % 100 == 99:
            await asyncio.sleep(0)
        seen.append(("kept", n))
        return 2 * n

    @app.task(keys="{n}", timeout=60)
    async def timed(n: int) -> None:
        seen.append(("timed", n))

    @app.task(keys="{n}")
    def blocks(n: int) -> None:
        assert threading.current_thread().name.startswith("interlock-handler_")
        seen.append(("blocks", n))

    jobs = [kept.send(n) for n in range(300)]
    for n in range(300):
        timed.send(n)
    for n in range(30):
        blocks.send(n)
    with app.worker(pool="asyncio", threads=4) as worker:
        queue_of(app).join(60)
        assert [job.result(30) for job in jobs] == [2 * n for n in range(300)]
    assert Counter(what for what, _ in seen) == {"kept": 300, "timed": 300, "blocks": 30}
    assert sum(batched) > 0
    assert (worker.figures().handled, worker.figures().violations) == (630, 0)


def test_other_tasks_of_the_loop_run_between_the_messages_of_a_batch(
    app: App, monkeypatch: pytest.MonkeyPatch, batched: list[int]
) -> None:
    monkeypatch.setattr(batch_runner, "LONGEST_SLICE", 0.0)
    turns: list[int] = []
    seen: list[int] = []

    @app.task()
    async def quick(n: int) -> None:
        seen.append(n)
        asyncio.get_running_loop().call_soon(lambda: turns.append(len(seen)))

    for n in range(400):
        quick.send(n)
    with app.worker(pool="asyncio", threads=2):
        queue_of(app).join(60)
    assert sum(batched) > 0
    assert len(set(turns)) > 200


def test_a_cancellation_that_a_coroutine_leaves_behind_does_not_reach_the_next_message(
    app: App, batched: list[int]
) -> None:
    failed: list[int] = []

    @app.task(retry=Retry(1))
    async def task(n: int) -> None:
        if n % 20 == 5:
            running = asyncio.current_task()
            assert running is not None
            running.cancel()
        elif n % 20 == 6:
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                failed.append(n)

    for n in range(400):
        task.send(n)
    with app.worker(pool="asyncio", threads=1):
        queue_of(app).join(60)
    assert sum(batched) > 0 and not failed


def test_a_timer_that_a_coroutine_leaves_behind_does_not_cancel_a_later_message(
    app: App, batched: list[int]
) -> None:
    cancelled: list[int] = []

    @app.task(retry=Retry(1))
    async def task(n: int) -> None:
        if n % 20 == 5:
            running = asyncio.current_task()
            assert running is not None
            asyncio.get_running_loop().call_soon(running.cancel)
        elif n % 20 == 6:
            try:
                for _ in range(5):
                    await asyncio.sleep(0)
            except asyncio.CancelledError:
                cancelled.append(n)

    for n in range(400):
        task.send(n)
    with app.worker(pool="asyncio", threads=1):
        queue_of(app).join(60)
    assert sum(batched) > 0 and not cancelled


@pytest.mark.skipif(sys.version_info < (3, 12), reason="new in Python 3.12")
@pytest.mark.parametrize("threads", [1, 4])
def test_a_function_marked_as_a_coroutine_function_may_return_anything_to_await(
    app: App, batched: list[int], threads: int
) -> None:
    handled: list[int] = []

    class Handling:
        def __init__(self, n: int) -> None:
            self.n = n

        def __await__(self) -> Iterator[Any]:
            if self.n % 20 == 7:
                yield
            handled.append(self.n)

    def function(n: int) -> Handling:
        return Handling(n)

    mark: Any = vars(inspect)["markcoroutinefunction"]
    task = app.task(retry=Retry(1))(mark(function))
    for n in range(400):
        task.send(n)
    with app.worker(pool="asyncio", threads=threads):
        queue_of(app).join(60)
    assert sum(batched) > 0 and sorted(handled) == [*range(400)]
    assert not list(queue_of(app).dead_letters())


@pytest.mark.skipif(sys.version_info < (3, 12), reason="new in Python 3.12")
@pytest.mark.parametrize("waits", [0, 1, 20])
def test_every_message_is_handled_on_a_loop_of_eager_tasks(app: App, waits: int) -> None:
    factory: Any = vars(asyncio)["eager_task_factory"]
    handled: list[int] = []
    running: set[int] = set()

    @app.on_process_start
    async def use() -> None:
        asyncio.get_running_loop().set_task_factory(factory)

    @app.task(retry=Retry(1))
    async def task(n: int) -> None:
        assert len(running) < 4
        running.add(n)
        for _ in range(waits if n % 3 else 0):
            await asyncio.create_task(asyncio.sleep(0))
        running.discard(n)
        handled.append(n)

    for n in range(400):
        task.send(n)
    with app.worker(pool="asyncio", threads=4):
        queue_of(app).join(60)
    assert sorted(handled) == [*range(400)]


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
@pytest.mark.parametrize("pool", ["thread", "asyncio"])
@pytest.mark.parametrize("level", [logging.DEBUG, logging.WARNING])
def test_a_message_that_holds_up_a_batch_is_logged_and_audited_as_handled_once(
    app: App,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    batched: list[int],
    pool: str,
    level: int,
) -> None:
    caplog.set_level(level)
    monkeypatch.setattr(handler_time, "LATE", 0.3)
    audited: list[int] = []
    after = Audit.ended

    def ended(audit: Audit, held: Any) -> None:
        audited.append(held.id)
        after(audit, held)

    monkeypatch.setattr(Audit, "ended", ended)
    gate = threading.Event()
    ids = send_with_one_that_waits(app, pool, gate)
    with app.worker(pool=pool, threads=2):
        wait_for(lambda: queue_of(app).stats().acks == 399, "those behind it are not handled")
        gate.set()
        queue_of(app).join(60)
    told = [vars(one)["id"] for one in caplog.records if "handled %.1f ms, attempt" in one.msg]
    assert sum(batched) > 0
    assert sorted(audited) == sorted(ids)
    assert sorted(told) == (sorted(ids) if level == logging.DEBUG else [])


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_coroutines_of_a_batch_begin_with_the_variables_of_the_program(
    app: App, batched: list[int]
) -> None:
    variable: ContextVar[str] = ContextVar("variable", default="none")
    seen: Counter[str] = Counter()

    @app.task
    async def task(n: int) -> None:
        seen[variable.get()] += 1
        variable.set("another message")

    for n in range(600):
        task.send(n)
    variable.set("program")
    with app.worker(pool="asyncio", threads=2):
        queue_of(app).join(60)
    assert sum(batched) > 0 and seen == {"program": 600}


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_the_stack_of_a_coroutine_that_holds_up_the_loop_in_a_batch_shows_where_it_is(
    app: App, monkeypatch: pytest.MonkeyPatch, batched: list[int]
) -> None:
    monkeypatch.setattr(handler_time, "LATE", 0.3)
    gate = threading.Event()

    @app.task(keys="{n}")
    async def task(n: int) -> None:
        if n == 300:
            gate.wait(60)

    for n in range(400):
        task.send(n)
    with app.worker(pool="asyncio", threads=2) as worker:
        wait_for(
            lambda: any("gate.wait(60)" in one["stack"] for one in worker.stacks()),
            "its stack does not show where it is",
        )
        gate.set()
        queue_of(app).join(60)
    assert sum(batched) > 0


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
@pytest.mark.parametrize("timed", [False, True])
def test_a_child_that_a_coroutine_of_a_batch_forks_handles_no_other_message(
    app: App, tmp_path: Path, batched: list[int], timed: bool
) -> None:
    notes, parent = tmp_path / "notes", os.getpid()
    codes: list[int] = []
    timeout = 60.0 if timed else None

    @app.task(keys="{n}", timeout=timeout)
    async def task(n: int) -> None:
        if os.getpid() != parent:
            notes.write_text("it handles another message")
        if n != 300:
            return
        if child := os.fork():
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            codes.append(os.waitstatus_to_exitcode(status))
        else:
            await asyncio.sleep(0)

    for n in range(400):
        task.send(n)
    with app.worker(pool="asyncio", threads=2):
        queue_of(app).join(60)
    assert sum(batched) > 0 and codes == [0] and not notes.exists()
