"""``KeyedQueue.consume``: handlers on threads."""

import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from interlock import (
    Consumer,
    KeyedQueue,
    Reject,
    Retry,
    RetryAfter,
    ShutDown,
    WouldDeadlock,
    current_lease,
)
from interlock.testing import ManualClock
from tests.support import PATIENCE, Running, blocked, collect, until

AT_ONCE = Retry(attempts=None, first=0)


def drained(q: KeyedQueue[Any]) -> None:
    q.join(PATIENCE)


def test_consume_handles_every_message_in_order_per_key() -> None:
    q = KeyedQueue[tuple[int, int]](keys=lambda payload: payload[0])
    seen: dict[int, list[int]] = {lane: [] for lane in range(5)}

    def handle(payload: tuple[int, int]) -> None:
        seen[payload[0]].append(payload[1])

    with q.consume(handle, threads=4):
        for n in range(200):
            q.put((n % 5, n))
        drained(q)
    for lane, numbers in seen.items():
        assert numbers == list(range(lane, 200, 5))
    assert q.stats().acks == 200


def test_shutting_down_the_queue_ends_consume() -> None:
    q = KeyedQueue[int]()
    consumer = q.consume(lambda payload: None, threads=3)
    q.put(1)
    q.shutdown()
    assert consumer.join(PATIENCE)
    assert q.stats().acks == 1


def test_stop_lets_handlers_finish_and_leases_no_more() -> None:
    q = KeyedQueue[int]()
    entered, go_on = threading.Event(), threading.Event()

    def handle(payload: int) -> None:
        entered.set()
        assert go_on.wait(PATIENCE)

    consumer = q.consume(handle)
    q.put(1, keys="a")
    q.put(2, keys="a")
    assert entered.wait(PATIENCE)
    assert consumer.stop(0.001) is False
    stopping = Running(consumer.stop)
    go_on.set()
    assert stopping.result() is True
    stats = q.stats()
    assert (stats.acks, stats.unsettled) == (1, 1)
    q.get_nowait().ack()


def test_stop_wakes_threads_that_wait() -> None:
    q = KeyedQueue[int]()
    consumer = q.consume(lambda payload: None, threads=5)
    until(lambda: q._parked() == 5)
    assert consumer.stop(PATIENCE)
    assert q._parked() == 0


def test_a_handler_may_stop_its_own_consumer() -> None:
    q = KeyedQueue[int]()
    stopped: list[bool] = []
    consumers: list[Consumer] = []
    ready = threading.Event()

    def handle(payload: int) -> None:
        assert ready.wait(PATIENCE)
        stopped.append(consumers[0].stop(PATIENCE))

    consumers.append(q.consume(handle, threads=2, timeout=60))
    ready.set()
    q.put(1)
    assert consumers[0].join(PATIENCE)
    assert stopped == [True]
    assert q.stats().acks == 1


def test_an_exception_of_a_handler_is_logged_and_the_message_redelivered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    q = KeyedQueue[str](retry=Retry(attempts=3, first=0), name="orders")
    attempts: list[int] = []

    def handle(payload: str) -> None:
        attempts.append(current_lease().attempt)
        if payload == "poison":
            raise ValueError("cannot")

    with caplog.at_level(logging.WARNING, "interlock.worker"), q.consume(handle):
        q.put("poison", keys=["a", "b"])
        q.put("behind", keys="a")
        drained(q)
    assert attempts == [1, 2, 3, 1]
    (letter,) = q.dead_letters()
    assert (letter.payload, letter.error) == ("poison", "ValueError: cannot")
    records = [record for record in caplog.records if record.name == "interlock.worker"]
    assert [record.levelname for record in records] == ["WARNING", "WARNING", "ERROR"]
    for attempt, record in enumerate(records, 1):
        assert record.exc_info is not None and record.exc_info[0] is ValueError
        extra = vars(record)
        assert (extra["queue"], extra["id"], extra["attempt"]) == ("orders", 1, attempt)
        assert extra["keys"] == ["a", "b"]
        assert extra["token"] > 0


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_a_handler_that_raises_base_exception_ends_no_thread(error: BaseException) -> None:
    q = KeyedQueue[int](retry=AT_ONCE)
    seen: list[int] = []

    def handle(payload: int) -> None:
        seen.append(payload)
        if len(seen) == 1:
            raise error

    with q.consume(handle):
        q.put(1)
        q.put(2)
        drained(q)
    assert seen == [1, 1, 2]


