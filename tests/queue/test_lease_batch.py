"""The result of ``get_many``: a sequence of leases, each made when it is asked for."""

import asyncio
import collections.abc
import gc
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from interlock import (
    AsyncLease,
    AsyncLeaseBatch,
    KeyedQueue,
    Lease,
    LeaseBatch,
    LeaseLost,
    Retry,
    _core,
    current_lease,
)
from interlock.testing import ManualClock
from tests.support import collect, python

AT_ONCE = Retry(attempts=None, first=0)


def of_threads(q: KeyedQueue[Any], limit: int) -> Any:
    return q.get_many(limit, block=False)


def of_coroutines(q: KeyedQueue[Any], limit: int) -> Any:
    async def take() -> Any:
        return await q.aio.get_many(limit, timeout=0)

    return asyncio.run(take())


Take = Callable[[KeyedQueue[Any], int], Any]
both = pytest.mark.parametrize("take", [of_threads, of_coroutines])


def filled(count: int = 5, **options: Any) -> KeyedQueue[Any]:
    q = KeyedQueue[Any](retry=AT_ONCE, **options)
    q.put_many(range(count), each_keys=[f"key {n}" for n in range(count)])
    return q


@both
def test_a_batch_is_a_sequence_of_leases(take: Take) -> None:
    q = filled()
    batch: Any = take(q, 9)
    kind, lease_kind = (LeaseBatch, Lease) if take is of_threads else (AsyncLeaseBatch, AsyncLease)
    assert type(batch) is kind
    batch = cast("Any", batch)
    assert issubclass(kind, collections.abc.Sequence)
    assert batch and len(batch) == 5
    leases = list(batch)
    assert [type(lease) for lease in leases] == [lease_kind] * 5
    assert [lease.payload for lease in leases] == batch.payloads == [0, 1, 2, 3, 4]
    assert [batch[n] for n in range(5)] == leases == batch[:] == [batch[n] for n in range(-5, 0)]
    assert (batch[1:3], batch[::-2], batch[7:]) == (leases[1:3], leases[::-2], leases[7:])
    assert list(reversed(batch)) == leases[::-1]
    first, *rest = batch
    assert [first, *rest] == leases
    assert first in batch and batch.index(rest[2]) == 3 and batch.count(first) == 1
    assert None not in batch and batch.count(7) == 0
    assert batch + leases == batch + batch == leases + batch == leases * 2
    more = leases[:1]
    more += batch
    assert more == leases[:1] + leases
    for wrong in (5, -6, 10**30):
        with pytest.raises(IndexError):
            batch[wrong]
    for other in ("a", None, 1.0):
        with pytest.raises(TypeError):
            batch[other]
    with pytest.raises(ValueError, match="not of this batch"):
        batch.index(first, 1)
    with pytest.raises((TypeError, AttributeError)):
        batch[0] = first
    assert "5 messages" in repr(batch) and q.name in repr(batch)
    q.ack_many(batch)


@both
def test_indexing_a_batch_returns_the_same_lease_each_time(take: Take) -> None:
    q = filled()
    batch = take(q, 9)
    assert batch[1] is batch[1] is batch[1:2][0] is list(batch)[1]
    assert len({id(lease) for lease in batch}) == 5
    assert sorted(lease.id for lease in batch) == [1, 2, 3, 4, 5]
    assert len({lease.token for lease in batch}) == 5
    q.ack_many(batch)


def test_payloads_returns_a_new_list() -> None:
    q = filled(3)
    batch = q.get_many(9)
    batch.payloads.clear()
    assert batch.payloads == [0, 1, 2] and batch.payloads is not batch.payloads
    q.ack_many(batch)
    assert batch.payloads == [0, 1, 2]


@both
def test_a_lease_of_a_batch_is_entered_and_settled_like_any_other(take: Take) -> None:
    q = filled(4)
    batch = take(q, 9)
    if take is of_threads:
        for lease in batch[:2]:
            with lease as payload:
                assert payload == lease.payload and current_lease() is lease
        with pytest.raises(LookupError, match="no"), batch[2]:
            raise LookupError("no")
    else:

        async def work() -> None:
            for lease in batch[:2]:
                async with lease as payload:
                    assert payload == lease.payload
            await batch[2].nack()

        asyncio.run(work())
    stats = q.stats()
    assert (stats.acks, stats.retries, stats.leased) == (2, 1, 1)
    with pytest.raises(LeaseLost, match="message 1 "):
        q.ack_many(batch)
    assert (q.stats().acks, q.stats().leased) == (3, 0)


