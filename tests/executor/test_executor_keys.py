"""Calls with keys: order, exclusion, views, map_keyed, workers for the unkeyed, room."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import pytest

from interlock import KeyedExecutor
from tests.executor.executors import LONG, Gate, busy, threads_of


@pytest.fixture
def executor() -> Iterator[KeyedExecutor]:
    with KeyedExecutor(4) as executor:
        yield executor


def test_calls_on_one_key_run_in_order_and_never_overlap(executor: KeyedExecutor) -> None:
    ran: dict[str, list[int]] = {key: [] for key in "abc"}
    inside = dict.fromkeys("abc", 0)

    def call(n: int, keys: str) -> None:
        for key in keys:
            inside[key] += 1
            assert inside[key] == 1, f"two calls hold {key}"
        for key in keys:
            ran[key].append(n)
        for key in keys:
            inside[key] -= 1

    holding = itertools.cycle(["a", "b", "ab", "bc", "c", "abc"])
    made = [(n, next(holding)) for n in range(600)]
    calls = [executor.submit_keyed(tuple(keys), call, n, keys) for n, keys in made]
    for future in calls:
        future.result(LONG)
    for key, order in ran.items():
        assert order == [n for n, keys in made if key in keys]


def test_calls_without_a_common_key_run_concurrently(executor: KeyedExecutor) -> None:
    barrier = threading.Barrier(4)
    calls = [executor.submit_keyed(key, barrier.wait, LONG) for key in ("a", "b", ("c", "d"))]
    calls.append(executor.submit(barrier.wait, LONG))
    assert sorted(call.result(LONG) for call in calls) == [0, 1, 2, 3]


def test_calls_with_several_keys_never_overtake(executor: KeyedExecutor) -> None:
    with busy(executor, "a"):
        both = executor.submit_keyed(["a", "b"], int)
        behind = executor.submit_keyed("b", both.done)
        assert not both.done() and not behind.done()
    assert behind.result(LONG)


def test_keys_with_the_same_bytes_are_equal_whatever_their_type(executor: KeyedExecutor) -> None:
    with busy(executor, "7"):
        others = [executor.submit_keyed(key, int) for key in (7, b"7", iter(["7"]))]
        states = [executor.queue.explain(call.id).nodes[0].state for call in others]
    assert states == ["waiting"] * 3


@pytest.mark.parametrize(
    ("keys", "kind", "says"),
    [
        (1.5, TypeError, "keys is float"),
        (["a", None], TypeError, r"keys\[1\] is NoneType"),
        ("", ValueError, "keys is empty"),
        (True, TypeError, "keys is bool"),
        (("room", 7), TypeError, "mixes str and int"),
        ("k" * 1025, ValueError, "1025 bytes"),
    ],
)
def test_a_wrong_key_is_refused_at_the_call(
    executor: KeyedExecutor, keys: Any, kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        executor.submit_keyed(keys, int)
    assert executor.queue.stats().puts == 0


# -- Views ----------------------------------------------------------------------------------------


def test_a_keyed_view_is_an_executor_with_fixed_keys(executor: KeyedExecutor) -> None:
    view = executor.keyed("a", "b")
    assert isinstance(view, futures.Executor)
    with busy(executor, "b"):
        call = view.submit(pow, 2, 3)
        assert executor.queue.explain(call.id).nodes[0].state == "waiting"  # type: ignore[attr-defined]
    assert call.result(LONG) == 8
    order: list[int] = []
    assert list(view.map(order.append, range(50))) == [None] * 50
    assert order == list(range(50))


def test_shutting_down_a_view_does_not_shut_down_the_executor(executor: KeyedExecutor) -> None:
    with executor.keyed("a") as view:
        view.submit(int).result(LONG)
    view.shutdown(cancel_futures=True)
    assert view.submit(int).result(LONG) == 0


def test_readers_share_a_key_and_a_writer_does_not(executor: KeyedExecutor) -> None:
    readers = executor.keyed(shared="room")
    barrier = threading.Barrier(3)
    order: list[str] = []

    def read() -> None:
        barrier.wait(LONG)
        order.append("read")

    together = [readers.submit(read) for _ in range(3)]
    writer = executor.submit_keyed("room", order.append, "write")
    after = readers.submit(order.append, "read after")
    futures.wait([*together, writer, after], LONG)
    assert order == ["read"] * 3 + ["write", "read after"]


def test_higher_priority_goes_first_but_never_out_of_order() -> None:
    with KeyedExecutor(1) as executor:
        order: list[str] = []
        with busy(executor):
            executor.submit_keyed("a", order.append, "a, low")
            executor.keyed("a", priority=100).submit(order.append, "a, high")
            executor.keyed("b", priority=50).submit(order.append, "b")
            executor.keyed(priority=-1).submit(order.append, "no key, last")
        executor.queue.join(LONG)
    assert order == ["b", "a, low", "a, high", "no key, last"]


@pytest.mark.parametrize(
    ("arguments", "named", "kind", "says"),
    [
        (["a", 1.5], {}, TypeError, r"keyed\(\): keys\[1\] is float"),
        ([["a"]], {}, TypeError, r"keyed\(\): keys\[0\] is list"),
        ([""], {}, ValueError, r"keyed\(\): keys\[0\] is empty"),
        ([], {"shared": 2.5}, TypeError, r"keyed\(\): shared is float"),
        ([], {"shared": ["a", None]}, TypeError, r"keyed\(\): shared\[1\] is NoneType"),
        (["a"], {"priority": 101}, ValueError, r"keyed\(\): priority is 101"),
        (["a"], {"priority": "1"}, TypeError, r"keyed\(\): priority is str"),
        ([str(n) for n in range(4097)], {}, ValueError, r"keyed\(\): keys names more than 4096"),
    ],
)
def test_unknown_keyword_arguments_are_refused_at_the_call(
    executor: KeyedExecutor,
    arguments: list[Any],
    named: dict[str, Any],
    kind: type[Exception],
    says: str,
) -> None:
    with pytest.raises(kind, match=says):
        executor.keyed(*arguments, **named)


def test_a_views_keys_are_read_once(executor: KeyedExecutor) -> None:
    view = executor.keyed("a", 7, b"b", shared=iter(["c"]))
    gate = Gate()
    call = view.submit(gate)
    assert gate.running.wait(LONG)
    depths = {hot.key for hot in executor.queue.hot_keys(9)}
    gate.open.set()
    call.result(LONG)
    again = view.submit(lambda: {hot.key for hot in executor.queue.hot_keys(9)})
    assert again.result(LONG) == depths == {b"a", b"7", b"b", b"c"}


# -- map_keyed ------------------------------------------------------------------------------------


def test_map_keyed_yields_results_in_the_order_of_the_items(executor: KeyedExecutor) -> None:
    ran: list[int] = []

    def call(n: int) -> int:
        ran.append(n)
        return -n

    results = executor.map_keyed(call, range(300), keys=lambda n: n % 3, buffersize=10)
    assert list(results) == [-n for n in range(300)]
    for lane in range(3):
        assert [n for n in ran if n % 3 == lane] == list(range(lane, 300, 3))


def test_map_keyed_reads_ahead_at_most_buffersize_items(executor: KeyedExecutor) -> None:
    read = 0

    def items() -> Iterator[int]:
        nonlocal read
        for n in itertools.count():
            read = n + 1
            yield n

    results = executor.map_keyed(abs, items(), keys=str, buffersize=5)
    assert read == 5
    for n in range(20):
        assert next(results) == n
        assert read == 6 + n


def test_map_keyed_takes_shared_keys(executor: KeyedExecutor) -> None:
    barrier = threading.Barrier(3)
    waits = executor.map_keyed(
        lambda _: barrier.wait(LONG), range(3), keys=lambda _: (), shared=lambda _: "room"
    )
    assert sorted(waits) == [0, 1, 2]


def test_map_keyed_cancels_the_rest_when_a_call_raises(executor: KeyedExecutor) -> None:
    gate = Gate()

    def call(n: int) -> float:
        if n == 2:
            gate()
        return 1 / n

    results = executor.map_keyed(call, [1, 0, 2, 3], keys=lambda _: "a")
    assert next(results) == 1
    assert gate.running.wait(LONG)
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert executor.queue.stats().cancelled == 1
    with pytest.raises(StopIteration):
        next(results)
    gate.open.set()


def test_closing_the_iterator_of_map_keyed_cancels_pending_calls(executor: KeyedExecutor) -> None:
    gate = Gate()
    results = executor.map_keyed(lambda n: n and gate(), range(9), keys=lambda _: "a")
    assert next(results) == 0
    assert gate.running.wait(LONG)
    results.close()  # type: ignore[attr-defined]
    assert executor.queue.stats().unsettled == 1
    gate.open.set()


@pytest.mark.parametrize("wrong", ["keys", "items"])
def test_an_error_of_the_input_of_map_keyed_is_raised_and_pending_calls_cancelled(
    executor: KeyedExecutor, wrong: str
) -> None:
    def items() -> Iterator[int]:
        yield from range(3)
        if wrong == "items":
            raise LookupError("no more")
        yield 3

    def keys(n: int) -> Any:
        return 1.5 if n == 3 else "a"

    with busy(executor, "a"):
        with pytest.raises(LookupError if wrong == "items" else TypeError):
            executor.map_keyed(abs, items(), keys=keys)
        assert executor.queue.stats().unsettled == 1


@pytest.mark.parametrize(("size", "kind"), [(0, ValueError), ("1", TypeError)])
def test_an_invalid_buffersize_is_refused(
    executor: KeyedExecutor, size: Any, kind: type[Exception]
) -> None:
    with pytest.raises(kind, match="buffersize"):
        executor.map_keyed(abs, [1], keys=str, buffersize=size)


# -- Workers and room -----------------------------------------------------------------------------


def test_workers_can_be_reserved_for_unkeyed_calls() -> None:
    with KeyedExecutor(4, unkeyed_workers=2) as executor:
        with busy(executor, "a"), busy(executor, "b"):
            waits = executor.submit_keyed("c", int)
            barrier = threading.Barrier(2)
            together = [executor.submit(barrier.wait, LONG) for _ in range(2)]
            assert sorted(call.result(LONG) for call in together) == [0, 1]
            assert not waits.done()
            assert len(threads_of(executor)) == 4
        assert waits.result(LONG) == 0


def test_unreserved_workers_run_unkeyed_calls_too() -> None:
    with KeyedExecutor(3, unkeyed_workers=1) as executor:
        barrier = threading.Barrier(3)
        together = [executor.submit(barrier.wait, LONG) for _ in range(3)]
        assert sorted(call.result(LONG) for call in together) == [0, 1, 2]


def test_a_submit_waits_for_room() -> None:
    with KeyedExecutor(1, maxsize=2) as executor:
        submitted = threading.Semaphore(0)
        first = Gate()

        def submit() -> None:
            for n in range(4):
                executor.submit_keyed("a", first if n == 0 else int)
                submitted.release()

        thread = threading.Thread(target=submit)
        thread.start()
        for _ in range(2):
            assert submitted.acquire(timeout=LONG)
        assert executor.queue.full()
        assert not submitted.acquire(blocking=False)
        first.open.set()
        thread.join(LONG)
        for _ in range(2):
            assert submitted.acquire(timeout=LONG)


def test_the_underlying_queue_can_be_paused(executor: KeyedExecutor) -> None:
    executor.queue.pause("a")
    paused = executor.submit_keyed("a", int)
    assert executor.submit_keyed("b", int).result(LONG) == 0
    assert not paused.done()
    executor.queue.resume("a")
    assert paused.result(LONG) == 0


def test_a_message_that_is_not_a_call_becomes_a_dead_letter(executor: KeyedExecutor) -> None:
    executor.queue.put("a payload", keys="a")  # type: ignore[arg-type]
    assert executor.submit_keyed("a", int).result(LONG) == 0
    (letter,) = executor.queue.dead_letters()
    assert "not a call" in letter.error
