"""Whatever a handler raises, its message is settled: all that is in ``raised``, on each runner.

Contract, clauses 9 and 10.
"""

import asyncio
import contextlib
import gc
import multiprocessing
from concurrent import futures
from typing import Any

import pytest

from interlock import KeyedExecutor, KeyedQueue, KeyedTaskGroup, Retry, RetryAfter
from tests.consumer.raised import POLICY, RAISED, check, throw
from tests.support import PATIENCE, Running, until

ENDS_A_LOOP = {"SystemExit", "KeyboardInterrupt", "GeneratorExit"}
"""Exceptions that a task of asyncio lets through to its loop: a consumer there ends with them."""
NONE: frozenset[str] = frozenset()
FOREIGN = frozenset({"StopIteration", "StopAsyncIteration"})
HELD = sum(not one.attempts for one in RAISED.values())


def dead(queue: KeyedQueue[str]) -> dict[str, tuple[int, str]]:
    return {one.payload: (one.attempts, one.error) for one in queue.dead_letters()}


def put_all(queue: KeyedQueue[str]) -> None:
    for name in RAISED:
        queue.put(name, keys=name)


def test_a_lease_block_settles_and_reraises_any_exception() -> None:
    queue = KeyedQueue[str](retry=POLICY)
    put_all(queue)
    while queue.stats().ready:
        lease = queue.get_nowait()
        one = RAISED[lease.payload].make()
        with pytest.raises(type(one)) as caught, lease:
            raise one
        assert caught.value is one
    check(dead(queue), queue.stats().backing_off, except_for=NONE)


@pytest.mark.parametrize("timeout", [None, 1000.0])
def test_consume_settles_any_exception_and_its_threads_continue(timeout: float | None) -> None:
    queue = KeyedQueue[str](retry=POLICY)
    consumer = queue.consume(throw, threads=2, timeout=timeout)
    put_all(queue)
    until(lambda: queue.stats().unsettled == HELD)
    check(dead(queue), queue.stats().backing_off, except_for=NONE)
    assert all(thread.is_alive() for thread in consumer._threads)
    queue.put("none of them")
    until(lambda: queue.stats().acks == 1)
    assert consumer.stop(PATIENCE)


def test_asyncio_consume_settles_any_exception_and_continues_unless_the_loop_ends() -> None:
    queue = KeyedQueue[str](retry=POLICY)

    async def main() -> None:
        consumer = asyncio.create_task(queue.aio.consume(handle, threads=2))
        while queue.stats().unsettled > HELD and not consumer.done():
            await asyncio.sleep(0)
        consumer.cancel()
        await asyncio.gather(consumer, return_exceptions=True)

    async def handle(name: str) -> None:
        throw(name)

    put_all(queue)
    runs = 0
    while queue.stats().unsettled > HELD:
        with contextlib.suppress(SystemExit, KeyboardInterrupt):
            asyncio.run(main())
        runs += 1
        assert runs <= 1 + 2 * len(ENDS_A_LOOP)
    check(dead(queue), queue.stats().backing_off, except_for=FOREIGN)
    # Tasks of loops that were ended tell their exceptions when they go: not in another test.
    gc.collect()


@pytest.mark.parametrize("retry", [None, POLICY], ids=["once", "retried"])
def test_an_executor_puts_any_exception_into_the_future(retry: Retry | None) -> None:
    with KeyedExecutor(2, retry=retry) as executor:
        # Some wish for an attempt at a time that does not come.
        names = [name for name in RAISED if retry is None or RAISED[name].attempts]
        calls = {name: executor.submit_keyed(name, throw, name) for name in names}
        for name, call in calls.items():
            error = call.exception(PATIENCE)
            assert type(error) is type(RAISED[name].make()), name
        assert executor.submit(throw, "none of them").result(PATIENCE) is None
        until(lambda: executor.queue.stats().unsettled == 0)


def test_an_executor_on_a_thread_pool_puts_any_exception_into_the_future() -> None:
    with futures.ThreadPoolExecutor(2) as pool, KeyedExecutor(2, pool=pool, retry=POLICY) as keyed:
        names = [name for name in RAISED if RAISED[name].attempts]
        calls = {name: keyed.submit_keyed(name, throw, name) for name in names}
        for name, call in calls.items():
            try:
                error = call.exception(PATIENCE)
            except futures.CancelledError:
                continue
            assert type(error) is type(RAISED[name].make()), name
        assert keyed.submit(throw, "none of them").result(PATIENCE) is None
        until(lambda: keyed.queue.stats().unsettled == 0)


def test_an_executor_on_a_process_pool_completes_the_future_for_any_exception() -> None:
    # One that cannot be made again out of what was pickled breaks the pool: it is the last.
    names = sorted(RAISED, key=lambda name: name == "not made again")
    spawning = multiprocessing.get_context("spawn")
    with (
        futures.ProcessPoolExecutor(1, spawning) as pool,
        KeyedExecutor(1, pool=pool, retry=POLICY) as keyed,
    ):
        calls = {name: keyed.submit_keyed(name, throw, name) for name in names}
        for name, call in calls.items():
            error = call.exception(PATIENCE)
            assert error is not None, name
        until(lambda: keyed.queue.stats().unsettled == 0)


@pytest.mark.parametrize("name", sorted(RAISED))
def test_a_task_group_settles_what_it_ran(name: str) -> None:
    queues: list[KeyedQueue[Any]] = []

    async def fail() -> None:
        throw(name)

    async def main() -> None:
        async with KeyedTaskGroup() as group:
            queues.append(group.queue)
            group.create_task(fail(), keys="a")
            group.create_task(asyncio.sleep(0), keys="a")

    def run() -> None:
        # asyncio's own handling of such an exception is not tested.
        with contextlib.suppress(BaseException):
            asyncio.run(main())

    # On a thread, for it may leave a loop that counts as running.
    Running(run).result()
    assert queues[0].stats().unsettled == 0


def test_an_exception_not_in_the_policy_makes_a_dead_letter_at_once() -> None:
    queue = KeyedQueue[str](retry=Retry(2, first=0, on=(LookupError,)))
    consumer = queue.consume(throw, threads=2)
    put_all(queue)
    until(lambda: queue.stats().unsettled == HELD)
    found = dead(queue)
    assert consumer.stop(PATIENCE)
    # The policy does not cover what is not an Exception: it is retried.
    for name, (attempts, _) in found.items():
        error = RAISED[name].make()
        once = issubclass(type(error), Exception) and not issubclass(type(error), RetryAfter)
        assert attempts == (1 if once else 2), name
