"""A settled lease is used again for another message: nothing of the first one is left in it."""

import asyncio
import copy
import gc
import os
import pickle
import sys
import tracemalloc
import types
import warnings
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from interlock import AsyncLease, KeyedQueue, Lease, LeaseLost, current_lease
from tests.support import Running, collect, python

KEPT = 64
"""The number of leases of a class that are kept at most."""


def fresh(q: KeyedQueue[Any], of: type) -> Any:
    """The next message's lease, of the class for threads or that for coroutines."""
    if of is Lease:
        return q.get()
    try:
        q.aio.get().send(None)
    except StopIteration as stopped:
        return stopped.value
    raise AssertionError("it waits")


def ack(lease: Any) -> None:
    """Settles at once in both classes; what that of coroutines gives need not be awaited."""
    lease.ack()


def used_again(q: KeyedQueue[Any], last: list[Any], of: type) -> Any:
    """The lease of the next message, in the memory of the last one, which has no other
    reference."""
    # The exception may still refer to it, and the pool may be full.
    collect()
    spare = KeyedQueue[int]()
    spare.put(0)
    makes_room = fresh(spare, of)
    ack(makes_room)
    place = id(last[0])
    last.clear()
    # The one that was dropped last is taken first.
    again = fresh(q, of)
    assert id(again) == place, "it was not used again"
    assert type(again) is of and type(makes_room) is of
    return again


both = pytest.mark.parametrize("of", [Lease, AsyncLease])


class Payload:
    """Something that can be seen to go."""


def enter(lease: Any) -> None:
    if type(lease) is Lease:
        with lease:
            assert current_lease() is lease
    else:

        async def handle() -> None:
            async with lease:
                assert current_lease() is lease

        asyncio.run(handle())


def ack_twice(lease: Any) -> None:
    lease.ack()
    with pytest.raises(LeaseLost):
        lease.ack()


ENDS: dict[str, Callable[[Any], object]] = {
    "acked": ack,
    "acked twice": ack_twice,
    "nacked": lambda lease: lease.nack(delay=100),
    "rejected": lambda lease: lease.reject("no"),
    "released": lambda lease: lease.release(),
    "extended": lambda lease: (lease.extend(100), lease.ack()),
    "its keys were read": lambda lease: (lease.keys, lease.shared, lease.ack()),
    "entered": enter,
}


@both
@pytest.mark.parametrize("end", ENDS)
def test_a_reused_lease_object_has_nothing_of_the_previous_lease(end: str, of: type) -> None:
    q, other = KeyedQueue[Any](lease=60), KeyedQueue[Any](name="another", lease=60)
    for n in range(7):
        other.put(n)
        ack(fresh(other, of))
    q.put("first", keys=["a", "b"], shared=["c"])
    lease = fresh(q, of)
    if end == "nacked":
        lease.nack(delay=0)
        lease = fresh(q, of)
        assert lease.attempt == 2
    token = lease.token
    ENDS[end](lease)
    other.put("second")
    last = [lease]
    del lease
    again = used_again(other, last, of)
    assert (again.queue, again.payload, again.id) == ("another", "second", 8)
    assert again.attempt == 1 and again.token != token
    assert again.keys == frozenset() and again.shared == frozenset()
    assert not again.lost
    with pytest.raises(LookupError):
        current_lease()
    ack(again)
    assert again.keys == frozenset() and not again.lost


@both
def test_a_lost_lease_does_not_affect_the_next_one(of: type) -> None:
    q = KeyedQueue[Any]()
    id_ = q.put("lost", keys="k")
    lease = fresh(q, of)
    assert q.revoke(id_, "skip")
    try:
        ack(lease)
    except LeaseLost:
        assert lease.lost
    else:
        raise AssertionError("it was not lost")
    q.put("next", shared="s")
    last = [lease]
    del lease
    again = used_again(q, last, of)
    assert not again.lost and again.payload == "next"
    assert again.keys == frozenset() and again.shared == {b"s"}
    ack(again)
    assert again.shared == {b"s"} and not again.lost


@pytest.mark.parametrize("settle", ["ack", "nack", "reject", "release"])
def test_a_refusal_that_was_handled_inside_is_not_raised_again(settle: str) -> None:
    q = KeyedQueue[str]()
    id_ = q.put("a", keys="k")
    with q.get() as payload:
        assert payload == "a" and q.revoke(id_, "skip")
        lease = current_lease()
        arguments = ("no",) if settle == "reject" else ()
        with pytest.raises(LeaseLost):
            getattr(lease, settle)(*arguments)
    assert lease.lost


