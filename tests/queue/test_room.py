"""Puts that wait for room, and those that pass them: neither stands still for ever (clause 11)."""

from __future__ import annotations

import asyncio
import threading

import pytest

from interlock import Full, KeyedQueue, ShutDown, WouldDeadlock
from interlock.testing import ManualClock
from tests.aio.test_aio import parked
from tests.aio.test_aio_loops import loop_of_its_own
from tests.support import PATIENCE, Running, blocked, until

LARGE, SMALL = b"L" * 100, b"s" * 10


@pytest.mark.parametrize("large", [[LARGE], [SMALL] * 10], ids=["one", "batch"])
def test_handlers_that_put_are_not_blocked_by_a_put_that_needs_more_room(
    large: list[bytes],
) -> None:
    queue: KeyedQueue[bytes] = KeyedQueue(maxbytes=100)
    handled: list[bytes] = []

    def handle(payload: bytes) -> None:
        if payload.startswith(b"n") and payload != b"n000000000":
            queue.put(b"n%09d" % (int(payload[1:]) - 1), timeout=PATIENCE)
        handled.append(payload)

    queue.put_many([b"n%09d" % 500] * 4)
    putter = blocked(queue, lambda: queue.put_many(large, timeout=PATIENCE))
    consumer = queue.consume(handle, threads=4)
    assert len(putter.result()) == len(large)
    queue.join(PATIENCE)
    assert len(handled) == 4 * 501 + len(large)
    assert consumer.stop(PATIENCE)


def test_a_large_put_gets_its_turn_under_a_stream_of_small_ones() -> None:
    queue: KeyedQueue[bytes] = KeyedQueue(maxbytes=100)
    done = threading.Event()

    def feed() -> None:
        while not done.is_set():
            queue.put(SMALL, timeout=PATIENCE)

    feeders = [Running(feed) for _ in range(3)]
    consumer = queue.consume(lambda payload: None, threads=2)
    for _ in range(5):
        queue.put(LARGE, timeout=PATIENCE)
    done.set()
    for feeder in feeders:
        feeder.result()
    assert consumer.stop(PATIENCE)


def test_a_put_that_fits_passes_one_that_does_not() -> None:
    queue: KeyedQueue[bytes] = KeyedQueue(maxbytes=100)
    ids = queue.put_many([b"." * 60, b"." * 40])
    large = blocked(queue, lambda: queue.put(LARGE))
    small = blocked(queue, lambda: queue.put(SMALL), beside=1)
    assert queue.cancel(ids[1])
    small.result()
    assert queue._parked() == 1
    queue.shutdown(immediate=True)
    with pytest.raises(ShutDown):
        large.result()


def test_room_is_reserved_for_a_while_and_then_smaller_puts_pass_again() -> None:
    """With a stopped clock, so that each turn ends when the test says so."""
    clock = ManualClock()
    queue: KeyedQueue[bytes] = KeyedQueue(maxbytes=100, clock=clock)
    queue.put_many([b"." * 60, b"." * 30])
    held = queue.get()
    large = blocked(queue, lambda: queue.put(LARGE))

    def passes() -> int:
        """Count the small messages that enter in turn before one is refused."""
        for count in range(1000):
            try:
                queue.cancel(queue.put_nowait(SMALL))
            except Full:
                return count
        return 1000

    assert passes() == 64
    # The last of them was cancelled while room was kept: that is something settled.
    clock.advance(0.01)
    small = blocked(queue, lambda: queue.put(SMALL), beside=1)
    clock.advance(0.009)
    assert queue._parked() == 2
    clock.advance(0.001)
    small.result()
    assert passes() == 0, "the queue is full"
    queue.cancel(3 + 64)
    assert passes() == 1000, "for as long as room was kept"
    clock.advance(0.02)
    assert passes() == 0
    clock.advance(0.019)
    assert passes() == 0, "for twice as long as before"
    clock.advance(0.001)
    assert passes() == 1000
    held.ack()
    queue.get().ack()
    large.result()


def test_a_large_put_that_is_cancelled_admits_those_behind_it_at_once() -> None:
    clock = ManualClock()
    queue: KeyedQueue[bytes] = KeyedQueue(maxbytes=100, clock=clock)
    queue.put(b"." * 60)
    lease = queue.get()
    large = blocked(queue, lambda: queue.put(LARGE, timeout=0.005))
    for _ in range(64):
        queue.cancel(queue.put(SMALL))
    with pytest.raises(Full):
        queue.put_nowait(SMALL)
    small = blocked(queue, lambda: queue.put(SMALL), beside=1)
    clock.advance(0.005)
    with pytest.raises(Full):
        large.result()
    small.result()
    lease.ack()