@both
def test_a_batch_is_settled_by_one_call(take: Take) -> None:
    q = filled()
    q.put(5, keys="key 1", shared="shared")
    batch = take(q, 9)
    q.ack_many(batch)
    assert (q.stats().acks, q.unfinished_tasks) == (5, 1)
    # Made afterwards, a lease knows what it knew, and that it is settled.
    assert [set(lease.keys) for lease in batch] == [{b"key %d" % n} for n in range(5)]
    assert not any(lease.lost or lease.shared for lease in batch)
    assert [lease.attempt for lease in batch] == [1] * 5
    for settle in (lambda: q.ack_many(batch), lambda: batch[3].ack(), lambda: batch[4].nack()):
        with pytest.raises(LeaseLost):
            settle()
    batch = take(q, 9)
    q.ack_many(batch)
    assert (set(batch[0].keys), set(batch[0].shared)) == ({b"key 1"}, {b"shared"})
    assert q.unfinished_tasks == 0


@both
def test_a_settled_batch_shows_the_keys_of_each_message(take: Take) -> None:
    q = KeyedQueue[int]()
    named = [(), ("a",), ("b", "c", "d"), ("e", "f"), (), ("g", "h"), ("i",), ("j",)]
    q.put_many(range(8), each_keys=named)
    batch = take(q, 8)
    # Some leases are made before, and of some the keys are read before; one message is lost.
    made = [batch[at] for at in (0, 2, 3, 6)]
    assert (made[2].keys, made[3].keys) == ({b"e", b"f"}, {b"i"})
    assert q.revoke(6, "skip")
    with pytest.raises(LeaseLost):
        q.ack_many(batch)
    shown = [set(lease.keys) for at, lease in enumerate(batch) if at != 5]
    assert shown == [{key.encode() for key in keys} for at, keys in enumerate(named) if at != 5]


@both
def test_settling_a_batch_reports_leases_already_settled_or_lost(take: Take) -> None:
    for asked in ((), (0,), (1, 2), (0, 1, 2, 3, 4)):
        q = filled()
        batch = take(q, 9)
        kept = [batch[n] for n in asked]
        assert q.revoke(3, "skip") and q.revoke(5, "skip")
        with pytest.raises(LeaseLost, match="message 3 "):
            q.ack_many(batch)
        assert (q.stats().acks, q.unfinished_tasks) == (3, 0)
        assert [lease.lost for lease in batch] == [False, False, True, False, True]
        assert [batch[n] for n in asked] == kept
        assert [set(lease.keys) for lease in batch[:2]] == [{b"key 0"}, {b"key 1"}]


def test_settling_a_batch_reports_leases_settled_one_by_one() -> None:
    q = filled()
    batch = q.get_many(9)
    batch[1].ack()
    batch[3].release()
    with pytest.raises(LeaseLost, match="message 2 "):
        q.ack_many(batch)
    assert (q.stats().acks, q.qsize()) == (4, 1)


@both
def test_expired_leases_of_a_batch_are_lost(take: Take) -> None:
    clock = ManualClock()
    q = filled(lease=5, clock=clock)
    batch = take(q, 9)
    batch[1].extend(20)
    clock.advance(6)
    assert [lease.lost for lease in batch[:2]] == [True, False]
    with pytest.raises(LeaseLost, match="message 1 "):
        q.ack_many(batch)
    assert [lease.lost for lease in batch] == [True, False, True, True, True]
    again = take(q, 9)
    assert [lease.attempt for lease in again] == [1] * 4
    q.ack_many(again)