@both
def test_a_reused_lease_object_does_not_keep_attempt_and_keys(of: type) -> None:
    q = KeyedQueue[Any]()
    q.put("x", keys=("a", "b", "c"))
    lease = fresh(q, of)
    lease.nack(delay=0)
    again = fresh(q, of)
    assert again.attempt == 2 and again.keys == {b"a", b"b", b"c"}
    ack(again)
    del lease
    q.put("y", keys="d")
    last = [again]
    del again
    once = used_again(q, last, of)
    assert once.attempt == 1 and once.keys == {b"d"}
    # Read after the settlement, which is when they are known here only.
    ack(once)
    assert once.keys == {b"d"}


@both
def test_a_payload_is_released_with_its_lease(of: type) -> None:
    q = KeyedQueue[Any]()
    payload = Payload()
    gone = weakref.ref(payload)
    q.put(payload)
    del payload
    lease = fresh(q, of)
    ack(lease)
    assert gone() is not None
    del lease
    assert gone() is None


@both
def test_a_queue_is_released_with_its_last_lease(of: type) -> None:
    q = KeyedQueue[Any]()
    gone = weakref.ref(q)
    q.put(1)
    lease = fresh(q, of)
    ack(lease)
    del q
    collect()
    assert gone() is not None and lease.queue
    del lease
    collect()
    assert gone() is None


@both
def test_reusing_leases_leaks_no_reference_to_their_class(of: type) -> None:
    q = KeyedQueue[Any](slow_wait=0)

    def use(n: int, settle: bool) -> None:
        leases = []
        for i in range(n):
            q.put(i)
            leases.append(fresh(q, of))
        for lease in leases:
            if settle:
                ack(lease)

    bases = [base for base in of.__mro__ if base is not object]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for settle in (True, False):
            use(3 * KEPT, settle)
            collect()
            before = [sys.getrefcount(base) for base in bases]
            for _ in range(5):
                use(3 * KEPT, settle)
            collect()
            assert [sys.getrefcount(base) for base in bases] == before


@both
def test_the_garbage_collector_tracks_only_leases_in_use(of: type) -> None:
    """In a process of its own, for gc.unfreeze() would slow the collections of all later tests."""
    ended = python(
        """
import gc, sys
import interlock
from tests.queue.test_lease_recycled import KEPT, ack, fresh

of = getattr(interlock, sys.argv[1])
q = interlock.KeyedQueue()
leases = []

def found():
    return sum(isinstance(it, of) for it in gc.get_objects())

def take():
    for i in range(2 * KEPT):
        q.put(i)
        leases.append(fresh(q, of))

take()
assert all(map(gc.is_tracked, leases))
assert found() == 2 * KEPT, found()
for lease in leases:
    ack(lease)
gc.freeze()
leases.clear()
del lease
gc.unfreeze()
assert found() == 0, found()
take()
gc.collect()
assert [lease.payload for lease in leases] == list(range(2 * KEPT))
for lease in leases:
    ack(lease)
""",
        of.__name__,
    )
    assert ended.returncode == 0, ended.stderr


@both
def test_a_settled_lease_in_a_cycle_is_collected_and_used_again(of: type) -> None:
    q = KeyedQueue[Any]()
    goes = []
    for _ in range(3 * KEPT):
        payload = Payload()
        q.put(payload)
        payload.lease = fresh(q, of)  # type: ignore[attr-defined]
        ack(payload.lease)  # type: ignore[attr-defined]
        goes.append(weakref.ref(payload))
        del payload
    collect()
    assert not any(gone() for gone in goes)
    q.put("after")
    lease = fresh(q, of)
    assert lease.payload == "after" and gc.is_tracked(lease)
    ack(lease)


@both
def test_a_payload_destructor_may_use_leases(of: type) -> None:
    """In its destructor, which runs while its own lease is being emptied."""
    q = KeyedQueue[Any]()
    seen: list[Any] = []

    class Busy:
        def __init__(self, depth: int) -> None:
            self.depth = depth

        def __del__(self) -> None:
            if self.depth:
                q.put(Busy(self.depth - 1), keys=str(self.depth))
                lease = fresh(q, of)
                ack(lease)
                seen.append((lease.payload.depth, lease.keys))

    q.put(Busy(20))
    lease = fresh(q, of)
    ack(lease)
    del lease
    assert sorted(seen) == [(n, {str(n + 1).encode()}) for n in range(20)]


