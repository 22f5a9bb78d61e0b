"""A queue holds each object once, and lets go of it; garbage is collected."""

import contextvars
import gc
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from interlock import AsyncLease, Empty, KeyedQueue, Lease, LeaseLost, Retry, current_lease
from tests.support import blocked, collect


class Payload:
    """Something that can be weakly referenced, and may hold something."""

    def __init__(self, holds: object = None) -> None:
        self.holds = holds


def ends() -> dict[str, Callable[[KeyedQueue[Any], Lease[Any]], object]]:
    """The ways in which a leased message may leave the queue."""
    return {
        "ack": lambda q, lease: lease.ack(),
        "ack_many": lambda q, lease: q.ack_many([lease]),
        "reject": lambda q, lease: (lease.reject("no"), q.requeue(lease.id), q.get().ack()),
        "skip": lambda q, lease: (lease.nack(), q.skip(lease.id)),
        "nack": lambda q, lease: (lease.nack(delay=0), q.get().ack()),
        "release": lambda q, lease: (lease.release(), q.get().ack()),
        "revoke": lambda q, lease: q.revoke(lease.id, then="skip"),
        "cancel": lambda q, lease: (lease.release(), q.cancel(lease.id)),
        "shutdown": lambda q, lease: (lease.release(), q.shutdown(immediate=True)),
    }


@pytest.mark.parametrize("end", ends())
def test_a_payload_is_referenced_once_and_released(end: str) -> None:
    q = KeyedQueue[Payload](retry=Retry(attempts=None, first=60))
    payload = Payload()
    before = sys.getrefcount(payload)
    q.put(payload, keys=["a", "b"], dedup="name")
    assert sys.getrefcount(payload) == before + 1
    lease = q.get()
    assert sys.getrefcount(payload) == before + 2
    ends()[end](q, lease)
    del lease
    assert sys.getrefcount(payload) == before


@pytest.mark.parametrize("call", ["full", "closed", "wrong", "known", "batch"])
def test_a_failed_put_keeps_no_reference(call: str) -> None:
    q = KeyedQueue[Payload](2)
    payload = Payload()
    before = sys.getrefcount(payload)
    q.put(Payload(), dedup="name")
    if call == "full":
        q.put(Payload())
        with pytest.raises(Exception, match="full"):
            q.put(payload, timeout=0.001)
    elif call == "closed":
        q.shutdown()
        with pytest.raises(Exception, match="shut down"):
            q.put(payload)
    elif call == "wrong":
        with pytest.raises(TypeError):
            q.put(payload, keys=1.5)  # type: ignore[arg-type]
    elif call == "known":
        assert q.put(payload, dedup="name") == 1
    else:
        with pytest.raises(Exception, match="full"):
            q.put_many([payload, payload], block=False)
    assert sys.getrefcount(payload) == before


def test_settling_twice_or_dropping_a_lease_leaks_no_reference() -> None:
    q = KeyedQueue[Payload]()
    payload = Payload()
    before = sys.getrefcount(payload)
    q.put(payload)
    lease = q.get()
    lease.ack()
    for settle in (lease.ack, lease.nack, lease.release):
        with pytest.raises(LeaseLost):
            settle()
    del settle, lease
    collect()
    assert sys.getrefcount(payload) == before


def test_a_queue_is_freed_with_its_messages() -> None:
    q = KeyedQueue[Payload]()
    payloads = [Payload() for _ in range(5)]
    references = [weakref.ref(payload) for payload in payloads]
    q.put_many(payloads[:2], keys="a")
    q.put(payloads[2], delay=60)
    q.put(payloads[3])
    q.get(kind="unkeyed").reject("no")
    q.put(payloads[4], barrier=True)
    queue = weakref.ref(q)
    del payloads, q
    assert queue() is None
    assert [reference() for reference in references] == [None] * 5


@pytest.mark.parametrize("state", ["ready", "delayed", "dead", "held", "callable", "lease"])
def test_a_cycle_through_a_queue_is_collected(state: str) -> None:
    q = KeyedQueue[Any](retry=Retry(attempts=1, then="hold"))
    payload = Payload(q)
    freed = weakref.ref(payload)
    if state == "callable":
        payload.holds = q = KeyedQueue[Any](keys=partial(getattr, payload))
    elif state == "delayed":
        q.put(payload, delay=60)
    else:
        q.put(payload, keys="a")
    if state == "dead":
        q.get().reject("no")
    elif state == "held":
        q.get().nack()
    elif state == "lease":
        payload.holds = [q, q.get()]
    queue = weakref.ref(q)
    del q, payload
    with warnings.catch_warnings():
        # For the lease that is part of the cycle.
        warnings.simplefilter("ignore", ResourceWarning)
        collect()
    assert freed() is None
    assert queue() is None


