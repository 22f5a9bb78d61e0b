"""Clause 21: one call readies at most 1,000 successors; the rest follow with the next calls.

The duration of a call is measured by the benchmarks, never here.
"""

from itertools import pairwise

from interlock import ShutDown
from interlock.testing.contract.faces import QueueFace
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial

_STEP = 1_000


async def _crowd(q: QueueFace, readers: int) -> list[int]:
    """Put a writer of "hot" with this many readers behind it; return the readers' ids."""
    await q.put("writer", keys="hot")
    ids = await q.put_many(range(readers), shared="hot")
    assert len(ids) == readers
    return ids


async def _is_readied_in_steps(q: QueueFace) -> None:
    """Assert that the last call readied, and each call after it readies, a thousand at most."""
    ready = [(await q.stats()).ready for _ in range(3)]
    # Before the first answer two calls were made: the one that readied, and stats itself.
    assert ready[0] <= 2 * _STEP, ready
    assert all(after - before <= _STEP for before, after in pairwise(ready)), ready


@clause(21)
async def thousands_of_successors_are_readied_over_several_calls(t: Trial) -> None:
    q = t.queue()
    ids = await _crowd(q, 4_500)
    await (await q.one()).ack()
    await _is_readied_in_steps(q)
    handed: list[int] = []
    for _ in range(len(ids)):
        if len(handed) == len(ids):
            break
        leases = await q.get_many(500)
        handed += [lease.id for lease in leases]
        await q.ack_many(leases)
    assert handed == ids


@clause(21)
async def what_comes_behind_a_crowd_overtakes_nobody_of_it(t: Trial) -> None:
    q = t.queue()
    ids = await _crowd(q, 2_500)
    last = await q.put("writer behind", keys="hot")
    await (await q.one()).ack()
    late = await q.put("late reader", shared="hot")
    handed = []
    for _ in range(len(ids) + 2):
        lease = await q.get()
        handed.append(lease.id)
        await lease.ack()
    assert handed == [*ids, last, late]


@clause(21)
async def a_crowd_reaches_consumers_who_wait(t: Trial) -> None:
    q = t.queue()
    ids = await _crowd(q, 2_500)
    writer = await q.one()
    await q.shutdown()
    handed: list[int] = []

    async def consume() -> None:
        while True:
            try:
                lease = await q.get()
            except ShutDown:
                return
            handed.append(lease.id)
            await lease.ack()

    consumers = [await t.start(consume()) for _ in range(3)]
    await writer.ack()
    for consumer in consumers:
        await consumer.result()
    assert sorted(handed) == ids


@clause(21)
async def a_crowd_behind_a_barrier_is_readied_too(t: Trial) -> None:
    q = t.queue()
    await q.put("barrier", barrier=True)
    ids = await q.put_many(range(4_500))
    await (await q.one()).ack()
    await _is_readied_in_steps(q)
    handed = []
    for _ in ids:
        lease = await q.get()
        handed.append(lease.id)
        await lease.ack()
    assert handed == ids


@clause(21)
async def a_crowd_on_a_paused_key_is_readied_too(t: Trial) -> None:
    q = t.queue()
    await q.pause("hot")
    ids = await q.put_many(range(4_500), shared="hot")
    assert await q.payloads() == []
    await q.resume("hot")
    handed = []
    for _ in ids:
        lease = await q.get()
        handed.append(lease.id)
        await lease.ack()
    assert handed == ids


@clause(21)
async def one_hot_key_and_many_lanes_drain_in_order(t: Trial) -> None:
    q = t.queue()
    hot = [await q.put(keys="hot") for _ in range(3_000)]
    cold = [await q.put(keys=f"lane {n}") for n in range(3_000)]
    handed = []
    while leases := await q.ready():
        handed += [lease.id for lease in leases]
        await q.ack_many(leases)
    assert [id for id in handed if id <= hot[-1]] == hot
    assert sorted(id for id in handed if id > hot[-1]) == cold


@clause(21)
async def a_message_may_have_thousands_of_keys(t: Trial) -> None:
    q = t.queue()
    await q.put("many", keys=range(4_096))
    await q.put("one", keys=4_095)
    await q.put("free", keys=4_096)
    lease = (await q.ready())[0]
    assert lease.payload == "many" and len(lease.keys) == 4_096
    await lease.ack()
    assert await q.payloads() == ["one"]
