"""The executor's futures are those of concurrent.futures, in all that others see of them."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import pytest

from interlock import Future, KeyedExecutor
from tests.executor.executors import LONG, Gate, busy


@pytest.fixture
def executor() -> Iterator[KeyedExecutor]:
    with KeyedExecutor(2) as executor:
        yield executor


@pytest.fixture
def gate(executor: KeyedExecutor) -> Iterator[Gate]:
    gate = Gate("made")
    yield gate
    gate.open.set()


def waiting(executor: KeyedExecutor, gate: Gate) -> tuple[Future[Any], Future[int]]:
    """A call that runs, and one behind it on its key."""
    running = executor.submit_keyed("k", gate)
    behind = executor.submit_keyed("k", int)
    assert gate.running.wait(LONG)
    return running, behind


def test_a_future_is_a_concurrent_futures_future(executor: KeyedExecutor) -> None:
    future = executor.submit(int)
    assert isinstance(future, futures.Future) and isinstance(future, Future)
    assert repr(Future[int]).endswith("Future[int]")


def test_a_future_reports_its_states(executor: KeyedExecutor, gate: Gate) -> None:
    running, behind = waiting(executor, gate)
    assert (running.running(), running.done(), running.cancelled()) == (True, False, False)
    assert (behind.running(), behind.done(), behind.cancelled()) == (False, False, False)
    assert "running" in repr(running) and "pending" in repr(behind)
    gate.open.set()
    assert running.result(LONG) == "made" and behind.result(LONG) == 0
    assert (running.running(), running.done(), running.cancelled()) == (False, True, False)
    assert "finished returned str" in repr(running)
    assert "raised ZeroDivisionError" in repr(failed(executor))


def failed(executor: KeyedExecutor) -> futures.Future[Any]:
    future = executor.submit(divmod, 1, 0)
    assert isinstance(future.exception(LONG), ZeroDivisionError)
    return future


def test_a_future_has_the_id_of_its_message(executor: KeyedExecutor, gate: Gate) -> None:
    _, behind = waiting(executor, gate)
    assert executor.queue.explain(behind.id).nodes[0].state == "waiting"
    assert Future[int]().id == 0


# -- Waiting for it -------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [0, 0.01, -1])
def test_result_raises_timeout_error_at_its_timeout(
    executor: KeyedExecutor, gate: Gate, timeout: float
) -> None:
    running, _ = waiting(executor, gate)
    for ask in (running.result, running.exception):
        with pytest.raises(futures.TimeoutError):
            ask(timeout=timeout)
    gate.open.set()
    assert running.result(timeout=LONG) == "made"
    assert running.exception(timeout=0) is None


def test_a_timeout_must_be_a_number(executor: KeyedExecutor, gate: Gate) -> None:
    running, _ = waiting(executor, gate)
    with pytest.raises(TypeError, match="timeout is str"):
        running.result("soon")  # type: ignore[arg-type]


def test_every_waiter_of_a_future_is_woken(executor: KeyedExecutor, gate: Gate) -> None:
    running, _ = waiting(executor, gate)
    results: list[Any] = []
    here = threading.Barrier(9)

    def ask(ask: Callable[[float], Any]) -> None:
        here.wait(LONG)
        results.append(ask(LONG))

    asks: list[Callable[[float], Any]] = [
        running.result,
        running.exception,
        lambda timeout: futures.wait([running], timeout)[1],
    ]
    threads = [threading.Thread(target=ask, args=(asks[n % 3],)) for n in range(8)]
    for thread in threads:
        thread.start()
    here.wait(LONG)
    gate.open.set()
    for thread in threads:
        thread.join(LONG)
    assert results.count("made") == 3 and results.count(None) == 3 and results.count(set()) == 2


@pytest.mark.parametrize("end", ["result", "exception", "cancel"])
@pytest.mark.parametrize("before", [False, True])
def test_wait_reports_every_kind_of_outcome(
    executor: KeyedExecutor, gate: Gate, end: str, before: bool
) -> None:
    running, behind = waiting(executor, gate)
    future: futures.Future[Any] = running
    if end == "exception":
        gate.result = ValueError()
    if end == "cancel":
        future = behind
    told: list[Any] = []
    asked = threading.Event()

    def ask() -> None:
        if not before:
            asked.set()
        told.append(futures.wait([future], LONG))

    def finish() -> None:
        if end == "cancel":
            assert behind.cancel()
        gate.open.set()
        running.exception(LONG)

    if before:
        # wait must also see futures that are already done.
        finish()
        asked.set()
    thread = threading.Thread(target=ask)
    thread.start()
    assert asked.wait(LONG)
    finish()
    thread.join(LONG)
    assert told == [({future}, set())]


def test_wait_returns_at_the_first_completed_or_failed_future(
    executor: KeyedExecutor, gate: Gate
) -> None:
    running, _ = waiting(executor, gate)
    quick = executor.submit(int)
    done, not_done = futures.wait([running, quick], LONG, futures.FIRST_COMPLETED)
    assert (done, not_done) == ({quick}, {running})
    broken = failed(executor)
    done, _ = futures.wait([running, broken], LONG, futures.FIRST_EXCEPTION)
    assert done == {broken}
    done, not_done = futures.wait([running, quick], 0.01)
    assert not_done == {running}


def test_as_completed_yields_each_future_once_when_it_ends(
    executor: KeyedExecutor, gate: Gate
) -> None:
    running, behind = waiting(executor, gate)
    quick = executor.submit(int)
    quick.result(LONG)
    ends = futures.as_completed([running, behind, quick, quick], LONG)
    assert next(ends) is quick
    behind.cancel()
    assert next(ends) is behind
    gate.open.set()
    assert next(ends) is running
    assert list(ends) == []


def test_as_completed_raises_at_its_timeout(executor: KeyedExecutor, gate: Gate) -> None:
    running, _ = waiting(executor, gate)
    with pytest.raises(futures.TimeoutError):
        list(futures.as_completed([running], 0.01))


def test_wait_takes_futures_of_several_executors(executor: KeyedExecutor) -> None:
    with futures.ThreadPoolExecutor(1) as other:
        mixed = {other.submit(int), executor.submit(int)}
        assert futures.wait(mixed, LONG) == (mixed, set())


# -- Cancelling it --------------------------------------------------------------------------------


def test_a_pending_call_can_be_cancelled(executor: KeyedExecutor, gate: Gate) -> None:
    running, behind = waiting(executor, gate)
    assert not running.cancel()
    assert behind.cancel() and behind.cancel()
    assert behind.cancelled() and behind.done() and not behind.running()
    for ask in (behind.result, behind.exception):
        with pytest.raises(futures.CancelledError):
            ask()
    with pytest.raises(KeyError):
        executor.queue.explain(behind.id)
    gate.open.set()
    assert running.result(LONG) == "made" and not running.cancel()


def test_a_cancelled_call_never_runs_and_its_lane_moves_on(executor: KeyedExecutor) -> None:
    ran: list[str] = []
    with busy(executor, "a"):
        middle = executor.submit_keyed(["a", "b"], ran.append, "middle")
        last = executor.submit_keyed("b", ran.append, "last")
        assert middle.cancel()
        last.result(LONG)
    executor.queue.join(LONG)
    assert ran == ["last"]


def test_cancelling_by_the_queue_cancels_the_future(executor: KeyedExecutor, gate: Gate) -> None:
    _, behind = waiting(executor, gate)
    told: list[futures.Future[int]] = []
    behind.add_done_callback(told.append)
    assert executor.queue.cancel(behind.id)
    assert behind.cancelled() and told == [behind]
    another = executor.submit_keyed("k", int)
    taken = executor.queue.shutdown(immediate=True)
    assert [message.payload for message in taken] == [another] and another.cancelled()


# -- Callbacks ------------------------------------------------------------------------------------


def test_callbacks_are_called_in_order_on_the_thread_that_ends_the_call(
    executor: KeyedExecutor, gate: Gate
) -> None:
    running, _ = waiting(executor, gate)
    called: list[tuple[int, futures.Future[Any], str]] = []

    def note(n: int) -> Callable[[futures.Future[Any]], None]:
        return lambda future: called.append((n, future, threading.current_thread().name))

    for n in range(3):
        running.add_done_callback(note(n))
    gate.open.set()
    executor.queue.join(LONG)
    assert [(n, future) for n, future, _ in called] == [(n, running) for n in range(3)]
    assert {thread for *_, thread in called} <= {f"{executor.queue.name}_{n}" for n in range(2)}
    # When it is done, at once and in the caller's thread.
    running.add_done_callback(note(3))
    assert called[3] == (3, running, threading.current_thread().name)


def test_a_callback_is_called_on_cancel(executor: KeyedExecutor, gate: Gate) -> None:
    _, behind = waiting(executor, gate)
    told: list[bool] = []
    behind.add_done_callback(lambda future: told.append(future.cancelled()))
    behind.cancel()
    assert told == [True]


@pytest.mark.parametrize("error", [ValueError("callback"), SystemExit("callback")])
@pytest.mark.parametrize("late", [False, True])
def test_a_callback_that_raises_is_logged_and_the_others_are_called(
    executor: KeyedExecutor,
    gate: Gate,
    caplog: pytest.LogCaptureFixture,
    error: BaseException,
    late: bool,
) -> None:
    def broken(_: object) -> None:
        raise error

    running, _ = waiting(executor, gate)
    called: list[object] = []
    with caplog.at_level(logging.ERROR, "concurrent.futures"):
        if late:
            gate.open.set()
            running.result(LONG)
        running.add_done_callback(broken)
        running.add_done_callback(called.append)
        gate.open.set()
        executor.queue.join(LONG)
    assert called == [running]
    (record,) = caplog.records
    assert "exception calling callback" in record.getMessage()
    assert record.exc_info is not None and record.exc_info[1] is error


def test_a_future_is_done_before_the_next_call_on_its_key(executor: KeyedExecutor) -> None:
    gate = Gate()
    first = executor.submit_keyed("a", gate)
    called: list[object] = []
    first.add_done_callback(called.append)
    second = executor.submit_keyed("a", lambda: (first.done(), list(called)))
    gate.open.set()
    assert second.result(LONG) == (True, [first])


# -- Calls of executors ---------------------------------------------------------------------------


def test_a_future_can_be_completed_only_once(executor: KeyedExecutor) -> None:
    done = executor.submit(int)
    done.result(LONG)
    with pytest.raises(futures.InvalidStateError):
        done.set_result(1)
    with pytest.raises(futures.InvalidStateError):
        done.set_exception(ValueError())
    with pytest.raises(futures.InvalidStateError):
        done.set_running_or_notify_cancel()
    assert done.result() == 0


def test_a_future_constructed_directly_works() -> None:
    future: Future[int] = Future()
    assert future.set_running_or_notify_cancel() and not future.cancel()
    future.set_result(5)
    assert future.result() == 5
    future = Future()
    assert future.cancel() and not future.set_running_or_notify_cancel()
    assert future.cancelled()


def test_a_signal_that_ends_set_result_leaves_it_as_it_was() -> None:
    future: Future[int] = Future()
    condition: Any = future._condition

    def interrupted() -> None:
        raise KeyboardInterrupt

    acquire, condition.acquire = condition.acquire, interrupted
    with pytest.raises(KeyboardInterrupt):
        future.set_result(1)
    assert not future.done()
    condition.acquire = acquire
    future.set_result(1)
    assert future.result() == 1


# -- Memory ---------------------------------------------------------------------------------------


def test_a_call_whose_future_was_dropped_still_runs(executor: KeyedExecutor) -> None:
    ran = threading.Event()
    executor.submit_keyed("a", ran.set)
    assert ran.wait(LONG)


def test_a_cycle_through_a_future_is_collected(executor: KeyedExecutor) -> None:
    class Result:
        future: object

    future = executor.submit(Result)
    future.result(LONG).future = future
    executor.queue.join(LONG)
    gone = weakref.ref(future.result())
    del future
    gc.collect()
    assert gone() is None


def test_a_destructor_of_an_argument_may_read_the_future(executor: KeyedExecutor) -> None:
    seen: list[object] = []
    made: list[futures.Future[Any]] = []

    class Argument:
        def __del__(self) -> None:
            future = made.pop()
            seen.append((future.done(), future.cancel(), future.cancelled()))

    gate = Gate("made")
    made.append(executor.submit(gate, Argument()))
    gate.open.set()
    executor.queue.join(LONG)
    assert seen == [(True, False, False)]
    # A call that is never made is let go as well.
    with busy(executor, "a"):
        made.append(executor.submit_keyed("a", id, Argument()))
        assert made[0].cancel()
    assert seen[1:] == [(True, True, True)]


def test_an_interrupt_in_a_callback_is_raised_after_the_other_callbacks() -> None:
    future: Future[int] = Future()
    called: list[str] = []

    def interrupted(_: object) -> None:
        called.append("interrupted")
        raise KeyboardInterrupt

    future.add_done_callback(interrupted)
    future.add_done_callback(lambda _: called.append("next"))
    with pytest.raises(KeyboardInterrupt):
        future.set_result(1)
    assert called == ["interrupted", "next"] and future.result() == 1
    with pytest.raises(KeyboardInterrupt):
        future.add_done_callback(interrupted)
