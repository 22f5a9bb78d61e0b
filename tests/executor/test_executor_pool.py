"""KeyedExecutor(pool=...): another executor runs the calls."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import threading
import weakref
from collections.abc import Iterator
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

from interlock import KeyedExecutor, Retry, WouldDeadlock, current_lease
from interlock.local.executor_pool import PoolLease
from tests.executor.executors import (
    LONG,
    AtOnce,
    ByHand,
    Gate,
    busy,
    die,
    fail,
    fails_at_first,
    fails_on_five,
    my_lease,
    processes,
    stamped,
)
from tests.support import collect, until


@pytest.fixture(scope="module")
def pool() -> Iterator[futures.ProcessPoolExecutor]:
    with processes(2) as pool:
        yield pool


@pytest.fixture
def executor(pool: futures.ProcessPoolExecutor) -> Iterator[KeyedExecutor]:
    with KeyedExecutor(2, pool=pool) as executor:
        yield executor


# -- Processes ------------------------------------------------------------------------------------


def test_calls_run_in_processes_in_the_order_of_their_keys(executor: KeyedExecutor) -> None:
    keys = ["a", "b", "ab"] * 20
    calls = [executor.submit_keyed(tuple(key), stamped, n) for n, key in enumerate(keys)]
    stamps = [call.result(LONG) for call in calls]
    assert [tag for tag, *_ in stamps] == list(range(60))
    for key in "ab":
        lane = [stamp for stamp, held in zip(stamps, keys, strict=True) if key in held]
        for (_, _, _, end), (_, _, begin, _) in itertools.pairwise(lane):
            assert end <= begin, f"two calls on {key} overlap"


def test_map_keyed_works_with_a_process_pool(executor: KeyedExecutor) -> None:
    assert list(executor.map_keyed(abs, range(-20, 0), keys=lambda n: n % 3)) == list(
        range(20, 0, -1)
    )
    assert list(executor.keyed("a").map(abs, range(-5, 0))) == [5, 4, 3, 2, 1]


def test_current_lease_is_available_in_a_pool_process(executor: KeyedExecutor) -> None:
    call: Any = executor.keyed("a", "b", shared="c").submit(my_lease)
    queue, id, keys, shared, attempt, token = call.result(LONG)
    assert (queue, id) == (executor.queue.name, call.id)
    assert (keys, shared, attempt) == ({b"a", b"b"}, {b"c"}, 1)
    assert token > 0
    lease = executor.submit(current_lease).result(LONG)
    assert isinstance(lease, PoolLease) and lease.keys == frozenset()


def test_an_exception_of_a_pool_process_has_its_traceback(executor: KeyedExecutor) -> None:
    error = executor.submit_keyed("a", fail, "far away").exception(LONG)
    assert isinstance(error, ValueError) and str(error) == "far away"
    assert "in fail" in str(error.__cause__)
    assert executor.submit_keyed("a", int).result(LONG) == 0


def test_a_call_that_cannot_be_pickled_fails_alone(executor: KeyedExecutor) -> None:
    bad = executor.submit_keyed("a", lambda: 1)
    worse = executor.submit_keyed("a", threading.Lock)
    assert bad.exception(LONG) is not None and worse.exception(LONG) is not None
    assert executor.submit_keyed("a", int).result(LONG) == 0


def test_a_call_in_a_pool_process_is_retried(
    pool: futures.ProcessPoolExecutor, tmp_path: Path
) -> None:
    with KeyedExecutor(2, pool=pool, retry=Retry(attempts=5, first=0)) as executor:
        call = executor.submit_keyed("a", fails_at_first, str(tmp_path / "attempts"))
        behind = executor.submit_keyed("a", call.done)
        assert call.result(LONG) == 3
        assert behind.exception(LONG) is not None  # A future is not pickled.
        assert executor.queue.stats().retries >= 2


def test_a_killed_pool_process_fails_running_and_waiting_calls() -> None:
    with processes(1) as pool, KeyedExecutor(1, pool=pool) as executor:
        executor.queue.pause("held up")
        calls: list[futures.Future[Any]] = [executor.submit_keyed("held up", int)]
        calls += [executor.submit_keyed("a", int), executor.submit_keyed("a", die)]
        assert calls[1].result(LONG) == 0
        for call in (calls[0], calls[2]):
            assert isinstance(call.exception(LONG), BrokenProcessPool)
        executor.queue.join(LONG)
        assert executor.queue.stats().leased == 0


def test_a_broken_pool_is_not_used_again() -> None:
    policy = Retry(attempts=None, first=0)
    with processes(1) as pool, KeyedExecutor(1, pool=pool, retry=policy) as executor:
        died = executor.submit_keyed("a", die)
        assert isinstance(died.exception(LONG), BrokenProcessPool)
        executor.queue.join(LONG)


# -- Any executor ---------------------------------------------------------------------------------


def test_the_pool_receives_at_most_max_workers_calls_and_queues_none() -> None:
    pool = ByHand()
    executor = KeyedExecutor(2, pool=pool)
    calls: list[futures.Future[Any]] = [executor.submit_keyed(str(n), int) for n in range(4)]
    for _ in range(2):
        assert pool.submitted.acquire(timeout=LONG)
    stats = executor.queue.stats()
    assert (stats.leased, stats.ready, len(pool.calls)) == (2, 2, 2)
    assert calls[0].running() and not calls[2].running() and calls[2].cancel()
    pool.calls[1].set_result("second")
    assert calls[1].result(LONG) == "second"
    assert pool.submitted.acquire(timeout=LONG)
    assert calls[3].running() and not calls[0].done()
    for call in pool.calls[::2]:
        call.set_result(None)
    executor.shutdown()
    assert len(pool.calls) == 3


def test_a_call_cancelled_by_the_pool_is_cancelled() -> None:
    pool = ByHand()
    with KeyedExecutor(1, pool=pool) as executor:
        first = executor.submit_keyed("a", int)
        assert pool.submitted.acquire(timeout=LONG)
        assert not first.cancel()
        pool.calls[0].cancel()
        pool.calls[0].set_running_or_notify_cancel()
        with pytest.raises(futures.CancelledError):
            first.result(LONG)
        second = executor.submit_keyed("a", int)
        assert pool.submitted.acquire(timeout=LONG)
        pool.calls[1].set_result(5)
        assert second.result(LONG) == 5


def test_a_synchronous_pool_does_not_recurse() -> None:
    with KeyedExecutor(4, pool=AtOnce()) as executor:
        gate = Gate()
        first = executor.submit_keyed("a", gate)
        calls = [executor.submit_keyed("a", abs, -n) for n in range(5000)]
        gate.open.set()
        assert [call.result(LONG) for call in calls] == list(range(5000))
        assert first.done()


def test_a_call_in_a_synchronous_pool_may_submit_but_not_wait() -> None:
    with KeyedExecutor(4, pool=AtOnce()) as executor:

        def call() -> Any:
            inner = executor.submit(int)
            assert not inner.done()
            with pytest.raises(WouldDeadlock, match="all 1 workers"):
                inner.result()
            return inner

        assert executor.submit_keyed("a", call).result(LONG).result(LONG) == 0


def test_current_lease_is_available_in_threads_of_another_pool() -> None:
    seen: list[Any] = []

    def call(key: str) -> None:
        lease = current_lease()
        seen.append((lease.keys, lease.lost, current_lease() is lease))

    with futures.ThreadPoolExecutor(2) as pool, KeyedExecutor(2, pool=pool) as executor:
        for key in ("a", "b"):
            executor.submit_keyed(key, call, key).result(LONG)
    assert sorted(seen) == [({b"a"}, False, True), ({b"b"}, False, True)]


def test_a_handler_in_a_thread_pool_that_waits_for_itself_raises() -> None:
    with futures.ThreadPoolExecutor(2) as pool, KeyedExecutor(2, pool=pool) as executor:

        def call() -> str:
            inner = executor.submit_keyed("a", int)
            with pytest.raises(WouldDeadlock) as caught:
                inner.result()
            return str(caught.value)

        assert "(2 behind 1)" in executor.submit_keyed("a", call).result(LONG)


def test_an_executor_can_be_the_pool_of_another() -> None:
    with KeyedExecutor(2) as inner, KeyedExecutor(2, pool=inner.keyed("one")) as outer:
        inside = 0

        def call(n: int) -> int:
            nonlocal inside
            inside += 1
            assert inside == 1
            inside -= 1
            return n

        calls = [outer.submit_keyed(str(n), call, n) for n in range(50)]
        assert [call.result(LONG) for call in calls] == list(range(50))


def test_shutting_down_the_executor_does_not_shut_down_its_pool() -> None:
    with futures.ThreadPoolExecutor(1) as pool:
        with KeyedExecutor(1, pool=pool) as executor:
            executor.submit(int).result(LONG)
        assert pool.submit(int).result(LONG) == 0


def test_a_pool_that_was_shut_down_fails_each_call() -> None:
    pool = futures.ThreadPoolExecutor(1)
    pool.shutdown()
    with KeyedExecutor(1, pool=pool, retry=Retry(attempts=None, first=0)) as executor:
        for _ in range(3):
            error = executor.submit_keyed("a", int).exception(LONG)
            assert isinstance(error, RuntimeError) and "shutdown" in str(error)


def test_a_message_that_is_not_a_call_becomes_a_dead_letter_and_the_pool_continues() -> None:
    with KeyedExecutor(1, pool=AtOnce()) as executor:
        beneath: Any = executor.queue
        id = beneath.put("no call", keys="a")
        assert executor.submit_keyed("a", int).result(LONG) == 0
        (letter,) = beneath.dead_letters()
        assert letter.id == id and "not a call" in str(letter.error)


def test_a_revoked_call_occupies_its_pool_worker_until_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pool = ByHand()
    executor = KeyedExecutor(2, pool=pool)
    hung: Any = executor.submit_keyed("a", int)
    assert pool.submitted.acquire(timeout=LONG)
    behind: Any = executor.submit_keyed("a", int)
    assert executor.queue.revoke(hung.id, then="skip") and hung.cancelled()
    assert pool.submitted.acquire(timeout=LONG)
    third: Any = executor.submit_keyed("b", int)
    assert not third.running()
    pool.calls[0].set_result("late")
    assert pool.submitted.acquire(timeout=LONG)
    for call in pool.calls[1:]:
        call.set_result("in time")
    assert (behind.result(LONG), third.result(LONG)) == ("in time", "in time")
    assert hung.cancelled() and "its result is ignored" in caplog.text
    executor.shutdown()


class Held:
    """Something of which it is seen that nobody holds it."""


def gone(kept: Any) -> bool:
    collect()
    return kept() is None


def a_held(*_: Any) -> Held:
    return Held()


@pytest.mark.parametrize("kind", [AtOnce, lambda: futures.ThreadPoolExecutor(1)])
def test_a_dropped_result_is_released_before_the_next_call(kind: Any) -> None:
    with kind() as pool, KeyedExecutor(2, pool=pool) as executor:
        future: Any = executor.submit_keyed("a", a_held)
        result = weakref.ref(future.result(LONG))
        executor.queue.join(LONG)
        del future
        until(lambda: gone(result))


def test_arguments_of_a_call_are_released_before_the_next_call() -> None:
    with KeyedExecutor(2, pool=AtOnce()) as executor:
        given = Held()
        kept = weakref.ref(given)
        future = executor.submit(id, given)
        del given
        future.result(LONG)
        until(lambda: gone(kept))


def test_a_future_keeps_neither_the_queue_nor_the_pool_of_its_executor() -> None:
    pool = futures.ThreadPoolExecutor(1)
    executor = KeyedExecutor(1, pool=pool)
    done = executor.submit_keyed("a", int)
    cancelled: Any = None
    with busy(executor, "a"):
        cancelled = executor.submit_keyed("a", int)
        assert cancelled.cancel()
    assert done.result(LONG) == 0
    kept: list[Any] = [weakref.ref(pool), weakref.ref(executor.queue)]
    del pool, executor
    until(lambda: all(gone(one) for one in kept))
    assert done.result() == 0 and cancelled.cancelled()
    assert not done.cancel() and cancelled.cancel()


@pytest.mark.skipif(
    not hasattr(os, "fork"), reason="only processes that are forked are started early"
)
def test_the_executor_adds_no_tasks_of_its_own_to_the_pool() -> None:
    spawn = multiprocessing.get_context("spawn")
    with (
        futures.ProcessPoolExecutor(1, spawn, max_tasks_per_child=2) as pool,
        KeyedExecutor(1, pool=pool) as executor,
    ):
        ids = [executor.submit_keyed("a", os.getpid).result(LONG) for _ in range(4)]
    assert ids[0] == ids[1] != ids[2] == ids[3]


def test_a_submit_to_a_broken_pool_raises() -> None:
    with processes(1) as pool, KeyedExecutor(1, pool=pool) as executor:
        died = executor.submit_keyed("a", die)
        assert isinstance(died.exception(LONG), BrokenProcessPool)
        with pytest.raises(BrokenProcessPool):
            executor.submit_keyed("b", int)
        with pytest.raises(BrokenProcessPool):
            executor.submit(int)


def test_no_exception_of_a_call_breaks_the_pool() -> None:
    with futures.ThreadPoolExecutor(1) as pool, KeyedExecutor(1, pool=pool) as executor:

        def nested() -> None:
            raise futures.BrokenExecutor("another one")

        assert isinstance(executor.submit(nested).exception(LONG), futures.BrokenExecutor)
        assert executor.submit(int).result(LONG) == 0


@pytest.mark.parametrize("chunksize", [1, 3, 100])
def test_chunksize_groups_calls_for_a_pool_and_is_ignored_by_threads(chunksize: int) -> None:
    with KeyedExecutor(2, pool=AtOnce()) as executor:
        assert list(executor.map(str, range(10), chunksize=chunksize)) == list(map(str, range(10)))
        executor.queue.join(LONG)
        assert executor.queue.stats().acks == -(-10 // chunksize)
    with KeyedExecutor(2) as executor:
        assert list(executor.map(str, range(10), chunksize=chunksize)) == list(map(str, range(10)))
        executor.queue.join(LONG)
        assert executor.queue.stats().acks == 10


@pytest.mark.parametrize("chunksize", [1, 2, 7, 100])
def test_map_in_chunks_returns_the_same_results(executor: KeyedExecutor, chunksize: int) -> None:
    for one in (executor, executor.keyed("a")):
        mapped = one.map(divmod, range(20), [3] * 15, chunksize=chunksize)
        assert list(mapped) == [divmod(n, 3) for n in range(15)]
        with pytest.raises(ValueError, match="chunksize"):
            one.map(divmod, [1], [1], chunksize=0)


def test_a_failing_call_of_a_chunk_raises_when_its_result_is_read(executor: KeyedExecutor) -> None:
    mapped = executor.map(fails_on_five, range(10), chunksize=2)
    assert [next(mapped) for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="five"):
        next(mapped)


def test_shutdown_does_not_wait_for_a_revoked_call() -> None:
    pool = ByHand()
    executor = KeyedExecutor(1, pool=pool)
    hung: Any = executor.submit_keyed("a", int)
    assert pool.submitted.acquire(timeout=LONG)
    executor.queue.revoke(hung.id, then="dead")
    executor.shutdown()


def test_a_collected_executor_with_a_pool_runs_its_calls() -> None:
    pool = ByHand()
    executor = KeyedExecutor(1, pool=pool)
    calls = [executor.submit_keyed("a", int) for _ in range(3)]
    del executor
    for n in range(3):
        assert pool.submitted.acquire(timeout=LONG)
        pool.calls[n].set_result(n)
    assert [call.result(LONG) for call in calls] == [0, 1, 2]
