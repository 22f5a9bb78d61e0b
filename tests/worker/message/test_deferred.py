"""``RetryAfter(…, attempt=False)``: come back later, as often as need be, at the same attempt."""

from __future__ import annotations

import asyncio
import logging
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from interlock import (
    App,
    KeyedExecutor,
    KeyedQueue,
    Retry,
    RetryAfter,
    connect,
    current_lease,
)
from interlock.client.wire.messages import micros
from interlock.testing import ManualClock
from interlock.worker.message.execution import judge
from tests.worker.apps import deferring
from tests.worker.workers import PATIENCE, wait_for

ENGINES = pytest.mark.parametrize("engine", ["redis", "hub", "memory"], indirect=True)
ONCE = Retry(1)


class NoSteering(RetryAfter):
    """Made without what it is made of."""

    def __init__(self) -> None:
        Exception.__init__(self, "later")
        self.seconds = 0.01
        self.attempt = False


def handler(times: int) -> tuple[Callable[[Any], None], list[tuple[object, int]]]:
    """A handler that asks this number of times to be called later, and its arguments."""
    seen: list[tuple[object, int]] = []

    def handle(payload: object) -> None:
        seen.append((payload, current_lease().attempt))
        if [one for one, _ in seen].count(payload) <= times:
            raise RetryAfter(0.01, attempt=False)

    return handle, seen


def test_retry_after_without_an_attempt_survives_pickling() -> None:
    assert RetryAfter(3).attempt and not RetryAfter(3, attempt=False).attempt
    for error in (
        RetryAfter(3),
        RetryAfter(3, attempt=False),
        RetryAfter(3, limit="api"),
        RetryAfter(3, attempt=False, limit="api"),
    ):
        same = pickle.loads(pickle.dumps(error))
        assert (same.seconds, same.attempt, same.limit) == (3, error.attempt, error.limit)


@pytest.mark.parametrize("limit", ["", "a\x1fb", "a" * 1_025, "\ud800"])
def test_retry_after_refuses_what_is_not_a_limit_name(limit: str) -> None:
    with pytest.raises(ValueError, match=r"RetryAfter\(\): limit is .*; allowed: 1 to 1,024 bytes"):
        RetryAfter(3, limit=limit)


