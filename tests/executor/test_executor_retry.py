"""An executor with a retry policy: in place, and then dead or held; and calls that are revoked."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any, Literal

import pytest

from interlock import (
    KeyedExecutor,
    Lease,
    LeaseLost,
    Reject,
    Retry,
    RetryAfter,
    current_lease,
)
from tests.executor.executors import LONG, Gate, busy, threads_of

AT_ONCE = Retry(attempts=3, first=0)


class Flaky:
    """Raises this number of times, then returns the number of its attempts."""

    def __init__(self, failures: int, kind: type[BaseException] = ValueError) -> None:
        self.failures = failures
        self.kind = kind
        self.calls = 0
        self.raised: list[BaseException] = []

    def __call__(self) -> int:
        self.calls += 1
        if self.calls <= self.failures:
            self.raised.append(self.kind(f"attempt {self.calls}"))
            raise self.raised[-1]
        return self.calls


def test_a_failed_call_is_retried_in_its_original_position() -> None:
    order: list[str] = []
    flaky = Flaky(2)

    def call() -> int:
        order.append("flaky")
        return flaky()

    with KeyedExecutor(4, retry=AT_ONCE) as executor:
        with busy(executor, "a"):
            first = executor.submit_keyed("a", call)
            second = executor.submit_keyed("a", order.append, "second")
        assert first.result(LONG) == 3 and second.result(LONG) is None
    assert order == ["flaky"] * 3 + ["second"]


def test_a_handler_sees_its_attempt_and_a_rising_token() -> None:
    seen: list[tuple[int, int, int]] = []

    def call() -> None:
        lease = current_lease()
        seen.append((lease.id, lease.attempt, lease.token))
        raise ValueError

    with KeyedExecutor(2, retry=AT_ONCE) as executor:
        future = executor.submit_keyed("a", call)
        future.exception(LONG)
    ids, attempts, tokens = zip(*seen, strict=True)
    assert set(ids) == {future.id} and attempts == (1, 2, 3)
    assert list(tokens) == sorted(set(tokens))


def test_after_the_last_attempt_the_future_has_the_last_exception() -> None:
    flaky = Flaky(9)
    with KeyedExecutor(2, retry=AT_ONCE) as executor:
        future = executor.submit_keyed("a", flaky)
        assert future.exception(LONG) is flaky.raised[2]
        assert executor.submit_keyed("a", int).result(LONG) == 0
        assert executor.queue.dead_letters() == []


@pytest.mark.parametrize("pool", [None, "threads"])
def test_many_failed_calls_leave_no_dead_letters(pool: str | None) -> None:
    # More than a queue keeps dead letters: the next one would be held, and its future never end.
    with futures.ThreadPoolExecutor(1) as threads:
        executor = KeyedExecutor(1, retry=Retry(attempts=1), pool=threads if pool else None)
        logging.getLogger("interlock.queue").disabled = True
        try:
            with executor:
                calls = [executor.submit_keyed("a", Flaky(1)) for _ in range(10_001)]
                kinds = {type(call.exception(LONG)) for call in calls}
                assert kinds == {ValueError}
        finally:
            logging.getLogger("interlock.queue").disabled = False
        stats = executor.queue.stats()
        assert (stats.dead, stats.held, stats.unsettled) == (0, 0, 0)


def test_an_exception_not_in_the_policy_holds_the_call_if_the_policy_says_so() -> None:
    with KeyedExecutor(1, retry=Retry(first=0, on=(OSError,), then="hold")) as executor:
        future, behind = held(executor, Flaky(1))
        assert executor.queue.retry(future.id)
        assert future.result(LONG) == 2 and behind.result(LONG) == 0


def test_an_exception_not_in_the_policy_fails_the_call_at_once() -> None:
    policy = Retry(attempts=3, first=0, on=(OSError,))
    with KeyedExecutor(1, retry=policy) as executor:
        for flaky in (Flaky(9, KeyError), Flaky(9, SystemExit)):
            assert executor.submit_keyed("a", flaky).exception(LONG) is flaky.raised[0]
            assert flaky.calls == 1
        flaky = Flaky(1, ConnectionError)
        assert executor.submit_keyed("a", flaky).result(LONG) == 2
        assert executor.queue.dead_letters() == []


@pytest.mark.parametrize("pool", [None, "threads"])
@pytest.mark.parametrize("then", ["dead", "hold"])
def test_a_rejected_call_is_not_retried(pool: str | None, then: Literal["dead", "hold"]) -> None:
    calls = []

    def call() -> None:
        calls.append(current_lease().attempt)
        raise Reject("too large")

    policy = Retry(attempts=3, first=0, then=then)
    with (
        futures.ThreadPoolExecutor(1) as threads,
        KeyedExecutor(1, retry=policy, pool=threads if pool else None) as executor,
    ):
        assert isinstance(executor.submit_keyed("a", call).exception(LONG), Reject)
        assert executor.submit_keyed("a", int).result(LONG) == 0
    assert calls == [1]


@pytest.mark.parametrize("pool", [None, "threads"])
def test_retry_after_retries_a_call_whatever_the_policy(pool: str | None) -> None:
    calls = []

    def call() -> int:
        calls.append(current_lease().attempt)
        if len(calls) == 1:
            raise RetryAfter(0.001)
        return 7

    # By the policy it would wait for an hour, or not be made again at all.
    policy = Retry(attempts=3, first=3600, on=(OSError,))
    with (
        futures.ThreadPoolExecutor(1) as threads,
        KeyedExecutor(1, retry=policy, pool=threads if pool else None) as executor,
    ):
        assert executor.submit_keyed("a", call).result(LONG) == 7
    assert calls == [1, 2]


def test_unlimited_retries_end_when_the_call_succeeds() -> None:
    with KeyedExecutor(1, retry=Retry(attempts=None, first=0)) as executor:
        assert executor.submit(Flaky(500)).result(LONG) == 501


def test_a_backoff_ends_without_another_call() -> None:
    with KeyedExecutor(1, retry=Retry(first=0.01, jitter=False)) as executor:
        assert executor.submit(Flaky(2)).result(LONG) == 3


def test_the_future_is_pending_between_attempts_and_can_be_cancelled() -> None:
    flaky = Flaky(9)
    with KeyedExecutor(1, retry=Retry(first=3600)) as executor:
        future = executor.submit_keyed("a", flaky)
        behind = executor.submit_keyed("a", int)
        executor.submit(int).result(LONG)
        assert not future.running() and not future.done()
        with pytest.raises(futures.TimeoutError):
            future.result(0)
        assert future.cancel() and future.cancelled()
        assert behind.result(LONG) == 0 and flaky.calls == 1


def test_shutdown_can_cancel_calls_in_backoff() -> None:
    with KeyedExecutor(1, retry=Retry(first=3600)) as executor:
        future = executor.submit_keyed("a", Flaky(9))
        executor.submit(int).result(LONG)
        executor.shutdown(cancel_futures=True)
    assert future.cancelled()


HOLD = Retry(attempts=1, then="hold")


def held(executor: KeyedExecutor, flaky: Flaky) -> tuple[Any, Any]:
    future = executor.submit_keyed("a", flaky)
    behind = executor.submit_keyed("a", int)
    executor.submit(int).result(LONG)
    assert executor.queue.explain(future.id).nodes[0].state == "held"
    assert not future.done() and not behind.done()
    return future, behind


def test_a_held_call_is_retried_by_an_operator() -> None:
    with KeyedExecutor(1, retry=HOLD) as executor:
        future, behind = held(executor, Flaky(1))
        assert executor.queue.retry(future.id)
        assert future.result(LONG) == 2 and behind.result(LONG) == 0


def test_a_held_call_that_is_skipped_is_cancelled() -> None:
    with KeyedExecutor(1, retry=HOLD) as executor:
        future, behind = held(executor, Flaky(1))
        told: list[bool] = []
        future.add_done_callback(lambda future: told.append(future.cancelled()))
        assert executor.queue.skip(future.id)
        assert future.cancelled() and told == [True] and behind.result(LONG) == 0


def test_a_held_call_that_is_buried_has_its_exception() -> None:
    flaky = Flaky(1)
    with KeyedExecutor(1, retry=HOLD) as executor:
        future, behind = held(executor, flaky)
        assert executor.queue.bury(future.id)
        assert future.exception(0) is flaky.raised[0] and behind.result(LONG) == 0
        assert executor.queue.dead_letters() == [] and flaky.calls == 1


# -- Revoked --------------------------------------------------------------------------------------


def hung(executor: KeyedExecutor) -> tuple[Gate, Any, list[Lease[Any]]]:
    """A call that does not return before its gate is opened, and its lease."""
    gate = Gate("late")
    leases: list[Lease[Any]] = []

    def call() -> Any:
        leases.append(current_lease())
        return gate()

    future = executor.submit_keyed("a", call)
    assert gate.running.wait(LONG)
    return gate, future, leases


def test_a_skipped_call_is_cancelled_and_frees_its_key_at_once() -> None:
    with KeyedExecutor(2) as executor:
        gate, future, leases = hung(executor)
        behind = executor.submit_keyed("a", str)
        assert not leases[0].lost
        assert executor.queue.revoke(future.id, then="skip")
        assert behind.result(LONG) == ""
        assert future.cancelled() and leases[0].lost
        gate.open.set()
    assert future.cancelled()


def test_a_buried_call_has_lost_its_lease() -> None:
    with KeyedExecutor(2) as executor:
        gate, future, _ = hung(executor)
        assert executor.queue.revoke(future.id, then="dead")
        with pytest.raises(LeaseLost, match=f"message {future.id}"):
            future.result(LONG)
        assert executor.submit_keyed("a", int).result(LONG) == 0
        assert executor.queue.dead_letters() == []
        gate.open.set()


@pytest.mark.parametrize("then", ["retry", "hold"])
def test_a_revoked_call_is_retried_and_the_first_run_is_ignored(
    then: Any, caplog: pytest.LogCaptureFixture
) -> None:
    attempts: list[int] = []
    gates = [Gate("first"), Gate("second")]

    def call() -> Any:
        attempts.append(current_lease().attempt)
        return gates[len(attempts) - 1]()

    with KeyedExecutor(2, retry=AT_ONCE) as executor:
        future: Any = executor.submit_keyed("a", call)
        assert gates[0].running.wait(LONG)
        assert executor.queue.revoke(future.id, then=then)
        if then == "hold":
            gates[0].open.set()
            assert executor.submit_keyed("b", int).result(LONG) == 0
            assert not future.done()
            assert executor.queue.retry(future.id)
        assert gates[1].running.wait(LONG)
        # The first comes back while the second runs.
        gates[0].open.set()
        with pytest.raises(futures.TimeoutError):
            future.result(0)
        gates[1].open.set()
        assert future.result(LONG) == "second" and attempts == [1, 2]


@pytest.mark.parametrize("raises", [False, True])
def test_the_outcome_of_a_revoked_call_is_dropped(raises: bool) -> None:
    with KeyedExecutor(1, retry=Retry(attempts=5, first=3600)) as executor:
        gate, future, leases = hung(executor)
        gate.result = ValueError("late") if raises else "late"
        assert executor.queue.revoke(future.id)
        gate.open.set()
        # Another thread has its place; wait for the one that was left to end.
        assert executor.submit(int).result(LONG) == 0
        assert not future.done() and leases[0].lost
        assert executor.queue.explain(future.id).nodes[0].attempt == 2
        assert executor.queue.skip(future.id)


def test_a_thread_occupied_by_a_revoked_call_is_replaced() -> None:
    with KeyedExecutor(1) as executor:
        gate, future, _ = hung(executor)
        (left,) = threads_of(executor)
        behind = executor.submit_keyed("a", threading.current_thread)
        executor.queue.revoke(future.id, then="skip")
        other = behind.result(LONG)
        assert other is not left
        # Nobody waits for it, and when it comes back it ends.
        executor.shutdown()
        assert left.is_alive() and not other.is_alive()
        gate.open.set()
        left.join(LONG)
        assert not left.is_alive()


def test_a_reserved_thread_occupied_by_a_revoked_call_is_replaced_by_a_reserved_one() -> None:
    with KeyedExecutor(2, unkeyed_workers=1) as executor, busy(executor, "b"):
        gate = Gate()
        future: Any = executor.submit(gate)
        assert gate.running.wait(LONG)
        assert executor.queue.revoke(future.id, then="skip")
        waits = executor.submit_keyed("c", int)
        assert executor.submit(int).result(LONG) == 0
        assert not waits.done()
        gate.open.set()


def test_a_revoke_that_changes_nothing_starts_no_thread() -> None:
    with KeyedExecutor(1) as executor:
        future: Any = executor.submit(int)
        future.result(LONG)
        executor.queue.join(LONG)
        threads = threads_of(executor)
        assert not executor.queue.revoke(future.id) and not executor.queue.revoke(999)
        with pytest.raises(ValueError, match="then is"):
            executor.queue.revoke(future.id, then="other")  # type: ignore[arg-type]
        assert executor.submit(int).result(LONG) == 0
        assert threads_of(executor) == threads


# -- Leases as seen by handlers -----------------------------------------------------------------


@pytest.fixture
def settles() -> list[Callable[[Lease[Any]], object]]:
    return [Lease.ack, Lease.nack, Lease.release, lambda lease: lease.reject("no")]


def test_a_handler_sees_its_lease_and_the_executor_settles_it(
    settles: list[Callable[[Lease[Any]], object]],
) -> None:
    def call() -> Lease[Any]:
        lease = current_lease()
        assert current_lease() is lease and not lease.lost
        assert (set(lease.keys), set(lease.shared), lease.attempt) == ({b"a"}, {b"s"}, 1)
        for settle in settles:
            with pytest.raises(LeaseLost, match="the executor settles the lease"):
                settle(lease)
        return lease

    with KeyedExecutor(1) as executor:
        lease = executor.keyed("a", shared="s").submit(call).result(LONG)
        executor.queue.join(LONG)
        assert not lease.lost and lease.keys == {b"a"}
        assert (lease.queue, lease.id) == (executor.queue.name, 1)
        assert executor.queue.stats().acks == 1


def test_there_is_no_lease_outside_of_a_handler() -> None:
    with KeyedExecutor(1) as executor:
        future = executor.submit(current_lease)
        assert future.result(LONG) is not None
    with pytest.raises(LookupError):
        current_lease()


def test_failures_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.WARNING, "interlock.queue"),
        KeyedExecutor(1, retry=Retry(attempts=2, first=0)) as executor,
    ):
        executor.submit(Flaky(9)).exception(LONG)
        executor.queue.join(LONG)
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]
    assert "message 1 failed for good at attempt 2 (ValueError: attempt 2)" in caplog.text
