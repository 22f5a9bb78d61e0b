"""Many loops and threads on one queue, and loops that end."""

import asyncio
import contextlib
import gc
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from types import FrameType
from typing import Any

from interlock import AsyncLease, KeyedQueue, Retry
from tests.aio.test_aio import parked, run
from tests.support import PATIENCE, Running, blocked, until

AT_ONCE = Retry(attempts=None, first=0)


@contextlib.contextmanager
def loop_of_its_own() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that the test runs by hand, and closes whatever is left in it."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)
    yield loop
    if not loop.is_closed():
        loop.close()


def park(loop: asyncio.AbstractEventLoop, q: KeyedQueue[Any]) -> asyncio.Task[Any]:
    """A task of the loop that sleeps in a get; the loop does not run when this returns."""
    before = q._parked()
    task = loop.create_task(q.aio.get())
    loop.run_until_complete(parked(q, before + 1))
    return task


def test_loops_on_many_threads_share_a_queue() -> None:
    q = KeyedQueue[int](50, warn_depth=0, warn_lane_depth=0)
    handled: list[int] = []

    async def consume() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(q.aio.consume(handle))

    async def handle(payload: int) -> None:
        await asyncio.sleep(0)
        handled.append(payload)

    async def produce(start: int) -> None:
        for n in range(start, 1000, 4):
            await q.aio.put(n, keys=start)

    consumers = [Running(lambda: asyncio.run(consume())) for _ in range(3)]
    producers = [Running(partial(asyncio.run, produce(n))) for n in range(4)]
    for producer in producers:
        producer.result()
    q.join(PATIENCE)
    q.shutdown()
    for consumer in consumers:
        consumer.result()
    assert sorted(handled) == list(range(1000))
    for start in range(4):
        lane = [n for n in handled if n % 4 == start]
        assert lane == sorted(lane)


def test_a_burst_from_a_thread_wakes_every_task() -> None:
    async def main() -> None:
        q = KeyedQueue[int]()
        for _ in range(20):
            getters = [asyncio.create_task(q.aio.get()) for _ in range(50)]
            await parked(q, 50)
            thread = Running(lambda: [q.put(n, keys=n) for n in range(50)])
            leases = await asyncio.gather(*getters)
            thread.result()
            assert sorted(lease.payload for lease in leases) == list(range(50))
            await q.aio.ack_many(leases)

    run(main())


def test_single_puts_in_quick_succession_lose_no_wake_up() -> None:
    async def main() -> None:
        q = KeyedQueue[int]()
        answered = threading.Semaphore(0)

        def ping() -> None:
            for n in range(2000):
                q.put(n)
                assert answered.acquire(timeout=PATIENCE)

        thread = Running(ping)
        for n in range(2000):
            async with await q.aio.get() as payload:
                assert payload == n
            answered.release()
        thread.result()

    run(main())


def test_a_thread_is_woken_by_a_task_and_a_task_by_a_thread() -> None:
    async def main() -> None:
        there, back = KeyedQueue[int](), KeyedQueue[int]()

        def echo() -> None:
            for _ in range(500):
                with there.get(timeout=PATIENCE) as payload:
                    back.put(payload)

        thread = Running(echo)
        for n in range(500):
            await there.aio.put(n)
            async with await back.aio.get() as payload:
                assert payload == n
        thread.result()

    run(main())


def test_a_closed_loop_does_not_withhold_a_message() -> None:
    q = KeyedQueue[int]()
    with loop_of_its_own() as loop:
        tasks = [park(loop, q) for _ in range(3)]
        loop.close()
        getter = blocked(q, q.get, beside=3)
        # First in line are three whose loop is closed.
        q.put(1)
        getter.result().ack()
        assert q._parked() == 0
        assert not any(task.done() for task in tasks)
        del tasks
    gc.collect()


def test_a_loop_closed_after_its_wake_up_does_not_withhold_a_message() -> None:
    q = KeyedQueue[int]()
    with loop_of_its_own() as loop:
        task: asyncio.Task[Any] | None = park(loop, q)
        getter = blocked(q, q.get, beside=1)
        # One wake-up is on its way into a loop that does not run any more, one to the thread.
        Running(lambda: q.put(1, keys="a")).result()
        getter.result().ack()
        loop.close()
    del task, loop
    gc.collect()
    assert q._parked() == 0


def test_a_message_put_after_a_wake_up_of_a_closed_loop_is_delivered() -> None:
    q = KeyedQueue[int]()
    with loop_of_its_own() as loop:
        tasks = [park(loop, q) for _ in range(2)]
        getters = [blocked(q, q.get, beside=2), blocked(q, q.get, beside=3)]
        Running(lambda: q.put(1, keys="a")).result()
        loop.close()
        q.put(2, keys="b")
        leases = [getter.result() for getter in getters]
        assert sorted(lease.payload for lease in leases) == [1, 2]
        q.ack_many(leases)
        del tasks
    gc.collect()