@both
def test_a_payload_may_be_a_lease(of: type) -> None:
    q = KeyedQueue[Any]()
    inner: Any = None
    for _ in range(2_000):
        q.put(inner)
        inner = fresh(q, of)
        ack(inner)
    del inner
    q.put("after")
    lease = fresh(q, of)
    assert lease.payload == "after"
    ack(lease)


@both
def test_releasing_a_lease_does_not_change_the_current_exception(of: type) -> None:
    q = KeyedQueue[Any]()

    class Raises:
        def __del__(self) -> None:
            try:
                raise KeyError("another")
            except KeyError:
                pass

    def fail() -> None:
        q.put(Raises())
        lease = fresh(q, of)
        ack(lease)
        raise ZeroDivisionError("the one")

    for _ in range(3):
        with pytest.raises(ZeroDivisionError, match="the one") as raised:
            fail()
        del raised


def test_leases_may_be_released_on_other_threads() -> None:
    q = KeyedQueue[int]()

    def use(leases: list[Lease[int]]) -> None:
        while leases:
            lease = leases.pop()
            lease.ack()
            del lease

    for _ in range(20):
        leases = []
        for i in range(100):
            q.put(i)
            leases.append(q.get())
        threads = [Running(partial(use, leases[n::4])) for n in range(4)]
        del leases
        for thread in threads:
            thread.result()
    assert q.stats().acks == 2_000


@both
def test_a_lease_cannot_be_constructed_or_copied(of: type) -> None:
    q = KeyedQueue[int]()
    q.put(1)
    lease = fresh(q, of)
    ways: list[Callable[[], object]] = [of, partial(object.__new__, of), partial(copy.copy, lease)]
    for make in ways:
        with pytest.raises(TypeError):
            make()
    with pytest.raises(TypeError):
        types.new_class("Mine", (of,))
    with pytest.raises(TypeError):
        pickle.dumps(lease)
    with pytest.raises(TypeError):
        weakref.ref(lease)
    with pytest.raises(AttributeError):
        lease.anything = 1
    ack(lease)


@both
def test_the_payload_of_a_lease_is_read_only(of: type) -> None:
    q = KeyedQueue[object]()
    payload = object()
    q.put(payload)
    lease = fresh(q, of)
    references = sys.getrefcount(payload)
    with pytest.raises(AttributeError):
        lease.payload = 1
    with pytest.raises(AttributeError):
        del lease.payload
    # Often enough for the interpreter to read it in its quickest way.
    assert all(lease.payload is payload for _ in range(100))
    assert sys.getrefcount(payload) == references
    ack(lease)
    assert lease.payload is payload


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_lease_objects_kept_at_a_fork_belong_to_the_child() -> None:
    ended = python(
        """
import os
from interlock import KeyedQueue
q = KeyedQueue()
for i in range(100):
    q.put(i); q.get().ack()
held = [q.put(9), q.get()][1]
child = os.fork()
for i in range(100):
    q.put(i, keys=str(i))
    lease = q.get()
    assert lease.payload == i and lease.keys == {str(i).encode()}
    lease.ack()
if child:
    held.ack()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    )
    assert ended.returncode == 0, ended.stderr


def test_an_asyncio_lease_left_entered_is_not_used_again() -> None:
    """Its context still shows it."""

    async def main() -> None:
        q = KeyedQueue[str]()
        await q.aio.put("a")
        lease = await q.aio.get()
        assert await lease.__aenter__() == "a"
        shown: Any = current_lease()
        assert shown is lease
        del shown
        await lease.ack()
        del lease
        await q.aio.put("b")
        again = await q.aio.get()
        shown = current_lease()
        assert shown is not again and shown.payload == "a"
        await again.ack()

    asyncio.run(main())


def test_reusing_leases_does_not_grow_memory() -> None:
    """No more are kept than are worth it."""
    q = KeyedQueue[int](slow_wait=0)

    def peak() -> None:
        leases = []
        for i in range(5_000):
            q.put(i)
            leases.append(q.get())
        for lease in leases:
            lease.ack()

    peak()
    tracemalloc.start()
    try:
        peak()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(4):
            peak()
        assert tracemalloc.get_traced_memory()[0] - before < 64 * 1024
    finally:
        tracemalloc.stop()
