"""Clause 12: a delayed message takes its place when it is due; until then it holds nothing up."""

from datetime import timedelta

from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial


@clause(12)
async def a_delayed_message_is_handed_out_when_due(t: Trial) -> None:
    q = t.queue()
    id = await q.put("delayed", delay=5)
    assert await q.state(id) == "delayed"
    await t.advance(4.999)
    assert await q.payloads() == []
    await t.advance(0.001)
    assert await q.payloads() == ["delayed"]


@clause(12)
async def a_delay_may_be_a_timedelta(t: Trial) -> None:
    q = t.queue()
    await q.put("delayed", delay=timedelta(milliseconds=500))
    await t.advance(0.499)
    assert await q.payloads() == []
    await t.advance(0.001)
    assert await q.payloads() == ["delayed"]


@clause(12)
async def no_delay_is_the_default(t: Trial) -> None:
    q = t.queue()
    await q.put("a", delay=0)
    await q.put("b", delay=timedelta())
    assert await q.payloads() == ["a", "b"]


@clause(12)
async def a_delayed_message_holds_nothing_up(t: Trial) -> None:
    q = t.queue()
    await q.put("delayed", keys="a", delay=5)
    await q.put("a", keys="a")
    await q.put("barrier", barrier=True)
    assert await q.handle() == ["a", "barrier"]


@clause(12)
async def it_stands_behind_what_was_put_before_it_fell_due(t: Trial) -> None:
    q = t.queue()
    await q.put("delayed", keys="a", delay=5)
    await q.put("put at once", keys="a")
    await t.advance(3)
    await q.put("put at 3", keys="a")
    await t.advance(2)
    await q.put("put at 5", keys="a")
    assert await q.handle() == ["put at once", "put at 3", "delayed", "put at 5"]


@clause(12)
async def it_waits_for_what_conflicts_when_it_falls_due(t: Trial) -> None:
    q = t.queue()
    await q.put("delayed", keys="a", delay=5)
    await q.put("at work", keys="a")
    lease = await q.one()
    await t.advance(5)
    assert await q.payloads() == []
    await lease.ack()
    assert await q.payloads() == ["delayed"]


@clause(12)
async def several_take_their_places_in_order_of_due_time(t: Trial) -> None:
    q = t.queue()
    for delay in (5, 3, 4, 3):
        await q.put(delay, keys="a", delay=delay)
    await t.advance(10)
    await q.put("later", keys="a")
    assert await q.handle() == [3, 3, 4, 5, "later"]


@clause(12)
async def due_at_once_come_in_put_order(t: Trial) -> None:
    q = t.queue()
    await q.put("first", keys="a", delay=5)
    await t.advance(2)
    await q.put("second", keys="a", delay=3)
    await q.put("third", keys="a", delay=3)
    await t.advance(3)
    assert await q.handle() == ["first", "second", "third"]


@clause(12)
async def a_due_message_wakes_who_waits_for_work(t: Trial) -> None:
    q = t.queue()
    await q.put("delayed", keys="a", delay=5)
    assert (await t.wakes(q.get(), t.advance(5))).payload == "delayed"


@clause(12)
async def an_earlier_due_time_shortens_the_wait(t: Trial) -> None:
    q = t.queue()
    await q.put("late", delay=100)
    getter = await t.start(q.get())
    await q.put("soon", delay=5)
    await t.advance(5)
    assert (await getter.result()).payload == "soon"


@clause(12)
async def a_batch_may_be_delayed(t: Trial) -> None:
    q = t.queue()
    await q.put_many([1, 2], keys="a", delay=5)
    assert await q.payloads() == []
    await t.advance(5)
    assert await q.handle() == [1, 2]


@clause(12)
async def priority_counts_once_it_is_due(t: Trial) -> None:
    q = t.queue()
    await q.put("delayed", delay=5, priority=1)
    await q.put("here")
    await t.advance(5)
    assert await q.payloads() == ["delayed", "here"]
