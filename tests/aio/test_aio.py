"""Behaviour that users of ``asyncio.Queue`` rely on."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from interlock import (
    AsyncLease,
    Empty,
    Full,
    KeyedQueue,
    LeaseLost,
    NotDrained,
    Retry,
    ShutDown,
    current_lease,
)
from interlock.testing import ManualClock
from tests.support import PATIENCE

T = TypeVar("T")

AT_ONCE = Retry(attempts=None, first=0)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that must end; a loop of its own, in debug mode."""

    async def bounded() -> T:
        async with asyncio.timeout(PATIENCE):
            return await main

    return asyncio.run(bounded(), debug=True)


async def parked(q: KeyedQueue[Any], count: int = 1) -> None:
    """Lets tasks run until this number of calls sleeps in the queue."""
    while q._parked() < count:
        await asyncio.sleep(0)


def test_put_and_get() -> None:
    async def main() -> None:
        q = KeyedQueue[str](name="orders")
        assert await q.aio.put("payload", keys="a", shared=["s"]) == 1
        lease = await q.aio.get()
        assert (lease.payload, lease.queue, lease.id) == ("payload", "orders", 1)
        assert (lease.keys, lease.shared) == (frozenset({b"a"}), frozenset({b"s"}))
        assert await lease.ack() is None  # type: ignore[func-returns-value]
        with pytest.raises(LeaseLost):
            await lease.ack()

    run(main())


def test_get_waits_for_a_message_and_put_for_room() -> None:
    async def main() -> None:
        q = KeyedQueue[int](1)
        getter = asyncio.create_task(q.aio.get())
        await parked(q)
        await q.aio.put(1)
        putter = asyncio.create_task(q.aio.put(2))
        lease = await getter
        await parked(q)
        assert not putter.done()
        await lease.ack()
        assert await putter == 2
        async with await q.aio.get() as payload:
            assert payload == 2

    run(main())


def test_the_errors_are_those_of_asyncio_too() -> None:
    async def main() -> None:
        q = KeyedQueue[int](1)
        with pytest.raises(asyncio.QueueEmpty):
            q.aio.get_nowait()
        with pytest.raises(asyncio.QueueEmpty):
            await q.aio.get(timeout=0.001)
        with pytest.raises(asyncio.QueueEmpty):
            await q.aio.get_many(3, timeout=0.001)
        q.aio.put_nowait(1)
        with pytest.raises(asyncio.QueueFull):
            q.aio.put_nowait(2)
        with pytest.raises(asyncio.QueueFull):
            await q.aio.put(2, timeout=0.001)
        with pytest.raises(asyncio.QueueFull):
            await q.aio.put_many([2], timeout=0.001)
        with pytest.raises(Full, match="maxsize=1"):
            q.aio.put_nowait(2)
        await q.aio.get_nowait().ack()
        with pytest.raises(Empty, match="no message"):
            q.aio.get_nowait()

    run(main())


def test_after_shutdown_puts_are_refused_and_remaining_messages_are_delivered() -> None:
    kind: type[Exception] = ShutDown
    if sys.version_info >= (3, 13):
        kind = asyncio.QueueShutDown

    async def main() -> None:
        q = KeyedQueue[int](1)
        q.aio.put_nowait(1)
        putter = asyncio.create_task(q.aio.put(2))
        await parked(q)
        assert q.aio.shutdown() == []
        with pytest.raises(kind):
            await putter
        with pytest.raises(kind):
            await q.aio.put(3)
        with pytest.raises(kind):
            q.aio.put_nowait(3)
        lease = await q.aio.get()
        getter = asyncio.create_task(q.aio.get())
        await parked(q)
        await lease.ack()
        with pytest.raises(kind):
            await getter
        with pytest.raises(ShutDown):
            q.aio.get_nowait()
        await q.aio.join()

    run(main())


def test_a_task_started_by_a_handler_has_no_current_lease() -> None:
    async def main() -> None:
        q = KeyedQueue[str]()
        await q.aio.put("handled")
        started: list[asyncio.Task[Any]] = []

        async def handler(payload: str) -> None:
            started.append(asyncio.create_task(q.aio.get()))
            await parked(q)

        async with await q.aio.get():
            started.append(asyncio.create_task(q.aio.get()))
            await parked(q)
            q.shutdown()
            await asyncio.sleep(0)
        other = KeyedQueue[str]()
        await other.aio.put("handled")
        q = other
        consumer = asyncio.create_task(other.aio.consume(handler))
        while len(started) < 2:
            await asyncio.sleep(0)
        other.shutdown()
        await consumer
        for task in started:
            with pytest.raises(ShutDown):
                await task

    run(main())


