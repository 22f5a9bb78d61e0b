"""Uses of an executor by users of ``concurrent.futures``, beyond the common."""

from __future__ import annotations

import asyncio
import contextvars
import pickle
import threading
import typing
import weakref
from concurrent import futures
from typing import Any

import pytest

from interlock import Future, KeyedExecutor, current_lease
from tests.executor.executors import LONG, Gate, processes


@pytest.mark.parametrize("chunksize", [1, 3, 100])
def test_map_takes_a_chunksize(chunksize: int) -> None:
    with KeyedExecutor(2) as executor:
        assert list(executor.map(pow, [1, 2, 3], [2, 2, 2], timeout=LONG, chunksize=chunksize)) == [
            1,
            4,
            9,
        ]
        assert list(executor.keyed("a").map(abs, [-1, -2], chunksize=chunksize)) == [1, 2]


def test_as_completed_and_wait_take_futures_of_several_kinds() -> None:
    with KeyedExecutor(2) as ours, futures.ThreadPoolExecutor(2) as theirs:
        gate = Gate(3)
        both: list[futures.Future[Any]] = [
            ours.submit_keyed("a", abs, -1),
            theirs.submit(abs, -2),
            ours.submit_keyed("a", gate),
            theirs.submit(gate),
        ]
        ended = futures.as_completed(both, LONG)
        assert sorted(next(ended).result() for _ in range(2)) == [1, 2]
        done, not_done = futures.wait(both, LONG, futures.FIRST_COMPLETED)
        assert (done, not_done) == (set(both[:2]), set(both[2:]))
        gate.open.set()
        assert [future.result() for future in ended] == [3, 3]


def test_wait_counts_a_future_named_twice_once() -> None:
    with KeyedExecutor(1) as executor:
        future = executor.submit(int)
        assert list(futures.as_completed([future, future], LONG)) == [future]
        assert futures.wait([future, future], LONG).done == {future}


def test_a_future_is_either_cancelled_or_has_a_result() -> None:
    with KeyedExecutor(4) as executor:
        for n in range(1000):
            future = executor.submit_keyed(n % 3, abs, -n)
            if future.cancel():
                assert future.cancelled() and future.done() and not future.running()
            else:
                assert future.result(LONG) == n
        executor.queue.join(LONG)


def test_threads_that_cancel_the_same_call_agree_on_the_outcome() -> None:
    with KeyedExecutor(1) as executor:
        for _ in range(50):
            gate = Gate()
            executor.submit_keyed("a", gate)
            behind = executor.submit_keyed("a", int)
            together = threading.Barrier(3)
            said: list[bool] = []

            def cancel(
                future: futures.Future[int] = behind,
                together: threading.Barrier = together,
                said: list[bool] = said,
            ) -> None:
                together.wait(LONG)
                said.append(future.cancel())

            threads = [threading.Thread(target=cancel) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(LONG)
            assert said == [True] * 3
            gate.open.set()


def test_the_executor_can_be_the_default_executor_of_asyncio() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        variable = contextvars.ContextVar("variable", default=0)
        variable.set(5)
        context = contextvars.copy_context()
        with KeyedExecutor(2) as executor:
            assert await loop.run_in_executor(executor, context.run, variable.get) == 5
            gate = Gate()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(loop.run_in_executor(executor, gate), 0.01)
            gate.open.set()

    asyncio.run(main())


def test_a_context_copied_in_a_call_has_no_lease_outside() -> None:
    with KeyedExecutor(1) as executor:
        context = executor.submit_keyed("a", contextvars.copy_context).result(LONG)
        with pytest.raises(LookupError, match="no message is being handled here"):
            context.run(current_lease)


def test_executors_can_be_the_pools_of_other_executors() -> None:
    with (
        KeyedExecutor(2) as one,
        KeyedExecutor(2, pool=one) as two,
        KeyedExecutor(2, pool=two.keyed("x")) as three,
    ):
        calls = [three.submit_keyed("a", abs, -n) for n in range(10)]
        assert [call.result(LONG) for call in calls] == list(range(10))


def test_an_exception_in_a_with_block_waits_for_calls_and_is_reraised() -> None:
    calls: list[futures.Future[int]] = []

    def submit_and_fail() -> None:
        with KeyedExecutor(1) as executor:
            calls.append(executor.submit_keyed("a", abs, -1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        submit_and_fail()
    assert calls[0].result(0) == 1


class Refuses:
    def __reduce__(self) -> Any:
        raise RuntimeError("not to be pickled")


def refuses() -> Refuses:
    return Refuses()


def test_an_argument_that_cannot_be_pickled_is_reported() -> None:
    with processes(1) as pool, KeyedExecutor(1, pool=pool) as executor:
        given = executor.submit_keyed("a", str, Refuses())
        made = executor.submit_keyed("a", refuses)
        for future in (given, made):
            assert "not to be pickled" in repr(future.exception(LONG))
        assert executor.submit_keyed("a", int).result(LONG) == 0


def test_an_executor_has_a_useful_repr() -> None:
    with KeyedExecutor(2, thread_name_prefix="mail") as executor:
        gate = Gate()
        executor.submit_keyed("a", gate)
        assert repr(executor) == "<KeyedExecutor 'mail', 2 workers, 1 calls>"
        view = executor.keyed("a", shared="b")
        assert repr(view) == f"<{executor!r} under keys [b'a'], shared [b'b']>"
        gate.open.set()


def test_a_subclass_may_take_its_own_arguments() -> None:
    class Mail(KeyedExecutor):
        def __init__(self, room: str) -> None:
            super().__init__(2, thread_name_prefix=room)
            self.room = room

    with Mail("room") as executor:
        assert executor.submit(int).result(LONG) == 0
        assert executor.room == "room" and repr(executor).startswith("<Mail 'room'")


def test_an_executor_supports_weak_references_and_type_arguments_but_not_pickling() -> None:
    with KeyedExecutor(1) as executor:
        future = executor.submit(int)
        assert weakref.ref(executor)() is executor and weakref.ref(future)() is future
        assert typing.get_origin(Future[int]) is Future
        with pytest.raises(TypeError, match="lives in this one"):
            pickle.dumps(executor)
        with pytest.raises(TypeError, match="pickle"):
            pickle.dumps(future)
