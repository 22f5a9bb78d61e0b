"""A worker wakes whom it concerns before any code runs that could wait for them."""

import threading
import time
from functools import partial
from typing import Any

import pytest

from interlock import KeyedExecutor
from interlock._core import Waiter
from tests.support import PATIENCE, Running, until


class Last:
    """Waits, as it goes, for something that who waits for the result does."""

    def __init__(self, seen: threading.Event, met: list[bool]) -> None:
        self.seen, self.met = seen, met

    def __del__(self) -> None:
        self.met.append(self.seen.wait(PATIENCE / 4))


def asleep() -> None:
    """Long enough for who waits to have come to sleep; were it not, the test would see nothing."""
    time.sleep(0.05)


@pytest.mark.parametrize("held_by", ["argument", "keyword", "function", "two arguments"])
def test_references_of_a_call_are_released_after_its_waiters_are_woken(held_by: str) -> None:
    seen, begin = threading.Event(), threading.Event()
    met: list[bool] = []
    with KeyedExecutor(1) as executor:
        last: Any = Last(seen, met)

        def call(*_: Any, **__: Any) -> None:
            begin.wait(PATIENCE)

        if held_by == "argument":
            future = executor.submit(call, 1, "a", last)
        elif held_by == "keyword":
            future = executor.submit(call, last=last)
        elif held_by == "two arguments":
            future = executor.submit(call, [last], None)
        else:
            future = executor.submit(partial(call, last))
        del last

        def wait() -> None:
            future.result()
            seen.set()

        waiter = Running(wait)
        asleep()
        begin.set()
        waiter.result()
        until(lambda: met)
    assert met == [True]


def test_asyncio_callbacks_run_after_waiters_are_woken() -> None:
    seen, begin = threading.Event(), threading.Event()
    met: list[bool] = []
    with KeyedExecutor(1) as executor:
        future = executor.submit(begin.wait, PATIENCE)
        waiter = Waiter(executor.queue, lambda: met.append(seen.wait(PATIENCE / 4)), None)
        assert not waiter.drained()

        def wait() -> None:
            future.result()
            seen.set()

        running = Running(wait)
        asleep()
        begin.set()
        running.result()
        until(lambda: met)
        assert waiter.drained()
    assert met == [True]
