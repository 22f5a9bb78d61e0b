"""The pool of threads by itself: what is offered begins, whatever the threads were doing."""

from __future__ import annotations

import math
import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from interlock.retry import Retry
from interlock.worker.message.execution import Execution, Outcome, TaskLease
from interlock.worker.pools.thread_pool import COMPUTED, ThreadPool


class Calls:
    """A handler that ends when it is let."""

    task, timeout, retry, is_async = "f", None, Retry(), False

    def __init__(self, gate: threading.Event | None = None) -> None:
        self.gate = gate
        self.begun = threading.Event()

    def run(self) -> None:
        self.begun.set()
        if self.gate is not None:
            assert self.gate.wait(30)


def running(gate: threading.Event | None = None) -> Execution:
    held = TaskLease(
        queue="q", id=1, sequence=1, attempt=1, token=1, keys=frozenset(), shared=frozenset(),
        payload=b"",
    )  # fmt: skip
    none: Any = None
    invocation: Any = Calls(gate)
    batch: Any = SimpleNamespace(grant=SimpleNamespace(deadline=math.inf))
    return Execution(batch, held, invocation, none, 0.0)


@pytest.fixture
def ended() -> threading.Semaphore:
    return threading.Semaphore(0)


class Told:
    """Is told what an owner would be."""

    def __init__(self, done: Callable[[Execution, Outcome], None]) -> None:
        self._done = done

    @property
    def stops(self) -> bool:
        return False

    def handlers_ended(self, ended: Sequence[tuple[Execution, Outcome]]) -> None:
        for execution, outcome in ended:
            self._done(execution, outcome)

    def places_moved(self, count: int) -> None: ...

    def pool_broke(self, error: BaseException) -> None: ...


def started(size: int, ended: threading.Semaphore) -> ThreadPool:
    def done(execution: Execution, outcome: Outcome) -> None:
        assert outcome.how == "ack"
        ended.release()

    pool = ThreadPool(size, Told(done))
    pool.start()
    return pool


def test_every_message_offered_together_begins_while_earlier_ones_run(
    ended: threading.Semaphore,
) -> None:
    pool, gate = started(8, ended), threading.Event()
    batch = [running(gate) for _ in range(8)]
    pool.offer(batch)
    while not all(one.started for one in batch):
        pass
    gate.set()
    assert all(ended.acquire(timeout=30) for _ in batch)
    pool.close()


def test_every_offer_is_taken_under_random_bursts(ended: threading.Semaphore) -> None:
    # As a worker does: never more than there is room for, in bursts, as places fall free.
    size, chance = 4, random.Random(7)
    pool, out = started(size, ended), 0
    for _ in range(3000):
        burst = chance.randint(1, size)
        while out + burst > size:
            assert ended.acquire(timeout=30), "a message was offered and nobody came"
            out -= 1
        pool.offer([running() for _ in range(burst)])
        out += burst
    assert all(ended.acquire(timeout=30) for _ in range(out))
    pool.close()


def test_a_withdrawn_message_does_not_begin(ended: threading.Semaphore) -> None:
    pool, gate = started(1, ended), threading.Event()
    first, second = running(gate), running()
    pool.offer([first])
    while not first.started:
        pass
    pool.offer([second])
    assert pool.withdraw(second) and not pool.withdraw(first) and not pool.withdraw(second)
    gate.set()
    assert ended.acquire(timeout=30)
    assert second.started is None
    pool.close()


def test_an_offer_made_by_a_pool_thread_does_not_suppress_the_next_wake_up(
    ended: threading.Semaphore,
) -> None:
    more = [running()]

    def done(_: Execution, __: Outcome) -> None:
        if more:
            pool.offer([more.pop()])
        ended.release()

    pool = ThreadPool(1, Told(done))
    pool.start()
    pool.offer([running()])
    assert ended.acquire(timeout=30) and ended.acquire(timeout=30)
    pool.offer([running()])
    assert ended.acquire(timeout=30), "it was offered and nobody came"
    pool.close()


@pytest.fixture
def undivided() -> Iterator[None]:
    """The interpreter takes no thread out of a handler that only computes."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(60.0)
    yield
    sys.setswitchinterval(before)


def test_handlers_that_only_compute_are_run_by_one_thread(
    ended: threading.Semaphore, undivided: None
) -> None:
    pool = started(4, ended)
    batch = [running() for _ in range(100)]
    pool.offer(batch)
    assert all(ended.acquire(timeout=30) for _ in batch)
    assert pool.only_compute
    assert len({one.at for one in batch[COMPUTED + 4 :]}) == 1
    pool.close()


def test_a_handler_that_lets_another_run_ends_the_stretch_that_only_computes(
    ended: threading.Semaphore, undivided: None
) -> None:
    pool, gate = started(2, ended), threading.Event()
    pool.offer([running() for _ in range(100)])
    assert all(ended.acquire(timeout=30) for _ in range(100)) and pool.only_compute
    first, others = running(gate), [running() for _ in range(8)]
    pool.offer([first])
    calls: Any = first.invocation
    assert calls.begun.wait(30)
    pool.offer(others)
    # Nobody is woken beside it; the owner looks twice, and finds that no handler has ended.
    pool.look()
    pool.look()
    assert all(ended.acquire(timeout=30) for _ in others), "they wait behind a slow handler"
    assert first.ended is None and not pool.only_compute
    gate.set()
    assert ended.acquire(timeout=30)
    pool.close()


def test_a_message_is_either_begun_or_withdrawn(ended: threading.Semaphore) -> None:
    pool = started(4, ended)
    begun = back = 0
    for _ in range(2000):
        batch = [running() for _ in range(4)]
        pool.offer(batch)
        taken = [pool.withdraw(one) for one in batch]
        back += sum(taken)
        for was_taken in taken:
            if not was_taken:
                assert ended.acquire(timeout=30), "neither"
                begun += 1
    assert begun + back == 8000 and not ended.acquire(blocking=False), "both"
    pool.close()
