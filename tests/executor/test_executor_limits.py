"""Calls with limit names: N of a name run at once, the others occupy no worker (clause 26)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import pytest

from interlock import KeyedExecutor, Rate, Retry, RetryAfter
from tests.executor.executors import LONG, ByHand, Gate
from tests.support import until


@pytest.fixture
def executor() -> Iterator[KeyedExecutor]:
    with KeyedExecutor(2, limits={"bank": 1, "host:*": 1}) as executor:
        yield executor


@pytest.fixture(params=["threads", "pool"])
def pool(request: pytest.FixtureRequest) -> Iterator[futures.Executor | None]:
    if request.param == "threads":
        yield None
    else:
        with futures.ThreadPoolExecutor(2) as found:
            yield found


def test_a_call_that_waits_for_its_limit_occupies_no_worker(executor: KeyedExecutor) -> None:
    bank, gate = executor.keyed(limit="bank"), Gate("first")
    first = bank.submit(gate)
    others = [bank.submit(str, n) for n in range(5)]
    assert gate.running.wait(LONG)
    # The second worker is free for it, although five calls were submitted before.
    assert executor.submit(str, "mail").result(LONG) == "mail"
    assert not any(other.running() or other.done() for other in others)
    gate.open.set()
    assert [call.result(LONG) for call in [first, *others]] == ["first", *"01234"]


def test_at_most_n_calls_of_a_name_run_at_once() -> None:
    with KeyedExecutor(8, limits={"bank": 3}) as executor:
        together, running, most = threading.Barrier(3), 0, 0
        lock = threading.Lock()

        def call(_: int) -> None:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            # Three are needed at once to pass, and a fourth would be seen.
            together.wait(LONG)
            with lock:
                running -= 1

        list(executor.keyed(limit="bank").map(call, range(30)))
    assert most == 3


def test_each_name_with_a_prefix_is_limited_by_itself(executor: KeyedExecutor) -> None:
    both = threading.Barrier(2)
    calls = [executor.keyed(limit=f"host:{name}").submit(both.wait, LONG) for name in "ab"]
    assert sorted(call.result(LONG) for call in calls) == [0, 1]


def test_a_call_with_several_names_takes_a_slot_of_each_or_of_none(executor: KeyedExecutor) -> None:
    gate = Gate()
    first = executor.keyed(limit="bank").submit(gate)
    assert gate.running.wait(LONG)
    both = executor.keyed(limit=["bank", "host:a"]).submit(str, "both")
    # It would wait for the bank with the slot of the host.
    assert executor.keyed(limit="host:a").submit(str, "host").result(LONG) == "host"
    assert not both.done()
    gate.open.set()
    assert (first.result(LONG), both.result(LONG)) == (None, "both")


def test_the_highest_priority_takes_a_free_slot(executor: KeyedExecutor) -> None:
    order: list[str] = []
    gate = Gate()
    first = executor.keyed(limit="bank").submit(gate)
    assert gate.running.wait(LONG)
    calls = [
        executor.keyed(limit="bank", priority=priority).submit(order.append, name)
        for name, priority in (("low", -1), ("first", 0), ("second", 0), ("high", 1))
    ]
    gate.open.set()
    futures.wait([first, *calls], LONG)
    assert order == ["high", "first", "second", "low"]


def test_a_limit_is_changed_while_calls_wait_for_it(executor: KeyedExecutor) -> None:
    bank, gate = executor.keyed(limit="bank"), Gate()
    first, second = bank.submit(gate), bank.submit(str, "second")
    assert gate.running.wait(LONG)
    until(lambda: executor.queue.stats().limited == 1)
    executor.queue.configure(limits={"bank": 2})
    assert second.result(LONG) == "second"
    gate.open.set()
    first.result(LONG)


def test_explain_and_stats_name_the_full_limit(executor: KeyedExecutor) -> None:
    bank, gate = executor.keyed("account:1", limit="bank"), Gate()
    first: Any = bank.submit(gate)
    waits: Any = executor.keyed(limit="bank").submit(int)
    assert gate.running.wait(LONG)
    until(lambda: executor.queue.stats().limited == 1)
    node, holder = executor.queue.explain(waits.id).nodes
    assert (node.state, holder.id, holder.state) == ("ready", first.id, "leased")
    (full,) = node.limits
    assert (full.name, full.leased, full.most, full.holders) == ("bank", 1, 1, (first.id,))
    assert "waits for a limit: 1 of 1 on bank" in str(executor.queue.explain(waits.id))
    gate.open.set()
    assert waits.result(LONG) == 0
    assert executor.queue.stats().limited == 0


def test_a_call_that_backs_off_has_no_slot() -> None:
    executor = KeyedExecutor(2, limits={"bank": 1}, retry=Retry(2))
    bank = executor.keyed(limit="bank")

    def fail() -> None:
        raise RetryAfter(86_400)

    failing = bank.submit(fail)
    until(lambda: executor.queue.stats().backing_off == 1)
    assert bank.submit(str, "next").result(LONG) == "next"
    executor.shutdown(cancel_futures=True)
    assert failing.cancelled()


def test_a_call_that_waits_for_its_rate_occupies_no_worker(pool: Any) -> None:
    limits = {"api": Rate(1, per=86_400)}
    with KeyedExecutor(2, pool=pool, limits=limits) as executor:
        api = executor.keyed(limit="api")
        first, second = api.submit(str, 1), api.submit(str, 2)
        assert first.result(LONG) == "1"
        until(lambda: executor.queue.stats().limited == 1)
        assert [executor.submit(str, n).result(LONG) for n in range(3)] == ["0", "1", "2"]
        assert not second.running() and not second.done()
        executor.queue.configure(limits={"api": Rate(1_000)})
        assert second.result(LONG) == "2"


@pytest.mark.parametrize("attempt", [True, False])
def test_a_call_that_raises_retry_after_closes_a_limit_name_to_all_calls(
    pool: Any, attempt: bool
) -> None:
    executor = KeyedExecutor(2, pool=pool, retry=Retry(2))

    def call() -> None:
        raise RetryAfter(86_400, attempt=attempt, limit="api")

    refused = executor.submit(call)
    until(lambda: executor.queue.stats().backing_off == 1)
    api: Any = executor.keyed(limit="api").submit(str, "api")
    assert executor.keyed(limit="other").submit(str, "mail").result(LONG) == "mail"
    until(lambda: executor.queue.stats().limited == 1)
    (full,) = executor.queue.explain(api.id).nodes[0].limits
    assert full.name == "api" and full.next_in is not None and full.next_in > 80_000
    executor.shutdown(cancel_futures=True)
    assert refused.cancelled() and api.cancelled()


def test_a_cancelled_call_leaves_its_turn_to_the_next(executor: KeyedExecutor) -> None:
    bank, gate = executor.keyed(limit="bank"), Gate()
    first, second, third = bank.submit(gate), bank.submit(str, "2"), bank.submit(str, "3")
    assert gate.running.wait(LONG)
    assert second.cancel()
    gate.open.set()
    assert (first.result(LONG), third.result(LONG)) == (None, "3")


def test_a_call_that_waits_for_its_limit_is_not_handed_to_a_pool() -> None:
    pool = ByHand()
    with KeyedExecutor(2, pool=pool, limits={"bank": 1}) as executor:
        bank = executor.keyed(limit="bank")
        first, second = bank.submit(str), bank.submit(str)
        mail = executor.submit(str)
        for _ in range(2):
            assert pool.submitted.acquire(timeout=LONG)
        pool.calls[1].set_result("mail")
        assert mail.result(LONG) == "mail" and len(pool.calls) == 2
        pool.calls[0].set_result("first")
        assert pool.submitted.acquire(timeout=LONG)
        pool.calls[2].set_result("second")
        assert (first.result(LONG), second.result(LONG)) == ("first", "second")


# -- map_keyed ------------------------------------------------------------------------------------


def test_map_keyed_takes_the_limit_of_each_item(executor: KeyedExecutor) -> None:
    inside: list[str] = []

    def fetch(url: str) -> str:
        host = url[0]
        assert host not in inside, "two at once"
        inside.append(host)
        inside.remove(host)
        return url

    urls = [f"{host}{n}" for n in range(100) for host in "abc"]
    assert list(executor.map_keyed(fetch, urls, limit=lambda url: f"host:{url[0]}")) == urls


@pytest.mark.parametrize("names", ["bank", ["bank", "host:a"]])
def test_map_keyed_takes_one_limit_for_all_items(executor: KeyedExecutor, names: Any) -> None:
    limit = names if isinstance(names, str) else iter(names)
    gate = Gate()
    first = executor.keyed(limit="bank").submit(gate)
    assert gate.running.wait(LONG)
    results = executor.map_keyed(str, range(3), keys=lambda n: n, limit=limit)
    until(lambda: executor.queue.stats().limited == 3)
    gate.open.set()
    assert (first.result(LONG), list(results)) == (None, ["0", "1", "2"])


# -- Errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "kind", "says"),
    [
        (5, TypeError, "KeyedExecutor(): limits is int; allowed: a mapping of names to numbers"),
        ({"bank": 0}, ValueError, "limits['bank'] is 0; allowed: 1 to 1,000,000,000 (to stop a"),
        ({"bank": True}, TypeError, "limits['bank'] is bool; allowed: int"),
        ({7: 1}, TypeError, "limits has a name that is int; allowed: str"),
        ({"": 1}, ValueError, "limits has the name ''"),
        ({"\ud800": 1}, ValueError, "limits has the name '\\ud800'; allowed: not empty, UTF-8"),
    ],
)
def test_wrong_limits_are_refused(limits: Any, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind) as caught:
        KeyedExecutor(1, limits=limits)
    assert says in str(caught.value) and "KeyedExecutor()" in str(caught.value)


@pytest.mark.parametrize(
    ("limit", "kind", "says"),
    [
        (5, TypeError, "limit is int; allowed: str or an iterable of str"),
        (b"bank", TypeError, "limit is bytes; allowed: str or an iterable of str"),
        (["bank", None], TypeError, "limit is NoneType; allowed: str or an iterable of str"),
        ("", ValueError, "limit is ''; allowed: not empty"),
        ([f"{n}" for n in range(9)], ValueError, "limit has 9 names"),
    ],
)
def test_a_wrong_limit_name_is_refused_at_the_call(
    executor: KeyedExecutor, limit: Any, kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=f"keyed.*: {says}"):
        executor.keyed(limit=limit)
    with pytest.raises(kind, match=f"map_keyed.*: {says}"):
        executor.map_keyed(str, [1], limit=limit)
    with pytest.raises(kind, match=says):
        executor.map_keyed(str, [1], limit=lambda _: limit)
    assert executor.queue.stats().puts == 0


def test_a_view_shows_its_keys_and_limits(executor: KeyedExecutor) -> None:
    view = executor.keyed("a", limit=["host:a", "bank"])
    assert repr(view).endswith(", 0 calls> under keys [b'a'], shared [], limit ['bank', 'host:a']>")
    assert "limit" not in repr(executor.keyed("a")).partition("calls>")[2]
