"""Clause 3: a message is leased only when every earlier conflicting message is settled."""

from interlock import Retry
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial


@clause(3)
async def a_later_message_waits_behind_one_that_waits(t: Trial) -> None:
    q = t.queue()
    await q.put("a", keys="a")
    await q.put("ab", keys=["a", "b"])
    await q.put("b", keys="b")
    first = await q.one()
    assert first.payload == "a"
    await first.ack()
    second = await q.one()
    assert second.payload == "ab"
    await second.ack()
    assert (await q.one()).payload == "b"


@clause(3)
async def a_reader_waits_behind_a_writer_that_waits(t: Trial) -> None:
    q = t.queue()
    await q.put("reader", shared="a")
    await q.put("writer", keys="a")
    await q.put("late reader", shared="a")
    first = await q.one()
    assert first.payload == "reader"
    await first.ack()
    second = await q.one()
    assert second.payload == "writer"
    await second.ack()
    assert (await q.one()).payload == "late reader"


@clause(3)
async def a_chain_of_keys_waits_link_by_link(t: Trial) -> None:
    q = t.queue()
    for n in range(6):
        await q.put(n, keys=[f"k{n}", f"k{n + 1}"])
    for n in range(6):
        lease = await q.one()
        assert lease.payload == n
        await lease.ack()


@clause(3)
async def leased_is_not_settled(t: Trial) -> None:
    q = t.queue()
    await q.put("ab", keys=["a", "b"])
    await q.put("bc", keys=["b", "c"])
    await q.put("c", keys="c")
    lease = await q.one()
    assert lease.payload == "ab"
    assert await q.payloads() == []


@clause(3)
async def nothing_overtakes_one_that_is_backing_off(t: Trial) -> None:
    q = t.queue(retry=Retry(first=5, jitter=False))
    await q.put("ab", keys=["a", "b"])
    await q.put("b", keys="b")
    await (await q.one()).nack()
    assert await q.payloads() == []
    await t.advance(5)
    assert (await q.one()).payload == "ab"


@clause(3)
async def nothing_overtakes_one_that_was_released(t: Trial) -> None:
    q = t.queue()
    await q.put("a", keys="a")
    await q.put("urgent", keys="a", priority=100)
    await (await q.one()).release()
    assert (await q.one()).payload == "a"


@clause(3)
async def a_reader_does_not_slip_past_a_reader_with_more_keys(t: Trial) -> None:
    q = t.queue()
    await q.put("holds b", keys="b")
    await q.put("reads a, writes b", keys="b", shared="a")
    await q.put("writes a", keys="a")
    await q.put("reads a", shared="a")
    first = await q.one()
    assert first.payload == "holds b"
    await first.ack()
    assert await q.handle() == ["reads a, writes b", "writes a", "reads a"]