def test_an_exception_that_is_not_retried_makes_a_dead_letter() -> None:
    q = KeyedQueue[int](retry=Retry(on=(OSError,), first=0, attempts=5))
    seen: list[int] = []

    def handle(payload: int) -> None:
        seen.append(payload)
        raise (OSError if len(seen) == 1 else ValueError)

    with q.consume(handle):
        q.put(1)
        drained(q)
    assert seen == [1, 1]
    assert q.dead_letters()[0].error == "ValueError"


def test_an_exception_that_is_not_retried_holds_the_message_if_the_policy_says_so() -> None:
    q = KeyedQueue[int](retry=Retry(on=(OSError,), then="hold"))

    def handle(payload: int) -> None:
        if payload == 1:
            raise ValueError

    with q.consume(handle):
        q.put(1, keys="a")
        q.put(2, keys="a")
        until(lambda: q.stats().held == 1)
        assert q.stats().waiting == 1
        assert q.skip(1)
        drained(q)


def test_a_handler_settles_its_message_by_a_steering_exception() -> None:
    clock = ManualClock()
    q = KeyedQueue[str](retry=AT_ONCE, clock=clock)
    seen: list[str] = []

    def handle(payload: str) -> None:
        seen.append(payload)
        if payload == "bad":
            raise Reject("malformed")
        if len(seen) == 1:
            raise RetryAfter(30)

    with q.consume(handle):
        q.put("late", keys="a")
        until(lambda: q.stats().backing_off)
        q.put("bad", keys="b")
        until(lambda: q.stats().dead)
        clock.advance(30)
        drained(q)
    assert seen == ["late", "bad", "late"]
    assert q.dead_letters()[0].error == "malformed"


def test_a_lease_that_is_lost_while_its_handler_runs_is_not_settled_by_it() -> None:
    q = KeyedQueue[int](retry=AT_ONCE)
    lost: list[bool] = []

    def handle(payload: int) -> None:
        lease = current_lease()
        if lease.attempt == 1:
            q.revoke(lease.id)
        lost.append(lease.lost)

    with q.consume(handle):
        q.put(1)
        drained(q)
    assert lost == [True, False]
    assert q.stats().acks == 1


def test_a_handler_that_never_returns_loses_its_lease_and_is_listed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    q = KeyedQueue[int](retry=AT_ONCE)
    go_on = threading.Event()
    lost: list[bool] = []

    def hang(payload: int) -> None:
        if payload == 1 and current_lease().attempt == 1:
            assert go_on.wait(PATIENCE)
            lost.append(current_lease().lost)

    with q.consume(hang, threads=2, timeout=0.01):
        q.put(1, keys="a")
        q.put(2, keys="a")
        drained(q)
        assert q.stats().acks == 2
        go_on.set()
    assert lost == [True]
    # On a busy machine the other two may take that long too.
    (record,) = [r for r in caplog.records if "go_on.wait" in r.getMessage()]
    assert "its lease is revoked" in record.getMessage()
    assert record.levelname == "ERROR"


def test_a_handler_that_is_quick_keeps_its_lease() -> None:
    q = KeyedQueue[int](retry=AT_ONCE)
    with q.consume(lambda payload: None, threads=2, timeout=1000):
        q.put_many(range(100))
        drained(q)
    stats = q.stats()
    assert (stats.acks, stats.revoked) == (100, 0)


def test_threads_can_be_reserved_for_kinds() -> None:
    q = KeyedQueue[str]()
    go_on = threading.Event()
    names: dict[str, str] = {}

    def slow(payload: str) -> None:
        assert go_on.wait(PATIENCE)

    def quick(payload: str) -> None:
        names[payload] = threading.current_thread().name

    with q.consume(slow, kind="keyed"), q.consume(quick, kind="unkeyed"):
        for n in range(5):
            q.put(f"keyed {n}", keys="a")
        q.put("unkeyed")
        until(lambda: names)
        go_on.set()
        drained(q)
    assert "quick" in names["unkeyed"]


