"""A cancelled call of the asyncio face loses nothing: no message, no room, no wake-up."""

import asyncio
import gc
import random
import warnings
from typing import Any

import pytest

from interlock import AsyncLease, Empty, Full, KeyedQueue, Retry
from interlock.testing import ManualClock
from tests import seeds
from tests.aio.test_aio import parked, run

AT_ONCE = Retry(attempts=None, first=0)


async def cancelled(task: asyncio.Task[Any]) -> bool:
    """Cancels a task and waits for its end; False if it came to a result all the same."""
    task.cancel()
    await asyncio.wait([task])
    return task.cancelled()


def test_a_cancelled_get_takes_no_later_message() -> None:
    async def main() -> None:
        q = KeyedQueue[int]()
        getter = asyncio.create_task(q.aio.get())
        await parked(q)
        assert await cancelled(getter)
        assert q._parked() == 0
        await q.aio.put(1)
        lease = q.aio.get_nowait()
        assert lease.attempt == 1
        await lease.ack()

    run(main())


def test_a_get_cancelled_after_its_wake_up_wakes_the_next_waiter() -> None:
    async def main() -> None:
        q = KeyedQueue[int]()
        first = asyncio.create_task(q.aio.get())
        await parked(q)
        second = asyncio.create_task(q.aio.get())
        await parked(q, 2)
        # The wake-up is on its way to the first when it is cancelled.
        q.put(1)
        assert q._parked() == 1
        assert await cancelled(first)
        lease = await second
        assert (lease.payload, lease.attempt) == (1, 1)
        await lease.ack()

    run(main())


def test_a_get_cancelled_after_its_wake_up_leaves_the_message() -> None:
    async def main() -> None:
        q = KeyedQueue[int]()
        getter = asyncio.create_task(q.aio.get())
        await parked(q)
        q.put(1)
        assert await cancelled(getter)
        lease = q.aio.get_nowait()
        assert lease.attempt == 1
        await lease.ack()

    run(main())


def test_a_put_that_is_cancelled_puts_nothing_and_passes_its_room_on() -> None:
    async def main() -> None:
        q = KeyedQueue[str](1)
        await q.aio.put("there")
        first = asyncio.create_task(q.aio.put("cancelled"))
        await parked(q)
        second = asyncio.create_task(q.aio.put("passed on"))
        await parked(q, 2)
        await q.aio.get_nowait().ack()
        assert q._parked() == 1
        assert await cancelled(first)
        await second
        assert q.stats().puts == 2
        async with await q.aio.get() as payload:
            assert payload == "passed on"

    run(main())


def test_a_large_put_that_is_cancelled_lets_small_ones_in() -> None:
    async def main() -> None:
        q = KeyedQueue[int](3)
        await q.aio.put_many([1, 2])
        batch = asyncio.create_task(q.aio.put_many([3, 4, 5]))
        await parked(q)
        small = asyncio.create_task(q.aio.put(6))
        await asyncio.sleep(0)
        await cancelled(batch)
        await small
        assert q.stats().puts == 3

    run(main())


def test_a_join_that_is_cancelled_leaves_the_others() -> None:
    async def main() -> None:
        q = KeyedQueue[int]()
        q.put(1)
        first, second = (asyncio.create_task(q.aio.join()) for _ in range(2))
        await parked(q, 2)
        assert await cancelled(first)
        await q.aio.get_nowait().ack()
        await second

    run(main())


@pytest.mark.parametrize("timeout", [0.0001, 0.0005, 0.002])
def test_wait_for_loses_no_message(timeout: float) -> None:
    async def main() -> None:
        q = KeyedQueue[int]()
        handled: list[int] = []
        count = 300

        async def consume() -> None:
            while len(handled) < count:
                try:
                    lease = await asyncio.wait_for(q.aio.get(), timeout)
                except TimeoutError:
                    await asyncio.sleep(0)
                    continue
                handled.append(lease.payload)
                await lease.ack()

        async def produce() -> None:
            for n in range(count):
                await q.aio.put(n, keys="a")
                if n % 3 == 0:
                    await asyncio.sleep(0.0005)

        await asyncio.gather(consume(), consume(), produce())
        assert handled == list(range(count))
        assert q.stats().retries == 0

    run(main())


