"""Retry policies and errors, as values."""

import asyncio
import copy
import dataclasses
import datetime as dt
import pickle
from typing import Any

import pytest

import interlock
from interlock import InterlockError, KeyedQueue, NotDrained, Reject, Retry, RetryAfter
from interlock.testing import ManualClock


def test_the_default_policy() -> None:
    retry = Retry()
    assert (retry.attempts, retry.first, retry.factor, retry.longest) == (5, 1, 2, 60)
    assert (retry.jitter, retry.on, retry.then) == (True, (Exception,), "dead")


def test_a_policy_is_a_value() -> None:
    retry = Retry(3, first=dt.timedelta(seconds=2), on=(OSError, ValueError), then="hold")
    assert retry.first == 2.0
    assert retry == Retry(3, first=2, on=(OSError, ValueError), then="hold") != Retry()
    assert hash(retry) == hash(copy.deepcopy(retry))
    assert pickle.loads(pickle.dumps(retry)) == retry
    assert dataclasses.replace(retry, attempts=None).attempts is None
    with pytest.raises(dataclasses.FrozenInstanceError):
        retry.attempts = 7  # type: ignore[misc]
    assert "attempts=3" in repr(retry)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"attempts": 0}, ValueError),
        ({"attempts": -1}, ValueError),
        ({"attempts": 1.5}, TypeError),
        ({"attempts": True}, TypeError),
        ({"attempts": 2**31}, ValueError),
        ({"first": -1}, ValueError),
        ({"first": float("nan")}, ValueError),
        ({"first": "1"}, TypeError),
        ({"factor": 0.5}, ValueError),
        ({"factor": float("inf")}, ValueError),
        ({"factor": float("nan")}, ValueError),
        ({"factor": "2"}, TypeError),
        ({"longest": -1}, ValueError),
        ({"longest": None}, TypeError),
        ({"then": "bury"}, ValueError),
        ({"on": ValueError}, TypeError),
        ({"on": ("ValueError",)}, TypeError),
        ({"on": (KeyboardInterrupt,)}, TypeError),
    ],
)
def test_an_invalid_policy_is_refused(options: dict[str, Any], kind: type[Exception]) -> None:
    (name,) = options
    with pytest.raises(kind, match=rf"Retry\(\): {name} "):
        Retry(**options)


@pytest.mark.parametrize(
    ("retry", "backoffs"),
    [
        (Retry(6, first=1, factor=2, longest=5, jitter=False), [1, 2, 4, 5, 5]),
        (Retry(4, first=3, factor=1, jitter=False), [3, 3, 3]),
        (Retry(3, first=0), [0, 0]),
        (Retry(3, first=dt.timedelta(minutes=1), longest=0.5, jitter=False), [0.5, 0.5]),
        (Retry(3, first=1, longest=float("inf"), jitter=False), [1, 2]),
    ],
)
def test_backoffs_grow_up_to_the_maximum(retry: Retry, backoffs: list[float]) -> None:
    clock = ManualClock()
    q = KeyedQueue[int](retry=retry, clock=clock)
    q.put(1)
    for backoff in backoffs:
        q.get_nowait().nack()
        if backoff:
            assert q.explain(1).nodes[0].due_in == backoff
            clock.advance(backoff)
    q.get_nowait().nack()
    assert q.stats().dead == 1


def test_jitter_is_between_half_and_the_full_backoff_and_differs_between_messages() -> None:
    q = KeyedQueue[int](retry=Retry(first=10), clock=ManualClock())
    q.put_many(range(50))
    for lease in q.get_many(50):
        lease.nack()
    backoffs = [q.explain(id).nodes[0].due_in or 0 for id in range(1, 51)]
    assert all(5 <= backoff <= 10 for backoff in backoffs)
    assert len(set(backoffs)) > 40


@pytest.mark.parametrize(
    "error",
    [
        NotDrained((1, 2), (b"a", b""), (3,), tuple(range(9))),
        NotDrained(),
        RetryAfter(2.5),
        Reject("malformed"),
        interlock.Full("full"),
        interlock.Empty("empty"),
        interlock.ShutDown("shut down"),
        interlock.LeaseLost("lost"),
        interlock.WouldDeadlock("chain"),
    ],
)
def test_errors_can_be_pickled(error: InterlockError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), vars(again)) == (str(error), vars(error))


def test_not_drained_names_the_messages_that_remain() -> None:
    error = NotDrained((1,), (b"a", b""), (3,), tuple(range(9)))
    text = str(error)
    assert "held: messages 1" in text and "delayed: messages 3" in text
    assert "0, 1, 2, 3, 4, ... (9 in all)" in text
    assert "paused: a, the queue" in text
    assert isinstance(error, TimeoutError)


def test_all_errors_have_one_base_class() -> None:
    for name in ("Full", "Empty", "ShutDown", "LeaseLost", "WouldDeadlock", "NotDrained"):
        assert issubclass(getattr(interlock, name), InterlockError)


def test_a_steering_exception_keeps_its_arguments() -> None:
    assert RetryAfter(dt.timedelta(minutes=1)).seconds == 60
    assert RetryAfter(float("inf")).seconds == float("inf")
    assert Reject("why").reason == "why"


def test_explain_says_that_a_message_is_a_dead_letter() -> None:
    queue = KeyedQueue[str](name="orders")
    queue.put("payload")
    lease = queue.get()
    lease.reject("no such account")
    with pytest.raises(KeyError, match=r"is a dead letter of queue 'orders' \(no such account\)"):
        queue.explain(lease.id)
    with pytest.raises(KeyError, match="is settled, or was never put"):
        queue.explain(77)


@pytest.mark.parametrize("endless", [float("inf"), 10**400], ids=["inf", "a long integer"])
def test_an_infinite_duration_is_accepted(endless: float) -> None:
    q: KeyedQueue[int] = KeyedQueue(maxsize=3, lease=endless, dedup_window=endless)
    assert Retry(first=endless).first == float("inf")
    q.put(1, timeout=endless)
    delayed = q.put(2, delay=endless)
    q.get(timeout=endless).nack(delay=endless)
    stats = q.stats()
    assert (stats.backing_off, stats.delayed) == (1, 1)
    assert q.cancel(delayed)
    consumer = q.consume(lambda _: None, timeout=endless)
    assert consumer.stop(endless) and consumer.join(endless)

    async def main() -> None:
        await q.aio.put(3, timeout=endless)
        await (await q.aio.get(timeout=endless)).ack()

    asyncio.run(main())


@pytest.mark.parametrize("beyond", [float("inf"), 10**400, 2**60])
def test_a_manual_clock_cannot_pass_the_largest_token(beyond: float) -> None:
    clock = ManualClock(1)
    with pytest.raises(ValueError, match=r"start is .*allowed: 0 to"):
        ManualClock(beyond)
    with pytest.raises(ValueError, match=r"seconds is .*allowed: 0 to"):
        clock.advance(beyond)
    assert clock.now() == 1


def test_an_unused_manual_clock_keeps_no_reference_to_freed_queues() -> None:
    clock = ManualClock()
    for _ in range(5_000):
        KeyedQueue(clock=clock)
    assert clock._following() < 100