@pytest.fixture
def no_log() -> Iterator[None]:
    """A record of the log would hold the exception, and so the frames of the handler."""
    logger = logging.getLogger("interlock.worker")
    before, logger.disabled = logger.disabled, True
    yield
    logger.disabled = before


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.usefixtures("no_log")
def test_an_idle_consumer_keeps_no_reference_to_the_last_message(raises: bool) -> None:
    class Payload:
        pass

    def handle(payload: Payload) -> None:
        if raises and current_lease().attempt == 1:
            raise ValueError

    q = KeyedQueue[Payload](retry=AT_ONCE)
    with q.consume(handle, timeout=60):
        payload = Payload()
        reference = weakref.ref(payload)
        q.put(payload)
        del payload
        drained(q)
        until(lambda: q._parked() == 1)
        collect()
        assert reference() is None


def test_an_unreferenced_consumer_and_queue_end() -> None:
    q = KeyedQueue[int]()
    q.consume(lambda payload: None)
    reference = weakref.ref(q)
    # It keeps its queue while it runs; after the shutdown nothing is left.
    q.shutdown()
    del q

    def gone() -> bool:
        collect()
        return reference() is None

    until(gone)


@pytest.mark.parametrize("timeout", [None, 60])
def test_a_consumer_that_cannot_start_all_threads_leaves_none_running(
    monkeypatch: pytest.MonkeyPatch, timeout: float | None
) -> None:
    begun: list[threading.Thread] = []
    start = threading.Thread.start

    def third_fails(thread: threading.Thread) -> None:
        if len(begun) == 3:
            raise RuntimeError("can't start new thread")
        start(thread)
        begun.append(thread)

    q: KeyedQueue[int] = KeyedQueue()
    monkeypatch.setattr(threading.Thread, "start", third_fails)
    with pytest.raises(RuntimeError, match="can't start"):
        q.consume(lambda _: None, threads=5, timeout=timeout)
    monkeypatch.undo()
    for thread in begun:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    q.put(1)
    q.get_nowait().ack()


def test_other_getters_and_consumers_share_a_queue() -> None:
    q = KeyedQueue[int]()
    handled: list[int] = []

    def take() -> None:
        while True:
            try:
                with q.get() as payload:
                    handled.append(payload)
            except ShutDown:
                return

    getter = blocked(q, take)
    with q.consume(handled.append), q.consume(handled.append, threads=2):
        q.put_many(range(300))
        drained(q)
        q.shutdown()
    getter.result()
    assert sorted(handled) == list(range(300))


def test_the_signature_is_checked() -> None:
    q = KeyedQueue[int]()
    wrong: list[tuple[type[Exception], dict[str, Any]]] = [
        (TypeError, {"handler": "print"}),
        (TypeError, {"threads": "2"}),
        (TypeError, {"threads": True}),
        (ValueError, {"threads": 0}),
        (TypeError, {"timeout": "1"}),
        (ValueError, {"timeout": -1}),
        (ValueError, {"kind": "all"}),
    ]
    before = set(threading.enumerate())
    for kind, options in wrong:
        (name,) = options
        with pytest.raises(kind, match=name):
            q.consume(**{"handler": print, **options})
    assert set(threading.enumerate()) <= before


def test_a_handler_that_puts_into_its_full_queue_gets_would_deadlock() -> None:
    q = KeyedQueue[int](1, retry=Retry(attempts=1))

    def handle(payload: int) -> None:
        q.put(payload + 1)

    with q.consume(handle):
        q.put(1)
        drained(q)
    (letter,) = q.dead_letters()
    assert letter.error.startswith(WouldDeadlock.__name__)


@pytest.mark.usefixtures("no_log")
def test_an_exception_of_the_handler_is_released() -> None:
    class Holder(Exception):
        pass

    q = KeyedQueue[Callable[[], None]](retry=Retry(attempts=1))
    errors: list[weakref.ref[Holder]] = []

    def fail() -> None:
        error = Holder()
        errors.append(weakref.ref(error))
        raise error

    with q.consume(lambda payload: payload()):
        q.put(fail)
        drained(q)
        until(lambda: q._parked() == 1)
        collect()
        assert errors[0]() is None
