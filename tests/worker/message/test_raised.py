"""Whatever a handler of a task raises, its message is settled and its worker continues."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import interlock
from interlock.app import App, Handling
from interlock.app.invocation import Invoked
from interlock.client.faces import handler_time
from tests.consumer.raised import POLICY, RAISED, check, throw
from tests.worker.apps import thrower
from tests.worker.workers import wait_for

ENGINES = pytest.mark.parametrize("engine", ["memory", "redis", "hub"], indirect=True)
MEMORY = pytest.mark.parametrize("engine", ["memory"], indirect=True)
HELD = sum(not one.attempts for one in RAISED.values())
NONE: frozenset[str] = frozenset()
FOREIGN = frozenset({"StopIteration", "StopAsyncIteration"})
"""A coroutine cannot raise them: Python makes a RuntimeError of them."""
POOLS = {
    "threads": {"threads": 2},
    "one thread": {"threads": 1},
    "a loop": {"threads": 2, "pool": "asyncio"},
    "processes": {"threads": 2, "pool": "process"},
}


@pytest.fixture
def throwing(url: str) -> Iterator[App]:
    thrower.app.close()
    thrower.app.url = url
    yield thrower.app
    thrower.app.close()


def dead(app: App) -> dict[str, tuple[int, str]]:
    found = {}
    for letter in app._queue("default").dead_letters(1000):
        held = interlock.TaskLease("", 0, 0, 0, 0, frozenset(), frozenset(), letter.payload)
        prepared = app._as_tasks().prepare(held)
        assert isinstance(prepared, Invoked)
        found[prepared.call.args[0]] = letter.attempts, letter.error
    return found


def all_settled(app: App) -> None:
    queue = app._queue("default")
    wait_for(lambda: queue.stats().unsettled == HELD, "a message is not settled")


def checked(app: App, except_for: frozenset[str]) -> None:
    check(dead(app), app._queue("default").stats().backing_off, except_for=except_for)


@MEMORY
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("task", ["plain", "awaited", "left"])
def test_any_exception_of_a_handler_is_settled_in_each_pool(
    throwing: App, pool: str, task: str
) -> None:
    with throwing.worker(**POOLS[pool]) as worker:  # type: ignore[arg-type]
        for name in RAISED:
            throwing.tasks[task].send(name)
        all_settled(throwing)
        checked(throwing, NONE if task == "plain" else FOREIGN)
        for _ in range(4):
            throwing.tasks[task].send("none of them")
        wait_for(lambda: worker.figures().handled == 4, "the worker handles no more")
        assert worker.broken is None


@ENGINES
def test_any_exception_of_a_handler_is_settled_on_each_engine(throwing: App) -> None:
    with throwing.worker(threads=2):
        for name in RAISED:
            thrower.plain.send(name)
        all_settled(throwing)
        checked(throwing, NONE)


@ENGINES
@pytest.mark.parametrize("task", ["plain", "left"])
@pytest.mark.parametrize("threads", [1, 2])
def test_any_exception_of_a_handler_is_settled_in_a_batch(
    throwing: App, task: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler_time, "QUICK", 60.0)
    monkeypatch.setattr(handler_time, "LONGEST_RUN", 60.0)
    with throwing.worker(threads=threads) as worker:
        for _ in range(2 * handler_time.SPAN):
            thrower.plain.send("none of them")
        queue = throwing._queue("default")
        wait_for(lambda: queue.stats().unsettled == 0, "a message is not settled")
        for name in RAISED:
            throwing.tasks[task].send(name)
        all_settled(throwing)
        checked(throwing, NONE if task == "plain" else FOREIGN)
        assert worker.broken is None


@MEMORY
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("name", ["stop", "cancel"])
def test_a_message_whose_handler_stops_its_event_loop_is_settled(
    throwing: App, pool: str, name: str
) -> None:
    with throwing.worker(**POOLS[pool]) as worker:  # type: ignore[arg-type]
        for _ in range(2):
            thrower.unruly.send(name)
        queue = throwing._queue("default")
        wait_for(lambda: queue.stats().unsettled == 0, "a message is not settled")
        thrower.awaited.send("none of them")
        wait_for(lambda: queue.stats().unsettled == 0, "the worker handles no more")
        assert worker.broken is None


@MEMORY
@pytest.mark.parametrize("hook", ["before_handle", "on_error", "after_handle"])
@pytest.mark.parametrize("pool", ["threads", "a loop"])
def test_any_exception_of_a_hook_is_settled(app: App, hook: str, pool: str) -> None:
    fails = hook == "on_error"

    @app.task(keys="{name}", retry=POLICY)
    def call(name: str) -> None:
        if fails:
            raise LookupError(name)

    def raising(handling: Handling, *_: Any) -> None:
        throw(handling.args[0])

    getattr(app, hook)(raising)
    with app.worker(**POOLS[pool]) as worker:  # type: ignore[arg-type]
        for name in RAISED:
            call.send(name)
        if hook == "before_handle":
            # It is as if the handler had raised it.
            all_settled(app)
            checked(app, NONE)
            return
        app._queue("default").join(30)
        assert worker.broken is None
    if fails:
        assert {text.partition(":")[0] for _, text in dead(app).values()} == {"LookupError"}
    else:
        assert dead(app) == {}


def test_any_exception_of_a_handler_is_settled_in_a_test_worker() -> None:
    app = App("memory://", retry=POLICY)

    @app.task(keys="{name}")
    def call(name: str) -> None:
        throw(name)

    with app.testing() as worker:
        for name in RAISED:
            call.send(name)
        worker.run_until_idle(raise_errors=False)
        found = {one.args[0]: (one.attempt, one.error) for one in worker.dead}
        check(found, app._queue("default").stats().backing_off, except_for=NONE)


@ENGINES
def test_consume_on_an_engine_settles_any_exception_and_its_threads_continue(url: str) -> None:
    with interlock.connect(url) as client:
        queue = client.queue("raised", str, retry=POLICY)
        with queue.consume(throw, threads=2) as consumer:
            for name in RAISED:
                queue.put(name, keys=name)
            wait_for(lambda: queue.stats().unsettled == HELD, "a message is not settled")
            found = {one.payload: (one.attempts, one.error) for one in queue.dead_letters()}
            check(found, queue.stats().backing_off, except_for=NONE)
            assert all(thread.is_alive() for thread in consumer._threads)


@ENGINES
def test_a_lease_block_on_an_engine_settles_and_reraises_any_exception(url: str) -> None:
    with interlock.connect(url) as client:
        queue = client.queue("raised", str, retry=POLICY)
        for name in RAISED:
            queue.put(name, keys=name)
        while queue.stats().ready:
            lease = queue.get_nowait()
            one = RAISED[lease.payload].make()
            with pytest.raises(type(one)) as caught, lease:
                raise one
            assert caught.value is one
        found = {one.payload: (one.attempts, one.error) for one in queue.dead_letters()}
        check(found, queue.stats().backing_off, except_for=NONE)


@MEMORY
def test_asyncio_consume_on_an_engine_settles_any_exception(url: str) -> None:
    async def handle(name: str) -> None:
        throw(name)

    async def main() -> None:
        async with interlock.connect(url) as client:
            queue = client.queue("raised", str, retry=POLICY)
            consumer = asyncio.create_task(queue.consume(handle, threads=2))
            while (await queue.stats()).unsettled > HELD and not consumer.done():
                await asyncio.sleep(0)
            consumer.cancel()
            await asyncio.gather(consumer, return_exceptions=True)

    with interlock.connect(url) as client:
        queue = client.queue("raised", str, retry=POLICY)
        for name in RAISED:
            queue.put(name, keys=name)
        for _ in range(10):
            # SystemExit and its like end a loop, and the consumer with it.
            runner = threading.Thread(target=lambda: asyncio.run(main()))
            threading.excepthook, before = lambda _: None, threading.excepthook
            try:
                runner.start()
                runner.join(30)
            finally:
                threading.excepthook = before
            if queue.stats().unsettled == HELD:
                break
        found = {one.payload: (one.attempts, one.error) for one in queue.dead_letters()}
        check(found, queue.stats().backing_off, except_for=FOREIGN)
