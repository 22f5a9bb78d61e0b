"""Much of something: messages on one key, keys of one message, lanes, waiters."""

import os
import threading
from collections import Counter

import pytest

from interlock import KeyedQueue
from tests.support import blocked

HOT_PUTS = int(os.environ.get("INTERLOCK_HOT_PUTS", "1000000"))
"""Ten million take about a gigabyte; they were run by hand."""


def quiet_queue() -> KeyedQueue[int]:
    return KeyedQueue[int](warn_depth=0, warn_lane_depth=0, slow_wait=0)


@pytest.mark.watchdog(600)
def test_millions_of_puts_on_one_key_are_delivered_in_order() -> None:
    q = quiet_queue()
    for n in range(HOT_PUTS):
        q.put(n, keys="hot")
    assert q.qsize() == HOT_PUTS
    assert q.hot_keys(1)[0].depth == HOT_PUTS
    # Whatever is ahead, a message with another key is not blocked, and the explanation is quick.
    q.put(-1, keys="cold")
    first = q.get()
    with q.get() as payload:
        assert payload == -1
    last = q.explain(HOT_PUTS)
    assert last.nodes[0].blocked[0].holders == (first.id,)
    first.ack()
    for n in range(1, HOT_PUTS):
        lease = q.get()
        assert lease.payload == n
        lease.ack()
    assert q.empty()


@pytest.mark.watchdog(600)
def test_millions_of_readers_on_one_key_all_become_ready() -> None:
    q = quiet_queue()
    count = HOT_PUTS // 10
    q.put(-1, keys="hot")
    q.put_many(range(count), shared="hot")
    q.put(-2, keys="hot")
    q.get().ack()
    leases = list(q.get_many(count + 1))
    while len(leases) < count:
        leases += q.get_many(count + 1)
    assert [lease.payload for lease in leases] == list(range(count))
    q.ack_many(leases)
    with q.get_nowait() as payload:
        assert payload == -2


@pytest.mark.parametrize("shared", [False, True])
def test_a_message_may_have_4096_keys(shared: bool) -> None:
    q = quiet_queue()
    keys = [f"key {n}" for n in range(4096)]
    one = q.put(1, keys=() if shared else keys, shared=keys if shared else ())
    behind = [q.put(2, keys=key) for key in keys]
    q.put(3, keys=keys)
    lease = q.get()
    assert lease.id == one
    assert len(lease.shared if shared else lease.keys) == 4096
    assert q.stats().waiting == 4097
    lease.ack()
    # Each call readies a thousand.
    assert [q.stats().ready for _ in range(4)] == [2000, 3000, 4000, 4096]
    leases = q.get_many(5000)
    assert sorted(lease.id for lease in leases) == behind
    explained = q.explain(one + 4097, limit=5000)
    assert len(explained.nodes[0].blocked) == 4096
    assert len(str(explained).splitlines()) == 4097
    q.ack_many(leases)
    with q.get_nowait() as payload:
        assert payload == 3


def test_a_key_of_a_kilobyte_is_accepted_and_a_longer_one_refused() -> None:
    q = quiet_queue()
    q.put(1, keys="x" * 1024)
    with pytest.raises(ValueError, match="1024"):
        q.put(1, keys="x" * 1025)
    with q.get() as payload:
        assert payload == 1


def test_a_long_chain_of_messages_with_two_keys_runs_in_order() -> None:
    q = quiet_queue()
    count = 20_000
    for n in range(count):
        q.put(n, keys=[f"key {n}", f"key {n + 1}"])
    # Deeper than Python's own stack, in the core and in the drawing.
    told = 3_000
    explained = q.explain(told, limit=count)
    assert len(explained.nodes) == told and not explained.truncated
    assert len(str(explained).splitlines()) == told
    # Three keys and holders are named for each, and of these 10,000 in all.
    longest = q.explain(count, limit=count)
    assert told < len(longest.nodes) < 10_000 and longest.truncated
    for n in range(count):
        with q.get_nowait() as payload:
            assert payload == n


def test_a_hundred_thousand_lanes_are_each_in_order() -> None:
    q = quiet_queue()
    lanes = 100_000
    for round in range(2):
        for n in range(lanes):
            q.put(round * lanes + n, keys=n)
    seen: Counter[int] = Counter()
    while not q.empty():
        leases = q.get_many(1000)
        for lease in leases:
            lane, turn = lease.payload % lanes, lease.payload // lanes
            assert seen[lane] == turn
            seen[lane] += 1
        q.ack_many(leases)
    assert set(seen.values()) == {2}


def test_hundreds_of_waiting_threads_all_get_a_message() -> None:
    q = quiet_queue()
    threads = 200
    getters = [blocked(q, q.get, beside=n) for n in range(threads)]
    assert q._parked() == threads
    started = threading.active_count()
    q.put_many(range(threads), keys=lambda n: f"key {n}")
    leases = [getter.result() for getter in getters]
    assert sorted(lease.payload for lease in leases) == list(range(threads))
    assert started > threads
    q.ack_many(leases)
