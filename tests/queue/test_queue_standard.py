"""Behaviour that users of ``queue.Queue`` rely on."""

import datetime as dt
import pickle
import queue as standard
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from interlock import Empty, Full, InterlockError, KeyedQueue, NotDrained, ShutDown
from interlock.testing import ManualClock
from tests.support import Running, blocked


def drain(q: KeyedQueue[Any]) -> list[Any]:
    payloads = []
    while not q.empty():
        with q.get_nowait() as payload:
            payloads.append(payload)
    return payloads


def test_a_queue_without_keys_is_first_in_first_out() -> None:
    q = KeyedQueue[int]()
    for n in range(100):
        q.put(n)
    assert drain(q) == list(range(100))


def test_block_and_timeout_have_their_standard_positions() -> None:
    q = KeyedQueue[str](1)
    q.put("a", True, 5)
    with pytest.raises(standard.Full):
        q.put("b", False)
    with pytest.raises(standard.Full):
        q.put("b", True, 0.001)
    lease = q.get(True, 5)
    with pytest.raises(standard.Empty):
        q.get(False)
    with pytest.raises(standard.Empty):
        q.get(True, 0.001)
    lease.ack()


def test_maxsize_is_the_first_argument_and_an_attribute() -> None:
    assert KeyedQueue[int](7).maxsize == 7
    assert KeyedQueue[int]().maxsize == 0


def test_the_errors_are_those_of_the_standard_library() -> None:
    assert issubclass(Full, standard.Full) and issubclass(Full, InterlockError)
    assert issubclass(Empty, standard.Empty) and issubclass(Empty, InterlockError)
    assert issubclass(NotDrained, TimeoutError)
    if sys.version_info >= (3, 13):
        assert issubclass(ShutDown, standard.ShutDown)


@pytest.mark.parametrize("timeout", [-1, -0.001, float("nan")])
def test_a_negative_timeout_is_a_value_error(timeout: float) -> None:
    q = KeyedQueue[int](1)
    for call in (lambda: q.get(timeout=timeout), lambda: q.join(timeout)):
        with pytest.raises(ValueError, match="timeout"):
            call()
    with pytest.raises(ValueError, match="timeout"):
        q.put(1, timeout=timeout)
    assert q.empty()


def test_without_block_the_timeout_is_ignored() -> None:
    q = KeyedQueue[int](1)
    with pytest.raises(Empty):
        q.get(False, -1)
    q.put(1, False, -1)
    assert q.qsize() == 1


def test_a_timeout_may_be_a_timedelta_or_infinite() -> None:
    q = KeyedQueue[int]()
    with pytest.raises(Empty):
        q.get(timeout=dt.timedelta(milliseconds=1))
    getter = blocked(q, lambda: q.get(timeout=float("inf")))
    q.put(1)
    getter.result().ack()


def test_a_waiting_get_returns_a_message_put_later() -> None:
    q = KeyedQueue[str]()
    getter = blocked(q, q.get)
    q.put("payload")
    lease = getter.result()
    assert lease.payload == "payload"
    lease.ack()


def test_a_put_finds_room_when_a_lease_is_settled_and_not_before() -> None:
    q = KeyedQueue[str](1)
    q.put("first")
    lease = q.get()
    putter = blocked(q, lambda: q.put("second"))
    assert (q.qsize(), q.full()) == (0, True)
    lease.ack()
    assert putter.result() == 2
    assert drain(q) == ["second"]


def test_many_waiting_getters_get_one_message_each() -> None:
    q = KeyedQueue[int]()
    getters = [blocked(q, q.get, beside=n) for n in range(8)]
    for n in range(8):
        q.put(n, keys=str(n))
    leases = [getter.result() for getter in getters]
    assert sorted(lease.payload for lease in leases) == list(range(8))
    q.ack_many(leases)


def test_size_counts_what_is_not_leased() -> None:
    q = KeyedQueue[int](3)
    assert (q.qsize(), q.empty(), q.full()) == (0, True, False)
    q.put_many([1, 2, 3])
    assert (q.qsize(), q.empty(), q.full()) == (3, False, True)
    lease = q.get()
    assert (q.qsize(), q.empty(), q.full()) == (2, False, True)
    lease.ack()
    assert (q.qsize(), q.empty(), q.full()) == (2, False, False)
    assert drain(q) == [2, 3]


def test_join_returns_when_all_is_settled() -> None:
    q = KeyedQueue[int]()
    q.join()
    q.put_many([1, 2])
    first, second = q.get(), q.get()
    joiner = blocked(q, q.join)
    first.ack()
    with pytest.raises(NotDrained) as caught:
        q.join(0.001)
    assert caught.value.leased == (second.id,)
    second.ack()
    joiner.result()


def test_task_done_raises_naming_what_to_call_instead() -> None:
    with pytest.raises(TypeError, match=r"lease\.ack"):
        KeyedQueue[int]().task_done()


