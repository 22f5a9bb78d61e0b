"""KeyedExecutor does what every executor of the standard library does."""

from __future__ import annotations

import gc
import logging
import threading
import traceback
import weakref
from collections.abc import Iterator
from concurrent import futures
from concurrent.futures.thread import BrokenThreadPool
from typing import Any

import pytest

from interlock import KeyedExecutor, Retry
from tests.executor.executors import LONG, Gate, busy, threads_of


@pytest.fixture
def executor() -> Iterator[KeyedExecutor]:
    with KeyedExecutor(4) as executor:
        yield executor


def test_a_call_receives_its_arguments_and_returns_its_result(executor: KeyedExecutor) -> None:
    assert executor.submit(pow, 2, 5).result() == 32
    assert executor.submit(int, "11", base=2).result() == 3
    assert executor.submit_keyed("a", dict, a=1).result() == {"a": 1}


def test_a_call_s_keyword_arguments_may_be_named_like_those_of_submit(
    executor: KeyedExecutor,
) -> None:
    assert executor.submit(dict, fn=1, self=2).result() == {"fn": 1, "self": 2}
    taken = executor.submit_keyed("a", dict, fn=1, self=2, keys=3, args=4)
    assert taken.result() == {"fn": 1, "self": 2, "keys": 3, "args": 4}


def test_map_returns_results_in_order(executor: KeyedExecutor) -> None:
    assert list(executor.map(pow, range(20), range(20))) == list(map(pow, range(20), range(20)))


def test_map_raises_where_the_call_raised_and_cancels_the_rest() -> None:
    with KeyedExecutor(1) as executor:
        gate = Gate()
        divided = executor.map(lambda n: gate() or 10 // n, [5, 0, 1])
        gate.open.set()
        assert next(divided) == 2
        with pytest.raises(ZeroDivisionError):
            next(divided)
        with pytest.raises(StopIteration):
            next(divided)


def test_map_with_a_timeout_yields_finished_results_and_then_raises() -> None:
    gate = Gate()
    with KeyedExecutor(1) as executor:
        waiting = executor.map(lambda n: gate() if n else n, [0, 1, 2], timeout=0.05)
        assert gate.running.wait(LONG)
        assert next(waiting) == 0
        with pytest.raises(TimeoutError):
            next(waiting)
        # The third never began, and was cancelled.
        gate.open.set()
        executor.queue.join(LONG)
        assert executor.queue.stats().cancelled == 1


def test_an_exception_keeps_its_identity_and_traceback(executor: KeyedExecutor) -> None:
    raised = ValueError("no")

    def deep() -> None:
        raise raised

    future = executor.submit_keyed("a", deep)
    with pytest.raises(ValueError, match="no") as caught:
        future.result()
    assert caught.value is raised is future.exception()
    assert [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)][-1] == "deep"


class SetsNothing(Exception):
    def __setattr__(self, name: str, value: object) -> None:
        raise RuntimeError("an exception that cannot be written to")


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), SetsNothing()]
)
def test_any_exception_of_a_call_is_in_its_future_and_the_worker_continues(
    error: BaseException,
) -> None:
    def fail() -> None:
        raise error

    with KeyedExecutor(1) as executor:
        assert executor.submit_keyed("a", fail).exception(LONG) is error
        assert executor.submit_keyed("a", int).result(LONG) == 0
        assert len(threads_of(executor)) == 1


def test_a_raised_exception_settles_the_message(executor: KeyedExecutor) -> None:
    assert executor.submit_keyed("a", divmod, 1, 0).exception() is not None
    executor.queue.join(LONG)
    stats = executor.queue.stats()
    assert (stats.acks, stats.retries, stats.dead) == (1, 0, 0)


# -- Threads --------------------------------------------------------------------------------------


def test_the_executor_starts_no_more_threads_than_concurrent_calls() -> None:
    with KeyedExecutor(8) as executor:
        for _ in range(20):
            executor.submit(int).result()
            executor.queue.join(LONG)
        assert len(threads_of(executor)) == 1
        with busy(executor, calls=3):
            assert len(threads_of(executor)) == 3


def test_the_executor_starts_no_more_threads_than_max_workers() -> None:
    with KeyedExecutor(3) as executor:
        barrier = threading.Barrier(3)
        for _ in range(30):
            executor.submit(barrier.wait, LONG)
        executor.queue.join(LONG)
        assert len(threads_of(executor)) == 3


def test_thread_names_have_the_prefix() -> None:
    with KeyedExecutor(1, thread_name_prefix="mine") as executor:
        assert executor.submit(threading.current_thread).result().name == "mine_0"
        assert executor.queue.name == "mine"


def test_executors_have_distinct_default_names() -> None:
    names = {KeyedExecutor(1).queue.name for _ in range(3)}
    assert len(names) == 3 and all(name.startswith("KeyedExecutor-") for name in names)