def test_payloads_of_a_live_queue_are_not_collected() -> None:
    q = KeyedQueue[Payload]()
    payload = Payload()
    payload.holds = payload
    reference = weakref.ref(payload)
    q.put(payload)
    del payload
    collect()
    assert reference() is not None
    q.get().ack()
    collect()
    assert reference() is None


def test_the_garbage_collector_visits_a_payload_once() -> None:
    q = KeyedQueue[Any]()
    payload = Payload()
    q.put(payload)
    assert gc.get_referrers(payload).count(q) == 1
    lease = q.get()
    assert q in gc.get_referrers(payload) and lease in gc.get_referrers(payload)
    lease.ack()
    assert q not in gc.get_referrers(payload)


def test_an_entered_lease_without_references_is_collected() -> None:
    q = KeyedQueue[int](retry=Retry(attempts=1))
    q.put(1)

    def forget() -> None:
        # Its context holds it, and it holds what its context is to be reset with.
        q.get().__enter__()

    contextvars.Context().run(forget)
    with pytest.warns(ResourceWarning, match="dropped without being settled"):
        collect()
    assert q.stats().dead == 1


def test_an_abandoned_lease_names_its_message_once() -> None:
    q = KeyedQueue[int](name="orders", retry=Retry(attempts=None, first=0))
    q.put(1)
    with pytest.warns(ResourceWarning, match='message 1 in queue "orders"') as caught:
        q.get()
    assert len(caught) == 1
    lease = q.get()
    assert lease.attempt == 2
    lease.ack()


def test_a_thread_that_dies_with_a_lease_gives_it_back() -> None:
    q = KeyedQueue[str](retry=Retry(attempts=None, first=0))
    q.put("payload", keys="a")
    died: list[BaseException | None] = []

    def die() -> None:
        lease = q.get()
        raise RuntimeError(lease.payload)

    before, threading.excepthook = threading.excepthook, lambda args: died.append(args.exc_value)
    try:
        thread = threading.Thread(target=die)
        thread.start()
        thread.join()
    finally:
        threading.excepthook = before
    with pytest.raises(Empty):
        q.get_nowait()
    with pytest.warns(ResourceWarning, match="message 1"):
        # The exception held the thread's frames, and so the lease.
        died.clear()
    lease = q.get_nowait()
    assert (lease.payload, lease.attempt) == ("payload", 2)
    lease.ack()


def test_a_get_that_waits_on_another_thread_is_woken_by_an_abandoned_lease() -> None:
    q = KeyedQueue[str](retry=Retry(attempts=None, first=0))
    q.put("payload", keys="a")
    leases = [q.get()]
    getter = blocked(q, q.get)
    with pytest.warns(ResourceWarning):
        leases.clear()
    lease = getter.result()
    assert lease.attempt == 2
    lease.ack()


def test_a_warning_turned_into_an_error_is_not_raised_in_unrelated_code() -> None:
    q = KeyedQueue[int](retry=Retry(attempts=None, first=0))
    q.put(1)
    caught: list[Any] = []
    before, sys.unraisablehook = sys.unraisablehook, caught.append
    try:
        # As pytest is set up here, a warning is an error.
        q.get()
    finally:
        sys.unraisablehook = before
    assert [each.exc_type for each in caught] == [ResourceWarning]
    q.get().ack()


def test_the_current_lease_is_released_after_its_block() -> None:
    q = KeyedQueue[Payload]()
    payload = Payload()
    before = sys.getrefcount(payload)
    q.put(payload)
    with q.get() as given:
        assert given is payload
        assert current_lease().payload is payload
    del given
    assert sys.getrefcount(payload) == before


def test_a_failed_handler_keeps_no_reference_to_its_message() -> None:
    q = KeyedQueue[Payload](retry=Retry(attempts=1))
    payload = Payload()
    before = sys.getrefcount(payload)
    q.put(payload)
    try:
        with q.get():
            raise RuntimeError("no")
    except RuntimeError:
        pass
    assert [letter.payload for letter in q.dead_letters()] == [payload]
    q.requeue(1)
    q.get().ack()
    collect()
    assert sys.getrefcount(payload) == before


def test_memory_of_a_drained_queue_does_not_grow() -> None:
    import tracemalloc

    q = KeyedQueue[int]()

    def rounds(count: int) -> None:
        for n in range(count):
            q.put(n, keys=(f"key {n % 50}", "all"), dedup=None)
            q.get().ack()

    rounds(2000)
    collect()
    tracemalloc.start()
    rounds(100)
    first, _ = tracemalloc.get_traced_memory()
    rounds(10_000)
    collect()
    second, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert second < first + 20_000


def test_an_async_lease_is_an_instance_of_its_own_class() -> None:
    q = KeyedQueue[int]()
    q.put(1)
    lease = q.aio.get_nowait()
    assert type(lease) is AsyncLease
    with pytest.raises(TypeError, match="async with"):
        lease.__enter__()
    reference = sys.getrefcount(lease)
    lease.ack().close()
    assert sys.getrefcount(lease) == reference
