"""Leases: ``with``, what steers, what a lease says of itself, and whose it is."""

import contextlib
import datetime as dt
import threading
from collections.abc import Callable
from typing import Any

import pytest

from interlock import (
    Empty,
    KeyedQueue,
    Lease,
    LeaseLost,
    Reject,
    Retry,
    RetryAfter,
    WouldDeadlock,
    current_lease,
)
from interlock.testing import ManualClock
from tests.support import Running, blocked

AT_ONCE = Retry(attempts=None, first=0)


class Wrong(Exception):
    """The error that a handler raises."""


def fail(q: KeyedQueue[Any], error: BaseException) -> None:
    with pytest.raises(type(error)), q.get():
        raise error


def test_a_with_block_yields_the_payload_and_acks() -> None:
    q = KeyedQueue[str]()
    q.put("payload", keys="a")
    lease = q.get()
    with lease as payload:
        assert payload == "payload"
    assert q.stats().acks == 1
    with pytest.raises(LeaseLost):
        lease.ack()


def test_a_with_block_nacks_on_an_exception_and_reraises_it() -> None:
    q = KeyedQueue[str](retry=AT_ONCE)
    q.put("payload", keys="a")
    q.put("behind", keys="a")
    fail(q, Wrong("no"))
    lease = q.get()
    assert (lease.payload, lease.attempt) == ("payload", 2)
    lease.ack()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), GeneratorExit()])
def test_a_with_block_nacks_on_any_exception(error: BaseException) -> None:
    q = KeyedQueue[str](retry=AT_ONCE)
    q.put("payload")
    fail(q, error)
    q.get().nack()
    assert q.stats().retries == 2


def test_a_with_block_keeps_a_settlement_made_inside() -> None:
    q = KeyedQueue[int](retry=AT_ONCE)
    q.put_many([1, 2, 3])
    with (lease := q.get()):
        lease.ack()
    with pytest.raises(Wrong), (lease := q.get()):
        raise Wrong(lease.reject("not this one"))  # type: ignore[func-returns-value]
    with (lease := q.get()):
        lease.release()
    stats = q.stats()
    assert (stats.acks, stats.dead, stats.releases, stats.retries) == (1, 1, 1, 0)


def test_a_with_block_raises_lease_lost_unless_the_block_raised() -> None:
    q = KeyedQueue[int](retry=AT_ONCE)
    q.put(1)
    with pytest.raises(LeaseLost), q.get() as _:
        q.revoke(1)
    with pytest.raises(Wrong), q.get() as _:
        raise Wrong(q.revoke(1))
    assert q.stats().revoked == 2


def test_a_failure_keeps_the_name_and_the_text_of_its_exception() -> None:
    q = KeyedQueue[str](retry=Retry(attempts=1))

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    for error in (Wrong("the reason"), Wrong(), Mute(), Wrong("\udcff")):
        q.put("payload")
        fail(q, error)
    texts = [letter.error for letter in q.dead_letters()]
    assert texts[:3] == ["Wrong: the reason", "Wrong", "Mute"]
    assert texts[3].startswith("Wrong: ")


def test_a_handler_settles_its_message_by_a_steering_exception() -> None:
    clock = ManualClock()
    q = KeyedQueue[str](retry=AT_ONCE, clock=clock)
    q.put("later", keys="a")
    fail(q, RetryAfter(dt.timedelta(seconds=30)))
    clock.advance(29)
    assert q.stats().backing_off == 1
    clock.advance(1)
    assert q.stats().ready == 1
    fail(q, Reject("malformed"))
    (letter,) = q.dead_letters()
    assert (letter.error, letter.attempts) == ("malformed", 2)


def test_a_retry_after_counts_against_the_attempts() -> None:
    q = KeyedQueue[str](retry=Retry(attempts=2))
    q.put("payload")
    fail(q, RetryAfter(0))
    fail(q, RetryAfter(0))
    assert q.stats().dead == 1


@pytest.mark.parametrize(("then", "state"), [("dead", "dead"), ("hold", "held")])
def test_an_exception_not_in_the_policy_ends_the_message_as_the_policy_says(
    then: Any, state: str
) -> None:
    q = KeyedQueue[str](retry=Retry(on=(OSError,), first=0, then=then))
    q.put("payload", keys="a")
    fail(q, TimeoutError("a kind of OSError"))
    fail(q, Wrong("not retried"))
    assert getattr(q.stats(), state) == 1
    if state == "held":
        with pytest.raises(Empty):
            q.get_nowait()
        q.bury(1)
    assert q.dead_letters()[0].attempts == 2


def test_ctrl_c_does_not_end_the_message() -> None:
    q = KeyedQueue[str](retry=Retry(on=(OSError,), first=0))
    q.put("payload")
    fail(q, KeyboardInterrupt())
    with q.get_nowait() as payload:
        assert payload == "payload"


@pytest.mark.parametrize("seconds", [-1, float("nan"), True, "1", None])
def test_an_invalid_steering_exception_is_refused_when_constructed(seconds: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="seconds"):
        RetryAfter(seconds)
    with pytest.raises(TypeError, match="reason is int"):
        Reject(7)  # type: ignore[arg-type]