def test_a_thread_that_cannot_be_started_refuses_the_first_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    executor = KeyedExecutor(2)

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            executor.submit(int)
    assert executor.queue.stats().unsettled == 0
    assert executor.submit(int).result(LONG) == 0
    with busy(executor), monkeypatch.context() as patched:
        # With one at work the call waits for that.
        patched.setattr(threading.Thread, "start", refuse)
        call = executor.submit(int)
    assert call.result(LONG) == 0
    executor.shutdown()


def test_an_initializer_runs_once_on_each_thread() -> None:
    seen: list[tuple[str, int]] = []
    barrier = threading.Barrier(2)

    def note(word: str) -> None:
        seen.append((word, threading.get_ident()))

    with KeyedExecutor(2, initializer=note, initargs=("here",)) as executor:
        threads = list(
            executor.map(lambda _: barrier.wait(LONG) >= 0 and threading.get_ident(), "ab")
        )
        list(executor.map(str, range(20)))
    assert sorted(seen) == sorted(("here", thread) for thread in set(threads))


def test_a_failing_initializer_breaks_the_executor(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate(ValueError("no database"))
    executor = KeyedExecutor(1, initializer=gate)
    waiting = [executor.submit(int), executor.submit_keyed("a", int)]
    with caplog.at_level(logging.CRITICAL):
        gate.open.set()
        for future in waiting:
            assert isinstance(future.exception(LONG), BrokenThreadPool)
    with pytest.raises(BrokenThreadPool):
        executor.submit(int)
    assert "no database" in caplog.text
    executor.shutdown()


def test_a_failing_initializer_ends_a_submit_that_waits_for_room() -> None:
    gate = Gate(ValueError())
    executor = KeyedExecutor(1, maxsize=1, initializer=gate)
    executor.submit(int)
    raised: list[BaseException] = []

    def second() -> None:
        try:
            executor.submit(int)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=second)
    thread.start()
    gate.open.set()
    thread.join(LONG)
    assert [type(error) for error in raised] == [BrokenThreadPool]


# -- Its end --------------------------------------------------------------------------------------


def test_shutdown_waits_for_what_was_submitted() -> None:
    done: list[int] = []
    executor = KeyedExecutor(2)
    for n in range(50):
        executor.submit_keyed("a", done.append, n)
    executor.shutdown()
    assert done == list(range(50))
    assert threads_of(executor) == []
    executor.shutdown()


def test_a_submit_after_shutdown_is_refused(executor: KeyedExecutor) -> None:
    view = executor.keyed("a")
    executor.shutdown()
    for submit in (executor.submit, view.submit):
        with pytest.raises(RuntimeError, match="after shutdown"):
            submit(int)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit_keyed("a", int)


def test_shutdown_without_waiting_runs_all_submitted_calls() -> None:
    executor = KeyedExecutor(1)
    gate = Gate("first")
    first, second = executor.submit(gate), executor.submit(str)
    threads = threads_of(executor)
    executor.shutdown(wait=False)
    assert not first.done()
    gate.open.set()
    assert (first.result(LONG), second.result(LONG)) == ("first", "")
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive()


def test_shutdown_can_cancel_pending_calls() -> None:
    with KeyedExecutor(2) as executor, busy(executor, "a") as (gate,):
        waiting = [executor.submit_keyed("a", int) for _ in range(5)]
        executor.shutdown(wait=False, cancel_futures=True)
        assert all(future.cancelled() for future in waiting)
        assert gate.running.is_set() and executor.queue.stats().unsettled == 1


def test_leaving_a_with_block_waits_for_all_calls() -> None:
    with KeyedExecutor(2) as executor:
        future = executor.submit(Gate.__call__, gate := Gate(7))
        assert gate.running.wait(LONG)
        gate.open.set()
    assert future.done() and future.result() == 7


def test_a_submit_that_waits_for_room_is_refused_by_shutdown() -> None:
    executor = KeyedExecutor(1, maxsize=1)
    raised: list[BaseException] = []
    gate = Gate()
    executor.submit(gate)

    def second() -> None:
        try:
            executor.submit(int)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=second)
    thread.start()
    executor.shutdown(wait=False)
    thread.join(LONG)
    gate.open.set()
    assert [type(error) for error in raised] == [RuntimeError]


def test_an_executor_collected_without_shutdown_runs_its_calls_and_ends_its_threads() -> None:
    executor = KeyedExecutor(2)
    gate = Gate()
    done: list[int] = []
    executor.submit_keyed("a", gate)
    for n in range(10):
        executor.submit_keyed("a", done.append, n)
    assert gate.running.wait(LONG)
    threads = threads_of(executor)
    gone = weakref.ref(executor)
    del executor
    gc.collect()
    assert gone() is None
    gate.open.set()
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive()
    assert done == list(range(10))