@both
def test_a_batch_dropped_unsettled_nacks_each_message(take: Take) -> None:
    q = filled()
    batch = take(q, 9)
    lease = batch[1]
    if take is of_threads:
        batch[2].ack()
    q.revoke(5, "skip")
    open_now = 2 if take is of_threads else 3
    kept = [batch]
    del batch
    with pytest.warns(ResourceWarning, match=rf"message 1 and {open_now - 1} more in queue"):
        kept.clear()
    assert q.stats().retries == open_now
    # The lease that was asked for is still there, and its caller's.
    assert not lease.lost
    kept = [lease]
    del lease
    with pytest.warns(ResourceWarning, match=r"the lease of message 2 "):
        kept.clear()
    assert q.stats().retries == open_now + 1
    kept = [take(q, 1)]
    with pytest.warns(ResourceWarning, match=r"the lease of message 1 in"):
        kept.clear()
    batch = take(q, 9)
    q.ack_many(batch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del batch
        collect()


@pytest.mark.filterwarnings("ignore:the leases? of message:ResourceWarning")
@both
def test_the_garbage_collector_sees_what_a_batch_holds(take: Take) -> None:
    class Payload:
        pass

    for ask in (False, True):
        q = KeyedQueue[Any](retry=AT_ONCE)
        payload = Payload()
        q.put(payload)
        q.put(7)
        batch = take(q, 9)
        payload.batch = batch  # type: ignore[attr-defined]
        if ask:
            payload.lease = batch[0]  # type: ignore[attr-defined]
        q.ack_many(batch)
        gone = weakref.ref(payload)
        assert payload in gc.get_referents(batch) and q in gc.get_referents(batch)
        del batch, payload
        collect()
        assert gone() is None
        # One that is not settled: the whole circle goes, its queue too.
        payload = Payload()
        q.put(payload)
        payload.batch = take(q, 9)  # type: ignore[attr-defined]
        payload.q = q  # type: ignore[attr-defined]
        gone = weakref.ref(payload)
        del payload, q
        collect()
        assert gone() is None


def test_code_run_by_acking_a_batch_may_read_its_leases() -> None:
    q = filled(3)
    batch = q.get_many(9)
    seen: list[Any] = []

    def called() -> None:
        seen.append([(lease.lost, set(lease.keys)) for lease in batch])

    q.put(9, keys="key 0")
    waiter = _core.Waiter(q, called)
    assert waiter.get("any") is None
    q.ack_many(batch)
    assert seen == [[(False, {b"key 0"}), (False, {b"key 1"}), (False, {b"key 2"})]]
    lease = waiter.get("any")
    assert lease is not None
    lease.ack()


def test_threads_may_index_and_settle_a_batch_at_the_same_time() -> None:
    for _ in range(20):
        q = filled(64)
        batch = q.get_many(64)
        lost: list[int] = []

        def work(batch: LeaseBatch[Any] = batch, lost: list[int] = lost) -> None:
            for lease in batch:
                try:
                    lease.ack()
                except LeaseLost:
                    lost.append(lease.id)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (q.stats().acks, len(lost)) == (64, 128)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_batch_in_a_forked_child_belongs_to_the_parent() -> None:
    program = """
import os, warnings
warnings.simplefilter("error")
from interlock import KeyedQueue, LeaseLost
q = KeyedQueue()
q.put_many(range(4))
first, second = q.get_many(2), q.get_many(2)
pid = os.fork()
if not pid:
    try:
        q.ack_many(first)
    except LeaseLost:
        pass
    else:
        os._exit(1)
    del second
    os._exit(0 if q.unfinished_tasks == 0 else 2)
assert os.waitpid(pid, 0)[1] == 0
q.ack_many(first)
q.ack_many(second)
assert q.stats().acks == 4
"""
    done = python(program)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_interpreter_exits_cleanly_with_unsettled_batches() -> None:
    program = """
import sys
from interlock import KeyedQueue
q = KeyedQueue()
q.put_many(range(9), each_keys=[str(n) for n in range(9)])
kept = q.get_many(3)
lease = q.get_many(3)[1]
class Last:
    def __del__(self):
        print(len(kept), kept.payloads)
sys.modules["last"] = Last()
q.last = q.get_many(3)
print("end")
"""
    done = python(program)
    assert done.returncode == 0 and "end" in done.stdout, done.stderr


def test_a_dropped_batch_is_nacked_even_if_its_warning_raises() -> None:
    q = filled(3, slow_wait=0)
    iterator: Iterator[int] = iter([])
    with pytest.raises(TypeError):
        q.ack_many(7)  # type: ignore[arg-type]
    q.ack_many(iterator)  # type: ignore[arg-type]
    batch = q.get_many(9)
    other = KeyedQueue[Any]()
    # A lease knows its queue.
    other.ack_many(batch)
    assert q.stats().acks == 3