def test_a_timeout_of_get_loses_no_message() -> None:
    async def main() -> None:
        q = KeyedQueue[int](1)
        handled: list[int] = []
        count = 200

        async def consume() -> None:
            while len(handled) < count:
                try:
                    lease = await q.aio.get(timeout=0.0005)
                except Empty:
                    continue
                handled.append(lease.payload)
                await lease.ack()

        async def produce() -> None:
            n = 0
            while n < count:
                try:
                    await q.aio.put(n, timeout=0.0005)
                except Full:
                    continue
                n += 1

        await asyncio.gather(consume(), consume(), produce())
        assert sorted(handled) == list(range(count))
        assert q.stats().puts == count

    run(main())


def test_a_timeout_and_a_put_at_the_same_time_lose_no_message() -> None:
    async def main() -> None:
        for put_first in (True, False):
            clock = ManualClock()
            q = KeyedQueue[int](clock=clock)
            getter = asyncio.create_task(q.aio.get(timeout=5))
            await parked(q)
            if put_first:
                q.put(1)
                clock.advance(5)
            else:
                clock.advance(5)
                q.put(1)
            # Whatever the answer, the message exists once.
            try:
                lease = await getter
            except Empty:
                lease = q.aio.get_nowait()
            assert lease.attempt == 1
            await lease.ack()

    run(main())


def test_random_cancellations_lose_no_message() -> None:
    async def main(seed: int) -> None:
        chance = random.Random(seed)
        q = KeyedQueue[int](5)
        unhandled: set[int] = set()
        tasks: dict[asyncio.Task[Any], str] = {}
        number = 0

        def ended(task: asyncio.Task[Any]) -> None:
            what = tasks.pop(task)
            if task.cancelled():
                return
            if what == "get":
                lease: AsyncLease[int] = task.result()
                assert lease.attempt == 1
                unhandled.remove(lease.payload)
                lease.ack().close()

        async def put(payload: int) -> None:
            await q.aio.put(payload, keys=payload % 3)
            # No await between, so that it was put and is known or neither.
            unhandled.add(payload)

        for _ in range(1500):
            turn = chance.random()
            if turn < 0.3:
                number += 1
                task = asyncio.create_task(put(number))
                tasks[task] = "put"
                task.add_done_callback(ended)
            elif turn < 0.6:
                getter = asyncio.create_task(q.aio.get())
                tasks[getter] = "get"
                getter.add_done_callback(ended)
            elif turn < 0.8 and tasks:
                chance.choice(list(tasks)).cancel()
            else:
                await asyncio.sleep(0)
        for task in list(tasks):
            task.cancel()
        while tasks:
            await asyncio.sleep(0)
        assert q._parked() == 0
        while not q.empty():
            async with await q.aio.get() as payload:
                unhandled.remove(payload)
        assert not unhandled
        stats = q.stats()
        assert (stats.acks, stats.retries) == (stats.puts, 0)

    seed = seeds.seed()
    run(main(seed))


def test_an_unreferenced_waiting_getter_is_not_collected() -> None:
    async def main() -> None:
        q = KeyedQueue[int](keys=str)
        got: list[int] = []

        async def handle() -> None:
            async with await q.aio.get() as payload:
                got.append(payload)

        for _ in range(10):
            # As with asyncio.Queue, the queue keeps who waits in it.
            asyncio.create_task(handle())  # noqa: RUF006
        await parked(q, 10)
        gc.collect()
        q.put_many(range(10))
        while len(got) < 10:
            await asyncio.sleep(0)
        assert sorted(got) == list(range(10))

    run(main())


def test_an_unreferenced_queue_is_collected_with_its_waiting_getters() -> None:
    import weakref

    async def main() -> weakref.ref[Any]:
        q = KeyedQueue[int]()
        getter = asyncio.create_task(q.aio.get())
        await parked(q)
        reference = weakref.ref(q)
        logged: list[Any] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: logged.append(context["message"]))
        del q, getter
        gc.collect()
        assert reference() is None
        assert logged == ["Task was destroyed but it is pending!"]
        return reference

    with warnings.catch_warnings():
        run(main())
