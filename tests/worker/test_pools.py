"""The pool of threads by itself: what is offered begins, whatever the threads were doing."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from interlock.retry import Retry
from interlock.worker.handle import Outcome
from interlock.worker.running import Running
from interlock.worker.threads import SinglePool, ThreadPool
from interlock.worker.work import TaskLease


class Calls:
    """A handler that ends when it is let."""

    task, timeout, retry, is_async = "f", None, Retry(), False

    def __init__(self, gate: threading.Event | None = None) -> None:
        self.gate = gate

    def run(self) -> None:
        if self.gate is not None:
            assert self.gate.wait(30)


def running(gate: threading.Event | None = None) -> Running:
    held = TaskLease(
        queue="q", id=1, sequence=1, attempt=1, token=1, keys=frozenset(), shared=frozenset(),
        payload=b"",
    )  # fmt: skip
    invocation: Any = Calls(gate)
    return Running(None, held, invocation, None, 0.0)


@pytest.fixture
def ended() -> threading.Semaphore:
    return threading.Semaphore(0)


def started(size: int, ended: threading.Semaphore) -> ThreadPool:
    def done(running: Running, outcome: Outcome) -> None:
        assert outcome.how == "ack"
        ended.release()

    pool = ThreadPool(size)
    pool.start(done)
    return pool


def test_each_of_a_batch_begins_though_the_ones_before_it_run(ended: threading.Semaphore) -> None:
    pool, gate = started(8, ended), threading.Event()
    batch = [running(gate) for _ in range(8)]
    pool.offer(batch)
    while not all(one.started for one in batch):
        pass
    gate.set()
    assert all(ended.acquire(timeout=30) for _ in batch)
    pool.close()


def test_no_offer_is_left_lying_whatever_comes_between(ended: threading.Semaphore) -> None:
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


def test_what_is_withdrawn_does_not_begin(ended: threading.Semaphore) -> None:
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


def test_an_offer_that_finds_nobody_asleep_does_not_silence_the_next(
    ended: threading.Semaphore,
) -> None:
    pool, more = ThreadPool(1), [running()]

    def done(_: Running, __: Outcome) -> None:
        if more:
            pool.offer([more.pop()])  # on the pool's own thread, which is awake
        ended.release()

    pool.start(done)
    pool.offer([running()])
    assert ended.acquire(timeout=30) and ended.acquire(timeout=30)
    while not pool._idle:
        pass
    pool.offer([running()])
    assert ended.acquire(timeout=5), "it was offered and nobody came"
    pool.close()


def test_a_pool_that_is_lent_never_runs_more_than_its_places(ended: threading.Semaphore) -> None:
    pool, gate = started(1, ended), threading.Event()
    first, second, third = running(gate), running(), running()
    first.feeder = second.feeder = third.feeder = Feeds()
    pool.offer([first])
    while not first.started:
        pass
    pool.lend(True)
    pool.offer([second])
    pool.work()
    assert not second.started, "it ran beside the first"
    gate.set()
    # By the thread that was busy: nobody else comes.
    assert ended.acquire(timeout=30) and ended.acquire(timeout=30)
    pool.offer([third])
    assert not third.started
    pool.work()
    assert third.at == threading.get_ident() and ended.acquire(timeout=30)
    pool.close()


def test_what_waits_when_a_pool_is_lent_no_more_is_begun(ended: threading.Semaphore) -> None:
    pool = started(2, ended)
    pool.lend(True)
    pool.offer([running(), running()])
    pool.lend(False)
    assert ended.acquire(timeout=30) and ended.acquire(timeout=30)
    pool.close()


class Feeds:
    """Of what is handled here, who leases is this thread."""

    @property
    def taker(self) -> int:
        return threading.get_ident()


def test_with_one_place_whoever_leases_handles(ended: threading.Semaphore) -> None:
    threads, settled = [], threading.Event()

    class Feeds:
        is_away = False

        @contextlib.contextmanager
        def away(self) -> Iterator[None]:
            self.is_away = True
            yield
            self.is_away = False

    def done(running: Running, outcome: Outcome) -> None:
        # What this settles goes out with the thread's next call: it is not away any more.
        assert outcome.how == "ack" and not running.feeder.is_away
        threads.append(running.at)
        settled.set()

    pool, one, other = SinglePool(), running(), running()
    one.feeder = other.feeder = Feeds()
    pool.start(done)
    pool.offer([one, other])
    assert not settled.wait(0) and not one.started
    assert pool.withdraw(other)
    pool.work()
    assert threads == [threading.get_ident()] and pool.is_empty
    pool.close()