def test_size_and_bounds_are_those_of_the_queue() -> None:
    async def main() -> None:
        q = KeyedQueue[int](2)
        aio = q.aio
        assert (aio.qsize(), aio.empty(), aio.full(), aio.maxsize) == (0, True, False, 2)
        await aio.put_many([1, 2])
        assert (aio.qsize(), aio.empty(), aio.full()) == (2, False, True)
        assert [message.payload for message in aio.shutdown(immediate=True)] == [1, 2]
        with pytest.raises(TypeError, match=r"lease\.ack"):
            aio.task_done()
        assert "orders" in repr(KeyedQueue[int](name="orders").aio)

    run(main())


def test_join_waits_until_all_is_settled() -> None:
    async def main() -> None:
        q = KeyedQueue[int]()
        await q.aio.join()
        q.put(1)
        lease = await q.aio.get()
        with pytest.raises(NotDrained) as caught:
            await q.aio.join(0.001)
        assert caught.value.leased == (1,)
        with pytest.raises(TimeoutError):
            await q.aio.join(timeout=0.001)
        joiner = asyncio.create_task(q.aio.join())
        await parked(q)
        await lease.ack()
        await joiner

    run(main())


@pytest.mark.parametrize("timeout", [-1, float("nan"), "1", True])
def test_a_wrong_timeout_is_refused_before_anything_is_done(timeout: Any) -> None:
    async def main() -> None:
        q = KeyedQueue[int]()
        calls: list[Callable[[], Coroutine[Any, Any, Any]]] = [
            lambda: q.aio.put(1, timeout=timeout),
            lambda: q.aio.put_many([1], timeout=timeout),
            lambda: q.aio.get(timeout=timeout),
            lambda: q.aio.get_many(1, timeout=timeout),
            lambda: q.aio.join(timeout),
        ]
        for call in calls:
            with pytest.raises((ValueError, TypeError), match="timeout"):
                await call()
        assert q.stats().puts == 0

    run(main())


def test_sync_and_async_calls_use_the_same_queue() -> None:
    async def main() -> None:
        q = KeyedQueue[str]()
        q.put("from a thread", keys="a")
        await q.aio.put("from a task", keys="a")
        async with await q.aio.get() as payload:
            assert payload == "from a thread"
        with q.get() as payload:
            assert payload == "from a task"

    run(main())


def test_async_with_settles_by_steering_exceptions_as_with_does() -> None:
    async def main() -> None:
        q = KeyedQueue[str](retry=AT_ONCE)
        await q.aio.put("payload")
        with pytest.raises(ZeroDivisionError):
            async with await q.aio.get():
                raise ZeroDivisionError
        async with (lease := await q.aio.get()):
            assert lease.attempt == 2
            assert current_lease() is lease  # type: ignore[comparison-overlap]
            await lease.reject("no")
        with pytest.raises(LookupError):
            current_lease()
        assert q.dead_letters()[0].error == "no"

    run(main())


def test_each_task_has_a_current_lease_of_its_own() -> None:
    async def main() -> None:
        q = KeyedQueue[int](keys=str)
        await q.aio.put_many(range(10))
        seen = []

        async def handle() -> None:
            async with await q.aio.get() as payload:
                await asyncio.sleep(0)
                seen.append((payload, current_lease().payload))

        await asyncio.gather(*(handle() for _ in range(10)))
        assert sorted(seen) == [(n, n) for n in range(10)]

    run(main())


SETTLE: dict[str, Callable[[AsyncLease[Any]], Coroutine[Any, Any, None]]] = {
    "ack": lambda lease: lease.ack(),
    "nack": lambda lease: lease.nack(delay=1, error="no"),
    "reject": lambda lease: lease.reject("no"),
    "release": lambda lease: lease.release(),
    "extend": lambda lease: lease.extend(5),
}


@pytest.mark.parametrize("settle", SETTLE)
def test_settling_may_be_awaited_in_every_way(settle: str) -> None:
    async def main() -> None:
        q = KeyedQueue[int](retry=AT_ONCE, lease=60)
        ways: list[Callable[[Coroutine[Any, Any, None]], Any]] = [
            lambda settled: settled,
            asyncio.create_task,
            asyncio.ensure_future,
            asyncio.gather,
            asyncio.shield,
            lambda settled: asyncio.wait_for(settled, 5),
        ]
        leases = []
        for n, way in enumerate(ways):
            q.put(n, keys=n)
            lease = await q.aio.get()
            assert await way(SETTLE[settle](lease)) in (None, [None])
            leases.append(lease)
        if settle == "extend":
            await q.aio.ack_many(leases)

    run(main())


