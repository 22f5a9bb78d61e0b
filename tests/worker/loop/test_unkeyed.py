"""Handlers that are kept for messages without keys."""

from __future__ import annotations

import asyncio
import threading

import pytest

from interlock.app import App
from interlock.worker.loop.state import Places
from tests.worker.loop.test_worker import drained, queue_of
from tests.worker.workers import wait_for

pytestmark = pytest.mark.parametrize("engine", ["memory", "redis", "hub"], indirect=True)


@pytest.mark.parametrize("pool", ["thread", "asyncio"])
def test_unkeyed_messages_have_reserved_handlers_while_keyed_ones_occupy_the_others(
    app: App, pool: str
) -> None:
    gate = threading.Event()
    begun: list[int] = []
    done: list[int] = []

    @app.task(keys="{number}")
    async def keyed(number: int) -> None:
        begun.append(number)
        while not gate.is_set():
            await asyncio.sleep(0.001)

    @app.task
    def unkeyed(number: int) -> None:
        done.append(number)

    with app.worker(threads=5, unkeyed=2, pool=pool) as worker:
        for number in range(8):
            keyed.send(number)
        wait_for(lambda: len(begun) == 3, "not begun")
        for number in range(20):
            unkeyed.send(number)
        try:
            wait_for(lambda: len(done) == 20, "no handler was kept for them")
            wait_for(lambda: queue_of(app).stats().leased == 3, "not those with keys alone")
            assert sorted(begun) == [0, 1, 2]
        finally:
            gate.set()
        drained(app)
    assert (worker.figures().handled, worker.figures().running) == (28, 0)


def test_unreserved_handlers_take_unkeyed_messages_too(app: App) -> None:
    together = threading.Barrier(4)

    @app.task
    def unkeyed() -> None:
        together.wait(30)

    with app.worker(threads=4, unkeyed=1):
        for _ in range(4):
            unkeyed.send()
        drained(app)


def test_each_queue_has_its_reserved_handlers_for_unkeyed_messages(app: App) -> None:
    gate = threading.Event()
    done: list[str] = []

    @app.task(keys="{number}", queue="a")
    def keyed(number: int) -> None:
        gate.wait(30)

    @app.task(queue="a")
    def first() -> None:
        done.append("a")

    @app.task(queue="b")
    def second() -> None:
        done.append("b")

    with app.worker(threads=3, unkeyed=1, queues=("a", "b")) as worker:
        for number in range(4):
            keyed.send(number)
        wait_for(lambda: len(worker.stacks()) == 2, "not begun")
        first.send()
        second.send()
        wait_for(lambda: sorted(done) == ["a", "b"], "no handler was kept for them")
        gate.set()
        drained(app, "a")


@pytest.mark.parametrize(
    ("unkeyed", "error", "text"),
    [
        (4, ValueError, "unkeyed is 4 of 4 handlers; allowed: 0 to 3"),
        (-1, ValueError, "unkeyed is -1 of 4 handlers; allowed: 0 to 3"),
        (True, TypeError, "unkeyed is bool; allowed: int"),
        ("1", TypeError, "unkeyed is str; allowed: int"),
    ],
)
def test_an_invalid_number_of_handlers_for_unkeyed_messages_is_refused(
    app: App, unkeyed: object, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        app.worker(threads=4, unkeyed=unkeyed)  # type: ignore[arg-type]


def test_free_handlers_fill_the_reservation_for_unkeyed_messages_first(engine: str) -> None:
    # As processes of a pool do, which are ready one by one, and may die.
    places = Places(5, 2)
    seen = []
    for count in (1, 1, 1, 2, -1, -3, 1):
        places.moved(count)
        seen.append((places.free("unkeyed"), places.free("any")))
    assert seen == [(1, 0), (2, 0), (2, 1), (2, 3), (2, 2), (1, 0), (2, 0)]