def test_room_is_not_reserved_if_no_message_can_be_settled() -> None:
    """A delayed message counts, and it may be delayed for a day."""
    queue: KeyedQueue[bytes] = KeyedQueue(maxbytes=100, clock=ManualClock())
    queue.put(b"." * 60, delay=86_400)
    large = blocked(queue, lambda: queue.put(LARGE))
    for _ in range(1000):
        queue.put_nowait(SMALL)
        queue.get_nowait().ack()
    queue.shutdown(immediate=True)
    with pytest.raises(ShutDown):
        large.result()


def test_the_longest_waiting_put_is_passed_for_at_most_a_second() -> None:
    clock = ManualClock()
    queue: KeyedQueue[bytes] = KeyedQueue(maxbytes=100, clock=clock)
    queue.put(b"." * 60)
    lease = queue.get()
    large = blocked(queue, lambda: queue.put(LARGE))
    queue.put_nowait(SMALL)
    clock.advance(0.999)
    queue.put_nowait(SMALL)
    clock.advance(0.001)
    with pytest.raises(Full):
        queue.put_nowait(SMALL)
    lease.ack()
    queue.ack_many(queue.get_many(9))
    large.result()


def test_room_is_not_reserved_for_a_task_whose_loop_is_stopped() -> None:
    clock = ManualClock()
    queue: KeyedQueue[bytes] = KeyedQueue(maxbytes=100, clock=clock)
    queue.put(LARGE)
    lease = queue.get()
    with loop_of_its_own() as loop:
        task = loop.create_task(queue.aio.put(SMALL))
        loop.run_until_complete(parked(queue, 1))
        thread = blocked(queue, lambda: queue.put(SMALL), beside=1)
        lease.ack()
        # Both were called, and the thread came: it is the first of those who pass the task.
        thread.result()
        for _ in range(63):
            queue.cancel(queue.put_nowait(SMALL))
        with pytest.raises(Full):
            queue.put_nowait(SMALL)
        clock.advance(0.01)
        for _ in range(1000):
            queue.cancel(queue.put_nowait(SMALL))
            clock.advance(0.01)
        loop.run_until_complete(asyncio.wait_for(task, PATIENCE))


def test_the_first_waiting_put_that_fits_enters_first() -> None:
    queue: KeyedQueue[bytes] = KeyedQueue(maxbytes=100)
    first = queue.put(b"." * 50)
    queue.put(b"." * 50)
    order: list[int] = []

    def put(size: int) -> None:
        queue.put(b"." * size)
        order.append(size)

    putters = [
        blocked(queue, lambda size=size: put(size), beside=n)  # type: ignore[misc]
        for n, size in enumerate([100, 80, 30, 60, 20, 5])
    ]
    assert queue.cancel(first)
    until(lambda: len(order) == 2)
    assert queue._parked() == 4
    assert sorted(order) == [20, 30]
    consumer = queue.consume(lambda payload: None)
    for putter in putters:
        putter.result()
    assert consumer.stop(PATIENCE)


@pytest.mark.parametrize("many", [False, True])
def test_a_put_by_the_only_consumer_waits_for_reserved_room_or_raises_would_deadlock(
    many: bool,
) -> None:
    """Clause 25: it would wait for ever for room, but not for its turn."""
    clock = ManualClock()
    queue: KeyedQueue[bytes] = KeyedQueue(maxbytes=100, clock=clock)
    queue.put(b"." * 60)

    def put(payload: bytes) -> object:
        return queue.put_many([payload]) if many else queue.put(payload)

    def handle(payload: bytes) -> None:
        if payload in (SMALL, LARGE):
            return
        for _ in range(64):
            queue.cancel(queue.put(SMALL))
        clock.advance(0.01)
        put(SMALL)
        inside.set()
        go_on.wait(PATIENCE)
        with pytest.raises(WouldDeadlock, match="is full"):
            put(b"s" * 31)
        told.set()

    inside, go_on, told = threading.Event(), threading.Event(), threading.Event()
    large = blocked(queue, lambda: queue.put(LARGE))
    consumer = queue.consume(handle)
    until(lambda: queue._parked() == 2)
    assert not inside.is_set()
    clock.advance(0.01)
    assert inside.wait(PATIENCE)
    go_on.set()
    assert told.wait(PATIENCE)
    large.result()
    assert consumer.stop(PATIENCE)
    queue.shutdown(immediate=True)