SETTLE: dict[str, Callable[[Lease[Any]], None]] = {
    "ack": lambda lease: lease.ack(),
    "nack": lambda lease: lease.nack(),
    "reject": lambda lease: lease.reject("no"),
    "release": lambda lease: lease.release(),
}


@pytest.mark.parametrize("settle", SETTLE)
def test_a_settled_lease_keeps_its_attributes(settle: str) -> None:
    q = KeyedQueue[str](name="orders", retry=AT_ONCE)
    q.put("payload", keys=["a", 7], shared=b"\xff")
    lease = q.get()
    token = lease.token
    SETTLE[settle](lease)
    q.shutdown(immediate=True)
    assert (lease.payload, lease.queue, lease.id, lease.attempt) == ("payload", "orders", 1, 1)
    assert lease.keys == {b"a", b"7"}
    assert lease.shared == {b"\xff"}
    assert (lease.token, lease.lost) == (token, False)


def test_tokens_rise_and_stay_below_what_json_can_hold() -> None:
    q = KeyedQueue[int](retry=AT_ONCE)
    q.put_many(range(10))
    tokens = []
    for _ in range(20):
        lease = q.get()
        tokens.append(lease.token)
        lease.nack()
    assert tokens == sorted(set(tokens))
    assert tokens[-1] < 2**53


def test_an_expired_lease_is_lost() -> None:
    clock = ManualClock()
    q = KeyedQueue[str](lease=10, retry=AT_ONCE, clock=clock)
    q.put("payload")
    lease = q.get()
    clock.advance(9)
    lease.extend(5)
    clock.advance(4)
    assert not lease.lost
    clock.advance(1)
    assert lease.lost
    for settle in SETTLE.values():
        with pytest.raises(LeaseLost, match="message 1"):
            settle(lease)
    with pytest.raises(LeaseLost):
        lease.extend(5)
    q.get().ack()


def test_a_lease_may_be_settled_by_another_thread() -> None:
    q = KeyedQueue[str](1)
    q.put("payload")
    leases = [q.get()]
    # A thread that only holds a lease may have given it away: this is not a deadlock.
    putter = blocked(q, lambda: q.put("next"))
    Running(lambda: leases.pop().ack()).result()
    assert putter.result() == 2


def test_current_lease_belongs_to_the_thread_and_the_block() -> None:
    q = KeyedQueue[str]()
    q.put("outer")
    q.put("inner")
    with q.get() as _:
        outer = current_lease()
        with q.get() as _:
            assert current_lease().payload == "inner"
        assert current_lease() is outer
        with pytest.raises(LookupError):
            Running(current_lease).result()
    with pytest.raises(LookupError):
        current_lease()


def test_a_put_into_a_full_queue_that_only_the_caller_drains_raises_would_deadlock() -> None:
    q = KeyedQueue[str](2)
    q.put("first")
    q.put("second")
    with q.get() as _:
        with pytest.raises(WouldDeadlock, match="message 1"):
            q.put("third")
        with pytest.raises(WouldDeadlock, match="message 1"):
            q.put_many(["third"])
        with pytest.raises(WouldDeadlock, match="message 1"):
            q.join()
    assert q.stats().puts == 2
    assert q.put("third") == 3


def test_a_put_into_a_full_queue_that_another_drains_waits() -> None:
    q = KeyedQueue[str](2)
    q.put("first")
    q.put("second")
    other = Running(q.get).result()
    with q.get() as _:
        ack = threading.Timer(0.001, other.ack)
        ack.start()
        assert q.put("third") == 3
        ack.join()


def test_a_lease_of_another_queue_is_refused() -> None:
    full, other = KeyedQueue[str](1), KeyedQueue[str]()
    other.put("handled")
    full.put("there")
    with other.get() as _:
        putter = blocked(full, lambda: full.put("next"))
        full.get().ack()
        assert putter.result() == 2
        full.get().ack()
        full.join()


def test_ack_many_settles_all_and_then_raises_for_the_first_lost_lease() -> None:
    q = KeyedQueue[int](retry=AT_ONCE)
    q.put_many(range(4))
    leases = q.get_many(10)
    q.revoke(leases[1].id)
    with pytest.raises(LeaseLost, match="message 2"):
        q.ack_many(iter(leases))
    stats = q.stats()
    assert (stats.acks, stats.unsettled) == (3, 1)
    with pytest.raises(TypeError):
        q.ack_many([None])  # type: ignore[list-item]


@pytest.mark.parametrize("times", [2, 5])
def test_a_lease_that_is_entered_again_leaves_no_current_lease(times: int) -> None:
    q: KeyedQueue[int] = KeyedQueue()
    q.put(1)
    lease = q.get()
    with contextlib.ExitStack() as stack:
        for _ in range(times):
            assert stack.enter_context(lease) == 1
            assert current_lease() is lease
    with pytest.raises(LookupError):
        current_lease()
    assert q.stats().acks == 1
