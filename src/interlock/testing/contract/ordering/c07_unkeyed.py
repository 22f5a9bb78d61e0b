"""Clause 7: unkeyed messages wait for no message but a barrier; consumers may ask for a kind."""

from interlock import Empty
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial, raises


@clause(7)
async def unkeyed_messages_wait_for_nobody(t: Trial) -> None:
    q = t.queue()
    await q.put("a", keys="a")
    for n in range(3):
        await q.put(n)
    assert await q.payloads() == ["a", 0, 1, 2]


@clause(7)
async def an_unkeyed_message_waits_for_a_barrier(t: Trial) -> None:
    q = t.queue()
    await q.put("barrier", barrier=True)
    await q.put("unkeyed")
    barrier = await q.one()
    assert barrier.payload == "barrier"
    await barrier.ack()
    assert (await q.one()).payload == "unkeyed"


@clause(7)
async def a_consumer_may_ask_for_unkeyed_work(t: Trial) -> None:
    q = t.queue()
    await q.put("keyed", keys="a", priority=1)
    await q.put("shared", shared="b", priority=1)
    await q.put("unkeyed")
    assert [lease.payload for lease in await q.ready(kind="unkeyed")] == ["unkeyed"]
    with raises(Empty):
        await q.get_nowait(kind="unkeyed")


@clause(7)
async def a_consumer_may_ask_for_keyed_work(t: Trial) -> None:
    q = t.queue()
    await q.put("unkeyed", priority=1)
    await q.put("keyed", keys="a")
    await q.put("shared", shared="b")
    assert [lease.payload for lease in await q.ready(kind="keyed")] == ["keyed", "shared"]
    with raises(Empty):
        await q.get(block=False, kind="keyed")


@clause(7)
async def any_is_both_and_the_default(t: Trial) -> None:
    q = t.queue()
    for kind in ({}, {"kind": "any"}):
        await q.put("unkeyed")
        await q.put("keyed", keys="a")
        leases = await q.ready(**kind)
        assert [lease.payload for lease in leases] == ["unkeyed", "keyed"]
        await q.ack_many(leases)


@clause(7)
async def a_barrier_is_keyed_work(t: Trial) -> None:
    q = t.queue()
    await q.put("barrier", barrier=True)
    assert await q.ready(kind="unkeyed") == []
    assert [lease.payload for lease in await q.ready(kind="keyed")] == ["barrier"]


@clause(7)
async def a_batch_of_leases_may_ask_for_a_kind(t: Trial) -> None:
    q = t.queue()
    await q.put_many(["a", "b"], keys=lambda payload: payload)
    await q.put_many([1, 2])
    assert [lease.payload for lease in await q.get_many(9, kind="unkeyed")] == [1, 2]
    assert [lease.payload for lease in await q.get_many(9, kind="keyed")] == ["a", "b"]


@clause(7)
async def who_asks_for_a_kind_sleeps_through_the_other(t: Trial) -> None:
    q = t.queue()
    await q.put("keyed", keys="a")
    assert (await t.wakes(q.get(kind="unkeyed"), q.put("unkeyed"))).payload == "unkeyed"
    assert (await q.one()).payload == "keyed"
