"""Clause 2: two conflicting messages are never leased at the same time."""

import threading
from collections import Counter
from random import Random

from interlock import Empty, LeaseLost, ShutDown
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial, raises


@clause(2)
async def two_writers_of_a_key_never_run_together(t: Trial) -> None:
    q = t.queue()
    await q.put(1, keys="a")
    await q.put(2, keys="a")
    first = await q.one()
    with raises(Empty):
        await q.get_nowait()
    await first.ack()
    assert (await q.one()).payload == 2


@clause(2)
async def readers_of_a_key_run_together(t: Trial) -> None:
    q = t.queue()
    for n in range(4):
        await q.put(n, shared="a")
    assert await q.payloads() == [0, 1, 2, 3]


@clause(2)
async def a_writer_waits_for_every_reader(t: Trial) -> None:
    q = t.queue()
    await q.put(shared="a")
    await q.put(shared="a")
    await q.put("writer", keys="a")
    first, second = await q.ready()
    await second.ack()
    assert await q.payloads() == []
    await first.ack()
    assert (await q.one()).payload == "writer"


@clause(2)
async def a_reader_waits_for_a_writer(t: Trial) -> None:
    q = t.queue()
    await q.put(keys="a")
    await q.put("reader", shared="a")
    writer = await q.one()
    await writer.ack()
    assert (await q.one()).payload == "reader"


@clause(2)
async def one_key_in_common_is_enough(t: Trial) -> None:
    q = t.queue()
    await q.put(1, keys=["a", "b"], shared="c")
    await q.put(2, keys=["c", "d"])
    await q.put(3, keys=["e"], shared="b")
    assert (await q.one()).payload == 1


@clause(2)
async def one_batch_of_leases_holds_no_conflict(t: Trial) -> None:
    q = t.queue()
    await q.put_many(["a1", "a2", "b1", "c1", "b2"], keys=lambda payload: payload[0])
    leases = await q.get_many(10)
    assert [lease.payload for lease in leases] == ["a1", "b1", "c1"]


@clause(2)
async def a_settling_that_fails_opens_nothing(t: Trial) -> None:
    q = t.queue()
    await q.put(1, keys="a")
    await q.put(2, keys="a")
    first = await q.one()
    await first.release()
    again = await q.one()
    assert again.payload == 1
    with raises(LeaseLost):
        await first.ack()
    assert await q.payloads() == []


@clause(2)
async def consumers_side_by_side_never_overlap(t: Trial) -> None:
    q = t.queue()
    random = Random(2)
    total = 600
    for n in range(total):
        await q.put(
            n,
            keys=random.sample("abcd", random.randint(0, 2)),
            shared=random.sample("cdef", random.randint(0, 2)),
        )
    await q.shutdown()
    lock = threading.Lock()
    writing: Counter[bytes] = Counter()
    reading: Counter[bytes] = Counter()
    overlaps: list[int] = []
    handled: Counter[int] = Counter()

    async def consume() -> None:
        while True:
            try:
                lease = await q.get()
            except ShutDown:
                return
            with lock:
                handled[lease.payload] += 1
                for key in lease.keys:
                    if writing[key] or reading[key]:
                        overlaps.append(lease.id)
                if any(writing[key] for key in lease.shared):
                    overlaps.append(lease.id)
                writing.update(lease.keys)
                reading.update(lease.shared)
            with lock:
                writing.subtract(lease.keys)
                reading.subtract(lease.shared)
            await lease.ack()

    consumers = [await t.start(consume()) for _ in range(4)]
    for consumer in consumers:
        await consumer.result()
    assert overlaps == []
    assert handled == Counter(range(total))