def test_a_dropped_idle_executor_leaves_no_threads() -> None:
    executor = KeyedExecutor(2)
    executor.submit(int).result()
    threads, queue = threads_of(executor), weakref.ref(executor.queue)
    del executor
    for thread in threads:
        thread.join(LONG)
    gc.collect()
    assert queue() is None


def test_a_finished_call_and_its_arguments_are_released() -> None:
    class Argument:
        pass

    with KeyedExecutor(1) as executor:
        argument = Argument()
        gone = weakref.ref(argument)
        future = executor.submit(id, argument)
        del argument
        future.result()
        executor.queue.join(LONG)
        assert gone() is None


def test_the_iterator_of_map_keeps_no_reference_to_yielded_results() -> None:
    class Result:
        pass

    with KeyedExecutor(2) as executor:
        for results in (
            executor.map(lambda _: Result(), range(5)),
            executor.map_keyed(lambda _: Result(), range(5), keys=str),
        ):
            for result in results:
                gone = weakref.ref(result)
                del result
                executor.queue.join(LONG)
                assert gone() is None


# -- Odd places to submit from --------------------------------------------------------------------


def test_a_call_may_submit_calls(executor: KeyedExecutor) -> None:
    inner = executor.submit(lambda: executor.submit_keyed("a", pow, 2, 3)).result()
    assert inner.result(LONG) == 8


def test_a_callback_may_submit_calls(executor: KeyedExecutor) -> None:
    submitted: list[futures.Future[int]] = []
    added = threading.Event()

    def submit(_: object) -> None:
        submitted.append(executor.submit_keyed("a", int, "5"))
        added.set()

    executor.submit_keyed("a", int).add_done_callback(submit)
    assert added.wait(LONG)
    assert submitted[0].result(LONG) == 5


def test_a_destructor_of_an_argument_may_use_the_executor(executor: KeyedExecutor) -> None:
    made: list[futures.Future[int]] = []

    class Last:
        def __del__(self) -> None:
            made.append(executor.submit(int))

    executor.submit_keyed("a", lambda _: None, Last()).result()
    executor.queue.join(LONG)
    assert made[0].result(LONG) == 0


def test_a_log_handler_that_raises_ends_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(threading.current_thread().name)
            raise RuntimeError("the log is broken")

    monkeypatch.setattr("sys.unraisablehook", lambda _: None)
    log, handler = logging.getLogger("interlock.queue"), Broken()
    retry = Retry(attempts=2, first=0)
    with KeyedExecutor(1, thread_name_prefix="broken-log", retry=retry) as executor:
        log.addHandler(handler)
        try:
            # The worker logs each failed attempt.
            for _ in range(3):
                assert executor.submit(divmod, 1, 0).exception(LONG) is not None
        finally:
            log.removeHandler(handler)
        assert len(threads_of(executor)) == 1
    assert "broken-log_0" in told


# -- Arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "kind", "says"),
    [
        ({"max_workers": 0}, ValueError, "max_workers is 0; it must be greater than 0"),
        ({"max_workers": 1.5}, TypeError, "max_workers is float; allowed: int"),
        ({"max_workers": True}, TypeError, "max_workers is bool; allowed: int"),
        ({"max_workers": 2, "unkeyed_workers": 2}, ValueError, "unkeyed_workers is 2 of 2"),
        ({"max_workers": 2, "unkeyed_workers": -1}, ValueError, "unkeyed_workers is -1"),
        ({"initializer": 5}, TypeError, "initializer is int; allowed: a callable"),
        ({"retry": 5}, TypeError, "retry is int; allowed: Retry"),
        ({"maxsize": -1}, ValueError, r"KeyedExecutor\(\): maxsize is -1; allowed: 0 or more"),
        ({"maxsize": "a"}, TypeError, r"KeyedExecutor\(\): maxsize is str"),
        ({"initargs": 5}, TypeError, "initargs is int; allowed: a tuple"),
        ({"thread_name_prefix": 5}, TypeError, "thread_name_prefix is int; allowed: str"),
        ({"pool": 5, "max_workers": 1}, TypeError, "pool is int; allowed: an executor"),
        (
            {"pool": futures.ThreadPoolExecutor, "max_workers": 1},
            TypeError,
            "pool is the class ThreadPoolExecutor; allowed: an executor",
        ),
        ({"pool": futures.Executor()}, ValueError, "max_workers is required with pool="),
        (
            {"pool": futures.Executor(), "max_workers": 1, "initializer": print},
            ValueError,
            "initializer and unkeyed_workers are settings of the pool",
        ),
    ],
)
def test_bad_arguments_are_named(
    arguments: dict[str, Any], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        KeyedExecutor(**arguments)