def test_a_stopped_loop_gets_its_messages_when_it_runs_again() -> None:
    q = KeyedQueue[int]()
    with loop_of_its_own() as loop:
        task = park(loop, q)
        q.put(1)
        lease = loop.run_until_complete(task)
        lease.ack().close()


def test_asyncio_run_cancels_waiting_calls_at_its_end() -> None:
    q = KeyedQueue[int]()

    async def main() -> None:
        tasks = [asyncio.create_task(q.aio.get()) for _ in range(3)]
        await parked(q, 3)
        assert tasks

    asyncio.run(main())
    assert q._parked() == 0
    q.put(1)
    q.get_nowait().ack()


def test_short_lived_loops_leave_no_memory() -> None:
    import weakref

    q = KeyedQueue[int]()
    loops = []

    async def main() -> None:
        getter = asyncio.create_task(q.aio.get())
        await parked(q)
        await asyncio.to_thread(q.put, 1)
        await (await getter).ack()
        loops.append(weakref.ref(asyncio.get_running_loop()))

    for _ in range(5):
        asyncio.run(main())
    gc.collect()
    assert [loop() for loop in loops] == [None] * 5


def test_a_put_from_a_signal_handler_wakes_the_loop_that_sleeps() -> None:
    # The handler runs in the thread of the loop, but while the loop sleeps: to tell its task alone
    # would not wake it.
    q = KeyedQueue[str]()
    main_thread = threading.main_thread().ident
    assert main_thread is not None
    handled = threading.Event()

    def handler(number: int, frame: FrameType | None) -> None:
        if not handled.is_set():
            handled.set()
            q.put("payload")

    def send() -> None:
        until(q._parked)
        # Again, for Python may sleep on where a signal comes just before the loop's select.
        while not handled.is_set():
            signal.pthread_kill(main_thread, signal.SIGUSR1)
            time.sleep(0)

    async def main() -> None:
        handled.clear()
        thread = Running(send)
        async with await q.aio.get() as payload:
            assert payload == "payload"
        thread.result()

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        for _ in range(50):
            run(main())
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_put_from_a_callback_of_the_loop_wakes_its_task() -> None:
    async def main() -> None:
        q = KeyedQueue[int]()
        loop = asyncio.get_running_loop()
        for n in range(100):
            getter = asyncio.create_task(q.aio.get())
            await parked(q)
            loop.call_later(0.0001, q.put, n)
            await (await getter).ack()

    run(main())


def test_many_loops_wait_for_room_at_once() -> None:
    q = KeyedQueue[int](1)
    q.put(-1)

    async def put(n: int) -> None:
        await q.aio.put(n)

    runs = [Running(partial(asyncio.run, put(n))) for n in range(8)]
    until(lambda: q._parked() == 8)
    seen: Counter[int] = Counter()
    for _ in range(9):
        lease = q.get(timeout=PATIENCE)
        seen[lease.payload] += 1
        lease.ack()
    for each in runs:
        each.result()
    assert seen == Counter(range(-1, 8))


def take(q: KeyedQueue[int]) -> int:
    with q.get() as payload:
        return payload


def payload_of(lease: AsyncLease[int]) -> int:
    lease.ack().close()
    return lease.payload


def test_a_message_goes_to_an_idle_thread_while_a_loop_is_stopped() -> None:
    """Clause 5: the task waited for longer and is called first, but cannot come."""
    q = KeyedQueue[int]()
    with loop_of_its_own() as loop:
        task = park(loop, q)
        thread = blocked(q, lambda: take(q), beside=1)
        q.put(1)
        assert thread.result() == 1
        assert not task.done()
        q.put(2)
        assert payload_of(loop.run_until_complete(task)) == 2


def test_a_message_goes_to_an_idle_loop_while_another_is_stopped() -> None:
    q = KeyedQueue[int]()
    with loop_of_its_own() as stopped:
        task = park(stopped, q)

        async def main() -> int:
            async with asyncio.timeout(PATIENCE):
                return payload_of(await q.aio.get())

        idle = Running(lambda: asyncio.run(main()))
        until(lambda: q._parked() == 2)
        q.put(1)
        assert idle.result() == 1
        task.cancel()


def test_a_message_falling_due_wakes_an_idle_thread_while_a_loop_is_stopped() -> None:
    """The task waits first and so keeps the time; nobody but the clock wakes the thread."""
    q = KeyedQueue[int]()
    q.put(1, delay=0.2)
    with loop_of_its_own() as loop:
        task = park(loop, q)
        assert blocked(q, lambda: take(q), beside=1).result() == 1
        task.cancel()


def test_one_message_wakes_one_task_of_a_loop() -> None:
    q = KeyedQueue[int]()
    with loop_of_its_own() as loop:
        tasks = [park(loop, q) for _ in range(3)]
        q.put(1)
        assert q._parked() == 2
        done, _ = loop.run_until_complete(
            asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE)
        )
        assert [payload_of(task.result()) for task in done] == [1]
        for task in tasks:
            task.cancel()