@ENGINES
@pytest.mark.parametrize("pool", ["thread", "asyncio"])
@pytest.mark.parametrize("kind", ["wait", "wait_async"])
def test_a_deferred_task_is_redelivered_at_the_same_attempt_and_keeps_its_keys(
    url: str, pool: str, kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(url, retry=ONCE, audit=True)
    app.task(keys="{path}", result_ttl=60, name="wait")(getattr(deferring, kind).function)
    order: list[int] = []

    @app.task(keys="{path}", result_ttl=60)
    def behind(path: str) -> None:
        order.append(len(Path(path).read_text().splitlines()))

    with app, app.worker(threads=4, pool=pool) as worker:
        path = str(tmp_path / "calls")
        job, last = app.tasks["wait"].send(path, 3), behind.send(path)
        assert job.result(PATIENCE) == ["calls:1"]
        assert last.result(PATIENCE) is None
        wait_for(lambda: worker.figures().handled == 2, "not handled")
        figures = worker.figures()
        assert figures.failed == figures.lost == figures.violations == 0
        assert app._queue("default").stats().releases >= 3
    assert order == [4]
    assert (tmp_path / "calls").read_text().split() == ["1"] * 4
    assert not [one for one in caplog.records if one.levelno > logging.WARNING]


@ENGINES
def test_deferred_messages_of_batches_are_redelivered(url: str) -> None:
    app = App(url, retry=ONCE, audit=True)
    calls: dict[int, list[int]] = {}

    @app.task(keys="{number}")
    def quick(number: int) -> None:
        calls.setdefault(number, []).append(current_lease().attempt)
        if len(calls[number]) <= number % 3:
            raise RetryAfter(0, attempt=False)

    with app:
        for number in range(300):
            quick.send(number)
        with app.worker(threads=4) as worker:
            app._queue("default").join(PATIENCE)
            wait_for(lambda: worker.figures().handled == 300, "not handled")
            assert worker.figures().failed == worker.figures().violations == 0
    assert calls == {number: [1] * (1 + number % 3) for number in range(300)}


def test_deferred_messages_of_a_process_pool_are_redelivered(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deferring.app, "url", url)
    with deferring.app as app, app.worker(threads=1, pool="process"):
        jobs = [
            task.send(str(tmp_path / task.name), 2)
            for task in (deferring.wait, deferring.wait_async)
        ]
        assert [job.result(PATIENCE) for job in jobs] == [["wait:1"], ["wait_async:1"]]


@ENGINES
@pytest.mark.parametrize("timeout", [None, PATIENCE])
def test_deferred_messages_of_consume_are_redelivered(url: str, timeout: float | None) -> None:
    handle, seen = handler(2)
    with connect(url) as client:
        queue = client.queue("plain", str, retry=ONCE)
        queue.put("a", keys="k")
        with queue.consume(handle, threads=2, timeout=timeout):
            queue.join(PATIENCE)
    assert seen == [("a", 1)] * 3


@ENGINES
def test_deferred_messages_of_asyncio_consume_are_redelivered(url: str) -> None:
    handle, seen = handler(2)

    async def ahandle(payload: str) -> None:
        await asyncio.sleep(0)
        handle(payload)

    async def main() -> None:
        with connect(url) as client:
            queue = client.queue("plain", str, retry=ONCE)
            await queue.aio.put("a", keys="k")
            consumer = asyncio.create_task(queue.aio.consume(ahandle))
            await queue.aio.join(PATIENCE)
            consumer.cancel()
            await asyncio.wait([consumer])
            await client.aio.close()

    asyncio.run(main())
    assert seen == [("a", 1)] * 3


@ENGINES
def test_leaving_a_lease_block_by_retry_after_defers_the_message(url: str) -> None:
    with connect(url) as client:
        queue = client.queue("plain", str, retry=ONCE)
        queue.put("a")
        for error in (RetryAfter(0.01, attempt=False), NoSteering()):
            with pytest.raises(RetryAfter), queue.get(timeout=PATIENCE):
                raise error
        with queue.get(timeout=PATIENCE) as payload:
            assert (payload, current_lease().attempt) == ("a", 1)
        assert queue.stats().releases == 2


def test_a_test_worker_handles_a_deferred_message_when_the_clock_is_advanced() -> None:
    app = App("memory://", retry=ONCE)
    calls: list[int] = []

    @app.task
    def wait() -> None:
        calls.append(current_lease().attempt)
        if len(calls) < 3:
            raise RetryAfter(30, attempt=False)

    with app.testing() as worker:
        job = wait.send()
        assert (worker.run_until_idle(), worker.run_until_idle(), worker.dead) == (1, 0, [])
        assert job.state() == "backing_off"
        worker.advance(29.9)
        assert worker.run_until_idle() == 0
        for _ in range(2):
            worker.advance(30)
            assert worker.run_until_idle() == 1
    assert calls == [1, 1, 1]


def test_a_deferred_message_of_an_in_process_queue_is_redelivered() -> None:
    clock = ManualClock()
    queue: KeyedQueue[str] = KeyedQueue(clock=clock, retry=ONCE)
    queue.put("a", keys="k")
    queue.put("b", keys="k")
    with pytest.raises(RetryAfter), queue.get_nowait():
        raise RetryAfter(30, attempt=False)
    assert queue.stats().backing_off == 1 and queue.qsize() == 2
    clock.advance(30)
    with queue.get_nowait() as payload:
        assert (payload, current_lease().attempt) == ("a", 1)


def test_deferred_messages_of_an_in_process_consume_are_redelivered() -> None:
    handle, seen = handler(2)
    queue: KeyedQueue[str] = KeyedQueue(retry=ONCE)
    queue.put("a", keys="k")
    with queue.consume(handle, threads=2):
        queue.join(PATIENCE)
    assert seen == [("a", 1)] * 3


def test_deferred_messages_of_an_in_process_asyncio_consume_are_redelivered() -> None:
    handle, seen = handler(1)

    async def ahandle(payload: str) -> None:
        handle(payload)

    async def main() -> None:
        queue: KeyedQueue[str] = KeyedQueue(retry=ONCE)
        queue.put("a")
        consumer = asyncio.create_task(queue.aio.consume(ahandle))
        await queue.aio.join(PATIENCE)
        consumer.cancel()
        await asyncio.wait([consumer])
        queue.put("b")
        with pytest.raises(RetryAfter):
            async with await queue.aio.get():
                raise RetryAfter(0, attempt=False)
        async with await queue.aio.get() as payload:
            assert (payload, current_lease().attempt) == ("b", 1)

    asyncio.run(main())
    assert seen == [("a", 1)] * 2


def test_a_deferred_call_of_an_executor_runs_again() -> None:
    calls: list[int] = []
    told = threading.Event()

    def call() -> str:
        calls.append(current_lease().attempt)
        if len(calls) < 4:
            raise RetryAfter(0.01, attempt=False)
        told.set()
        return "done"

    with KeyedExecutor(2, retry=ONCE) as executor:
        assert executor.submit(call).result(PATIENCE) == "done"
    assert calls == [1, 1, 1, 1] and told.is_set()


def test_a_deferral_is_sent_in_whole_microseconds() -> None:
    from interlock.client.wire import messages as wire

    assert wire.deferring(3, 4, 0.25) == ("DEFER", 3, 4, micros(0.25))


def test_a_handler_that_closes_a_limit_name_is_settled_in_one() -> None:
    lease: Any = SimpleNamespace(attempt=1, run=None)
    for attempt, answer in ((True, "retried"), (False, "released")):
        outcome = judge(Retry(), lease, RetryAfter(0.5, attempt=attempt, limit="\xe9"))
        text = b"RetryAfter: retry after 0.5 s"
        expected = ("CLOSE", 7, 5, 500_000, text, b"\xc3\xa9", int(attempt))
        assert outcome.settlement(7, 5) == expected
        assert outcome.expected == answer
