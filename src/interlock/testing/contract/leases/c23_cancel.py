"""Clause 23: cancel settles what is not leased, and leaves the rest unchanged."""

from interlock import Retry
from interlock.testing.contract.faces import QueueFace
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial, raises


async def _gone(q: QueueFace, id: int) -> None:
    """Check that the cancel settled the message: no longer known, and cancelled only once."""
    assert not await q.cancel(id)
    with raises(KeyError):
        await q.explain(id)


@clause(23)
async def a_ready_message_is_cancelled(t: Trial) -> None:
    q = t.queue()
    id = await q.put("cancelled", keys="a")
    await q.put("next", keys="a")
    assert await q.cancel(id)
    await _gone(q, id)
    assert await q.handle() == ["next"]
    stats = await q.stats()
    assert (stats.cancelled, stats.unsettled, stats.dead) == (1, 0, 0)


@clause(23)
async def a_waiting_message_is_cancelled(t: Trial) -> None:
    q = t.queue()
    await q.put("ab", keys=["a", "b"])
    id = await q.put("bc", keys=["b", "c"])
    await q.put("c", keys="c")
    await q.put("b", keys="b")
    lease = await q.one()
    assert (await t.wakes(q.get(), q.cancel(id))).payload == "c"
    await _gone(q, id)
    assert await q.payloads() == []
    await lease.ack()
    assert await q.payloads() == ["b"]


@clause(23)
async def a_writer_cancelled_between_readers_joins_them(t: Trial) -> None:
    q = t.queue()
    await q.put("reader", shared="a")
    id = await q.put("writer", keys="a")
    await q.put("late reader", shared="a")
    await q.put("last writer", keys="a")
    assert await q.payloads() == ["reader"]
    assert await q.cancel(id)
    assert await q.payloads() == ["late reader"]


@clause(23)
async def a_delayed_message_is_cancelled(t: Trial) -> None:
    q = t.queue()
    id = await q.put("cancelled", keys="a", delay=5)
    await q.put("kept", keys="a", delay=6)
    assert await q.cancel(id)
    await _gone(q, id)
    await t.advance(10)
    assert await q.handle() == ["kept"]


@clause(23)
async def a_held_message_is_cancelled(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=1, then="hold"))
    id = await q.put(keys="a")
    await q.put("next", keys="a")
    await (await q.one()).nack()
    assert (await t.wakes(q.get(), q.cancel(id))).payload == "next"
    await _gone(q, id)


@clause(23)
async def a_message_that_backs_off_is_cancelled(t: Trial) -> None:
    q = t.queue(retry=Retry(first=5, jitter=False))
    id = await q.put(keys="a")
    await q.put("next", keys="a")
    await (await q.one()).nack()
    assert (await t.wakes(q.get(), q.cancel(id))).payload == "next"
    await _gone(q, id)
    await t.advance(5)
    assert await q.payloads() == []


@clause(23)
async def a_leased_message_is_unchanged(t: Trial) -> None:
    q = t.queue()
    id = await q.put("leased", keys="a")
    await q.put("next", keys="a")
    lease = await q.one()
    before = await q.stats()
    assert not await q.cancel(id)
    assert await q.stats() == before
    assert not lease.lost
    assert await q.payloads() == []
    await lease.ack()
    assert await q.payloads() == ["next"]


@clause(23)
async def a_settled_message_is_unchanged(t: Trial) -> None:
    q = t.queue()
    acked = await q.put(keys="a")
    await (await q.one()).ack()
    dead = await q.put(keys="a")
    await (await q.one()).reject("no")
    for id in (acked, dead, 10**9):
        assert not await q.cancel(id)
    assert [letter.id for letter in await q.dead_letters()] == [dead]
    assert (await q.stats()).cancelled == 0


@clause(23)
async def a_cancelled_message_makes_room(t: Trial) -> None:
    q = t.queue(maxsize=1, maxbytes=3)
    id = await q.put(b"abc")
    await t.wakes(q.put(b"xyz"), q.cancel(id))
    assert (await q.stats()).bytes == 3
    assert (await q.one()).payload == b"xyz"


@clause(23)
async def many_are_cancelled_from_the_middle_of_a_lane(t: Trial) -> None:
    q = t.queue()
    ids = await q.put_many(range(20), keys="a")
    for id in ids[5:15]:
        assert await q.cancel(id)
    assert await q.handle() == [0, 1, 2, 3, 4, 15, 16, 17, 18, 19]
    assert (await q.stats()).cancelled == 10