def test_after_shutdown_puts_are_refused_and_remaining_messages_are_delivered() -> None:
    q = KeyedQueue[int]()
    q.put_many([1, 2])
    assert q.shutdown() == []
    for put in (lambda: q.put(3), lambda: q.put_nowait(3), lambda: q.put_many([3])):
        with pytest.raises(ShutDown):
            put()
    assert drain(q) == [1, 2]
    with pytest.raises(ShutDown):
        q.get()
    with pytest.raises(ShutDown):
        q.get_nowait()
    q.shutdown()


def test_get_waits_for_a_lease_that_may_come_back_after_shutdown() -> None:
    q = KeyedQueue[int]()
    q.put(1)
    lease = q.get()
    q.shutdown()
    getter = blocked(q, q.get)
    lease.nack(delay=0)
    again = getter.result()
    last = blocked(q, q.get)
    again.ack()
    with pytest.raises(ShutDown):
        last.result()


def test_shutdown_wakes_all_waiting_calls() -> None:
    full = KeyedQueue[int](1)
    full.put(1)
    putters = [blocked(full, lambda: full.put(2), beside=n) for n in range(3)]
    full.shutdown()
    empty = KeyedQueue[int]()
    getters = [blocked(empty, empty.get, beside=n) for n in range(3)]
    empty.shutdown(immediate=True)
    everybody: list[Running[Any]] = [*putters, *getters]
    for running in everybody:
        with pytest.raises(ShutDown):
            running.result()
    assert drain(full) == [1]


def test_an_immediate_shutdown_drops_messages_that_are_not_leased() -> None:
    q = KeyedQueue[str]()
    q.put("leased", keys="a")
    lease = q.get()
    q.put("waits", keys=["a", "b"], shared="s", priority=5)
    q.put("delayed", delay=60)
    messages = q.shutdown(immediate=True)
    assert [message.payload for message in messages] == ["waits", "delayed"]
    waits = messages[0]
    assert (waits.keys, waits.shared) == (frozenset({b"a", b"b"}), frozenset({b"s"}))
    assert (waits.priority, waits.attempt) == (5, 1)
    joiner = blocked(q, q.join)
    lease.ack()
    joiner.result()


def test_a_timed_out_get_takes_no_later_message() -> None:
    clock = ManualClock()
    q = KeyedQueue[int](clock=clock)
    patient = blocked(q, q.get)
    hasty = blocked(q, lambda: q.get(timeout=5), beside=1)
    clock.advance(5)
    with pytest.raises(Empty):
        hasty.result()
    q.put(1)
    patient.result().ack()


def test_a_timed_out_put_is_not_put_later() -> None:
    clock = ManualClock()
    q = KeyedQueue[str](1, clock=clock)
    q.put("there")
    putter = blocked(q, lambda: q.put("late", timeout=5))
    clock.advance(5)
    with pytest.raises(Full):
        putter.result()
    assert drain(q) == ["there"]


def test_room_is_given_in_the_order_of_the_puts() -> None:
    q = KeyedQueue[int](1)
    q.put(0)
    putters = [blocked(q, partial(q.put, n), beside=n - 1) for n in range(1, 6)]
    handled = []
    for _ in range(6):
        lease = q.get()
        handled.append(lease.payload)
        lease.ack()
    for putter in putters:
        putter.result()
    assert handled == list(range(6))


def test_small_puts_do_not_starve_a_large_batch() -> None:
    q = KeyedQueue[str](4)
    q.put_many(["small"] * 4)
    batch = blocked(q, lambda: q.put_many(["large"] * 4))
    passed = 0
    taken: list[str] = []
    while "large" not in taken:
        try:
            lease = q.get_nowait()
        except Empty:
            # Room is kept for it, and it is on its way.
            assert batch.thread.is_alive() or not q.empty()
            continue
        taken.append(lease.payload)
        lease.ack()
        try:
            q.put_nowait("small")
        except Full:
            pass
        else:
            passed += 1
        assert passed < 1000
    batch.result()
    assert passed > 0, "room is anybody's, for a while"
    assert [*taken, *drain(q)].count("large") == 4


def test_a_queue_cannot_be_copied_or_pickled() -> None:
    import copy

    q = KeyedQueue[int]()
    q.put(1)
    lease = q.get()
    calls: list[Callable[[Any], object]] = [copy.copy, copy.deepcopy, pickle.dumps]
    for call in calls:
        with pytest.raises(TypeError):
            call(q)
        with pytest.raises(TypeError):
            call(lease)
    lease.ack()


def test_a_queue_and_a_lease_have_a_useful_repr() -> None:
    q = KeyedQueue[int](name="orders")
    q.put(1)
    assert repr(q) == "<KeyedQueue 'orders', 1 queued>"
    lease = q.get()
    assert "message 1" in repr(lease) and "orders" in repr(lease)
    assert (lease.queue, lease.id, lease.attempt) == ("orders", 1, 1)
    lease.ack()


def test_queues_have_distinct_default_names() -> None:
    assert KeyedQueue[int]().name != KeyedQueue[int]().name
    with pytest.raises(TypeError, match="name is int"):
        KeyedQueue[int](name=7)  # type: ignore[arg-type]
