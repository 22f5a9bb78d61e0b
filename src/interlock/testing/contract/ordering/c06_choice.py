"""Clause 6: among the ready, higher priority first, then sequence."""

from interlock import Retry
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial


@clause(6)
async def equal_priorities_come_in_sequence(t: Trial) -> None:
    q = t.queue()
    for n in range(6):
        await q.put(n, keys=f"k{n % 4}" if n < 4 else ())
    assert await q.payloads() == [0, 1, 2, 3, 4, 5]


@clause(6)
async def the_higher_priority_comes_first(t: Trial) -> None:
    q = t.queue()
    for priority in (0, -100, 100, 5, -1):
        await q.put(priority, priority=priority)
    await q.put("default")
    assert await q.payloads() == [100, 5, 0, "default", -1, -100]


@clause(6)
async def who_starves_behind_higher_priorities_shows_in_the_age_of_the_oldest(t: Trial) -> None:
    for low in (0, -5, 3):
        q = t.queue()
        await q.put("starves", keys="k", priority=low)
        await t.advance(2)
        await q.put("goes first", priority=7)
        assert (await q.stats()).oldest_ready >= 2
        first = await q.get_nowait()
        assert first.payload == "goes first"
        await first.ack()
        await q.put("goes first", keys="l", priority=7)
        assert (await q.stats()).oldest_ready >= 2
        assert await q.handle() == ["goes first", "starves"]
        assert (await q.stats()).oldest_ready == 0


@clause(6)
async def a_batch_carries_one_priority(t: Trial) -> None:
    q = t.queue()
    await q.put("default")
    await q.put_many([1, 2], priority=1)
    assert await q.payloads() == [1, 2, "default"]


@clause(6)
async def readied_late_and_ready_at_the_put_are_one_order(t: Trial) -> None:
    q = t.queue()
    await q.put("holds", keys="a")
    await q.put("early", keys="a")
    await q.put("late", keys="b")
    holder = await q.get_nowait()
    assert holder.payload == "holds"
    await holder.ack()
    assert await q.payloads() == ["early", "late"]


@clause(6)
async def priority_never_reorders_conflicting_messages(t: Trial) -> None:
    q = t.queue()
    await q.put("low", keys="a", priority=-100)
    await q.put("high", keys="a", priority=100)
    assert (await q.one()).payload == "low"


@clause(6)
async def priority_is_not_inherited(t: Trial) -> None:
    q = t.queue()
    await q.put("low", keys="a", priority=-1)
    await q.put("high, behind low", keys="a", priority=100)
    await q.put("middle", keys="b")
    assert await q.handle() == ["middle", "low", "high, behind low"]


@clause(6)
async def waiting_does_not_raise_a_priority(t: Trial) -> None:
    q = t.queue()
    await q.put("old", priority=-1)
    await t.advance(1_000_000)
    await q.put("new", priority=0)
    assert await q.payloads() == ["new", "old"]


@clause(6)
async def a_retried_message_is_chosen_by_its_own_priority_and_sequence(t: Trial) -> None:
    q = t.queue(retry=Retry(first=0, jitter=False))
    await q.put("first")
    await q.put("second")
    await q.put("high", priority=1)
    high, first, second = await q.ready()
    await second.nack()
    await first.nack()
    await high.nack()
    assert await q.payloads() == ["high", "first", "second"]


@clause(6)
async def a_batch_of_leases_is_chosen_like_single_ones(t: Trial) -> None:
    q = t.queue()
    for priority in (1, 3, 2):
        await q.put(priority, priority=priority)
    assert [lease.payload for lease in await q.get_many(2)] == [3, 2]