def test_a_settlement_happens_even_if_it_is_not_awaited() -> None:
    async def main() -> None:
        q = KeyedQueue[int]()
        q.put(1)
        lease = await q.aio.get()
        done = lease.ack()
        assert q.stats().acks == 1
        assert asyncio.iscoroutine(done)
        done.close()
        with pytest.raises(StopIteration):
            done.send(None)
        with pytest.raises(ZeroDivisionError, match="text"):
            done.throw(ZeroDivisionError("text"))

    run(main())


def test_get_many_and_ack_many() -> None:
    async def main() -> None:
        q = KeyedQueue[int]()
        await q.aio.put_many(range(5), keys=str)
        leases = await q.aio.get_many(3)
        assert [lease.payload for lease in leases] == [0, 1, 2]
        await q.aio.ack_many(lease for lease in leases)
        waiting = asyncio.create_task(q.aio.get_many(10, kind="unkeyed"))
        await parked(q)
        await q.aio.put_many([7, 8])
        got = await waiting
        assert [lease.payload for lease in got] == [7, 8]
        await q.aio.ack_many(got)

    run(main())


def test_a_key_callable_is_called_once_even_if_a_put_waits() -> None:
    async def main() -> None:
        asked: list[int] = []

        def keys(payload: int) -> list[str]:
            asked.append(payload)
            return ["a"]

        q = KeyedQueue[int](1, keys=keys, sizeof=lambda payload: len(asked), maxbytes=100)
        await q.aio.put(1)
        putter = asyncio.create_task(q.aio.put(2))
        await parked(q)
        # Called in vain: somebody else is quicker.
        (await q.aio.get()).ack().close()
        q.put(3, keys="b")
        await parked(q)
        (await q.aio.get()).ack().close()
        await putter
        assert asked == [1, 2]

    run(main())


def test_an_iterator_of_keys_survives_the_wait_for_room() -> None:
    async def main() -> None:
        q = KeyedQueue[int](1)
        await q.aio.put(1)
        putter = asyncio.create_task(q.aio.put(2, keys=iter(["a", "b"]), shared=iter(["c"])))
        many = asyncio.create_task(q.aio.put_many([3], keys=iter(["d"])))
        await parked(q, 2)
        (await q.aio.get()).ack().close()
        await putter
        lease = await q.aio.get()
        assert (lease.keys, lease.shared) == (frozenset({b"a", b"b"}), frozenset({b"c"}))
        await lease.ack()
        await many
        lease = await q.aio.get()
        assert lease.keys == frozenset({b"d"})
        await lease.ack()

    run(main())


def test_a_full_queue_is_filled_in_the_order_of_the_puts() -> None:
    async def main() -> None:
        q = KeyedQueue[int](1)
        await q.aio.put(0)
        putters = []
        for n in range(1, 6):
            putters.append(asyncio.create_task(q.aio.put(n)))
            await parked(q, n)
        handled = []
        for _ in range(6):
            async with await q.aio.get() as payload:
                handled.append(payload)
        assert handled == list(range(6))
        await asyncio.gather(*putters)

    run(main())


def test_a_waiting_put_is_not_starved() -> None:
    async def main() -> None:
        q = KeyedQueue[str](1)
        await q.aio.put("first")
        putter = asyncio.create_task(q.aio.put("waited"))
        await parked(q)
        passed = 0
        while not putter.done():
            # Settles and puts without giving the loop a turn, again and again.
            (await q.aio.get()).ack().close()
            try:
                q.aio.put_nowait("passed")
                passed += 1
            except Full:
                await asyncio.sleep(0)
            assert passed < 1000
        assert passed > 0

    run(main())


def test_a_timeout_runs_by_the_clock_of_the_queue() -> None:
    async def main() -> None:
        clock = ManualClock()
        q = KeyedQueue[int](clock=clock)
        getter = asyncio.create_task(q.aio.get(timeout=3600))
        await parked(q)
        clock.advance(3599)
        await asyncio.sleep(0)
        assert not getter.done()
        clock.advance(1)
        with pytest.raises(Empty):
            await getter

    run(main())


def test_a_message_falling_due_wakes_a_waiting_loop() -> None:
    async def main() -> None:
        q = KeyedQueue[str](retry=Retry(first=0.002, jitter=False))
        await q.aio.put("delayed", delay=0.002)
        lease = await q.aio.get()
        await lease.nack()
        lease = await q.aio.get()
        assert (lease.payload, lease.attempt) == ("delayed", 2)
        await lease.ack()

    run(main())
