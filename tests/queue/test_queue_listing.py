"""``messages()``: pages of a large queue, and of one whose first message is old."""

from __future__ import annotations

from interlock import KeyedQueue


def test_pages_of_a_large_queue_list_every_message() -> None:
    q: KeyedQueue[int] = KeyedQueue(slow_wait=0, warn_depth=0)
    ids = q.put_many(range(20_000))
    told: list[int] = []
    while page := q.messages(999, after=told[-1] if told else None):
        told += [one.id for one in page]
    assert told == ids


def test_a_message_far_behind_an_old_one_is_found() -> None:
    q: KeyedQueue[int] = KeyedQueue(slow_wait=0)
    old = q.put(0, keys="old")
    lease = q.get()
    # The range of ids is so wide that it is better to visit all messages than all numbers.
    for n in range(150_000):
        q.put(n)
        q.get().ack()
    young = q.put_many([1, 2, 3], keys="young")
    assert [one.id for one in q.messages()] == [old, *young]
    assert [one.id for one in q.messages(2, after=old)] == young[:2]
    assert [one.id for one in q.messages(1, key="young")] == young[:1]
    assert [one.id for one in q.messages(state="leased")] == [old]
    lease.ack()


def test_a_purge_drops_thousands_of_messages() -> None:
    q: KeyedQueue[int] = KeyedQueue(slow_wait=0, warn_depth=0, warn_lane_depth=0, maxdead=5_000)
    q.put_many(range(5_000), keys="one")
    lease = q.get()
    assert q.purge() == 4_999
    assert [one.id for one in q.messages()] == [lease.id]
    lease.ack()
    for n in range(3_000):
        q.put(n)
        q.get().reject("bad")
    assert q.purge("dead") == 3_000
    assert q.stats().dead == 0
