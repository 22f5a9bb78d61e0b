"""Clause 14: a barrier runs alone, after all earlier messages and before all later ones."""

from interlock import Retry
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial, raises


@clause(14)
async def a_barrier_runs_after_all_before_and_before_all_after(t: Trial) -> None:
    q = t.queue()
    await q.put("a", keys="a")
    await q.put("b", shared="b")
    await q.put("unkeyed")
    await q.put("barrier", barrier=True)
    await q.put("after a", keys="a")
    await q.put("after unkeyed")
    before = await q.ready()
    assert [lease.payload for lease in before] == ["a", "b", "unkeyed"]
    for lease in before:
        assert await q.payloads() == []
        await lease.ack()
    barrier = await q.one()
    assert barrier.payload == "barrier"
    assert (barrier.keys, barrier.shared) == (frozenset(), frozenset())
    await barrier.ack()
    assert await q.payloads() == ["after a", "after unkeyed"]


@clause(14)
async def a_barrier_alone_is_ready_at_once(t: Trial) -> None:
    q = t.queue()
    await q.put("barrier", barrier=True)
    assert await q.payloads() == ["barrier"]
    await q.put("behind", keys="new key")
    assert await q.payloads() == []


@clause(14)
async def barriers_run_one_after_the_other(t: Trial) -> None:
    q = t.queue()
    for n in range(3):
        await q.put(n, barrier=True)
    for n in range(3):
        lease = await q.one()
        assert lease.payload == n
        await lease.ack()


@clause(14)
async def each_section_between_barriers_runs_by_itself(t: Trial) -> None:
    q = t.queue()
    for section in range(3):
        for name in "abc":
            await q.put((section, name), keys=name)
        await q.put((section, "barrier"), barrier=True)
    for section in range(3):
        leases = await q.ready()
        assert [tuple(lease.payload) for lease in leases] == [(section, name) for name in "abc"]
        await q.ack_many(leases)
        barrier = await q.one()
        assert tuple(barrier.payload) == (section, "barrier")
        await barrier.ack()


@clause(14)
async def priority_passes_no_barrier(t: Trial) -> None:
    q = t.queue()
    await q.put("before", priority=-100)
    await q.put("barrier", barrier=True)
    await q.put("after", priority=100)
    assert await q.handle() == ["before", "barrier", "after"]


@clause(14)
async def a_barrier_waits_for_what_backs_off_and_what_is_held(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=2, first=5, jitter=False, then="hold"))
    id = await q.put("failing")
    await q.put("barrier", barrier=True)
    await (await q.one()).nack()
    assert await q.payloads() == []
    await t.advance(5)
    await (await q.one()).nack()
    assert await q.payloads() == []
    assert await q.skip(id)
    assert await q.payloads() == ["barrier"]


@clause(14)
async def a_barrier_that_fails_keeps_its_place(t: Trial) -> None:
    q = t.queue(retry=Retry(first=5, jitter=False))
    await q.put("barrier", barrier=True)
    await q.put("after", keys="a")
    await (await q.one()).nack()
    assert await q.payloads() == []
    await t.advance(5)
    barrier = await q.one()
    assert (barrier.payload, barrier.attempt) == ("barrier", 2)
    await barrier.release()
    assert await q.handle() == ["barrier", "after"]


@clause(14)
async def a_barrier_does_not_wait_for_the_delayed(t: Trial) -> None:
    q = t.queue()
    await q.put("delayed", delay=5)
    await q.put("barrier", barrier=True)
    barrier = await q.one()
    await t.advance(5)
    assert await q.payloads() == []
    await barrier.ack()
    assert await q.payloads() == ["delayed"]


@clause(14)
async def a_delayed_barrier_takes_its_place_when_due(t: Trial) -> None:
    q = t.queue()
    await q.put("barrier", barrier=True, delay=5)
    await q.put("before", keys="a")
    lease = await q.one()
    assert lease.payload == "before"
    await t.advance(5)
    await q.put("after", keys="b")
    assert await q.payloads() == []
    await lease.ack()
    assert await q.handle() == ["barrier", "after"]


@clause(14)
async def a_cancelled_barrier_joins_what_stood_on_both_sides(t: Trial) -> None:
    q = t.queue()
    await q.put("a1", keys="a")
    id = await q.put("barrier", barrier=True)
    await q.put("a2", keys="a")
    await q.put("b", keys="b")
    first = await q.one()
    assert (await t.wakes(q.get(), q.cancel(id))).payload == "b"
    assert await q.payloads() == []
    await first.ack()
    assert await q.payloads() == ["a2"]


@clause(14)
async def a_cancelled_barrier_between_two_leaves_the_others(t: Trial) -> None:
    q = t.queue()
    await q.put("before")
    ids = [await q.put(f"barrier {n}", barrier=True) for n in range(3)]
    await q.put("after")
    assert await q.cancel(ids[1])
    before = await q.one()
    assert before.payload == "before"
    await before.ack()
    assert await q.cancel(ids[0])
    assert await q.handle() == ["barrier 2", "after"]


@clause(14)
async def what_is_cancelled_before_a_barrier_no_longer_holds_it_up(t: Trial) -> None:
    q = t.queue()
    await q.put("a1", keys="a")
    waiting = await q.put("a2", keys="a")
    await q.put("barrier", barrier=True)
    lease = await q.one()
    assert await q.cancel(waiting)
    assert await q.payloads() == []
    assert (await t.wakes(q.get(), lease.ack())).payload == "barrier"


@clause(14)
async def a_barrier_wakes_who_waits_for_work(t: Trial) -> None:
    q = t.queue()
    await q.put("before")
    await q.put("barrier", barrier=True)
    await q.put("after", keys="a")
    lease = await q.one()
    barrier = await t.wakes(q.get(), lease.ack())
    assert barrier.payload == "barrier"
    assert (await t.wakes(q.get(), barrier.ack())).payload == "after"


@clause(14)
async def a_barrier_with_keys_is_an_error(t: Trial) -> None:
    q = t.queue()
    before = await q.stats()
    with raises(ValueError):
        await q.put(barrier=True, keys="a")
    with raises(ValueError):
        await q.put(barrier=True, shared=["a"])
    with raises(ValueError):
        await q.put_nowait(barrier=True, keys=["a"], shared="b")
    assert await q.stats() == before
    await q.put(barrier=True, keys=(), shared=())
    assert len(await q.ready()) == 1
