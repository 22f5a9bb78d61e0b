"""Clause 22: a queue, or a key, can be paused and resumed."""

from interlock import Empty, Retry
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial, raises


@clause(22)
async def a_paused_queue_hands_nothing_out(t: Trial) -> None:
    q = t.queue()
    await q.put("a", keys="a")
    assert await q.pause()
    await q.put("unkeyed")
    await q.put("barrier", barrier=True)
    with raises(Empty):
        await q.get_nowait()
    with raises(Empty):
        await q.get_many(5, block=False)
    await t.advance(1)
    stats = await q.stats()
    assert stats.oldest_ready == 0 and stats.oldest_waiting >= 1
    assert await q.resume()
    assert await q.handle() == ["a", "unkeyed", "barrier"]


@clause(22)
async def pause_and_resume_say_whether_they_changed_anything(t: Trial) -> None:
    q = t.queue()
    assert not await q.resume()
    assert not await q.resume("a")
    assert await q.pause() and not await q.pause()
    assert await q.pause("a") and not await q.pause(b"a")
    assert await q.resume() and not await q.resume()
    assert await q.resume("a") and not await q.resume("a")


@clause(22)
async def none_is_the_queue(t: Trial) -> None:
    q = t.queue()
    await q.put(keys="a")
    assert await q.pause(None)
    assert await q.payloads() == []
    assert await q.resume(None)
    await q.one()


@clause(22)
async def what_a_paused_key_holds_waits(t: Trial) -> None:
    q = t.queue()
    await q.put("writes a", keys="a")
    await q.put("reads b and c", shared=["b", "c"])
    await q.put("writes d", keys="d")
    await q.pause("a")
    await q.pause("c")
    assert await q.payloads() == ["writes d"]
    await q.put("reads a", shared="a")
    assert await q.payloads() == []
    stats = await q.stats()
    assert (stats.waiting, stats.ready) == (3, 0)
    assert stats.oldest_ready == 0
    await q.resume("c")
    assert await q.payloads() == ["reads b and c"]
    await q.resume("a")
    assert await q.handle() == ["writes a", "reads a"]


@clause(22)
async def what_conflicts_behind_a_paused_message_waits(t: Trial) -> None:
    q = t.queue()
    await q.put("ab", keys=["a", "b"])
    await q.put("b", keys="b")
    await q.put("b and c", keys=["b", "c"])
    await q.put("c", keys="c")
    await q.put("elsewhere", keys="d")
    await q.pause("a")
    assert await q.payloads() == ["elsewhere"]
    await q.resume("a")
    assert await q.handle() == ["ab", "b", "b and c", "c"]


@clause(22)
async def a_barrier_behind_a_paused_message_waits(t: Trial) -> None:
    q = t.queue()
    await q.pause("a")
    await q.put("a", keys="a")
    await q.put("barrier", barrier=True)
    await q.put("behind", keys="b")
    assert await q.payloads() == []
    await q.resume("a")
    assert await q.handle() == ["a", "barrier", "behind"]


@clause(22)
async def a_paused_key_alone_does_not_hold_a_barrier(t: Trial) -> None:
    q = t.queue()
    await q.pause("a")
    await q.put("barrier", barrier=True)
    await q.put("a", keys="a")
    await q.put("b", keys="b")
    assert await q.handle() == ["barrier", "b"]


@clause(22)
async def unkeyed_messages_pass_a_paused_key(t: Trial) -> None:
    q = t.queue()
    await q.pause("a")
    await q.put("a", keys="a")
    await q.put("unkeyed")
    assert await q.payloads() == ["unkeyed"]


@clause(22)
async def thousands_that_are_paused_hide_nobody(t: Trial) -> None:
    q = t.queue()
    await q.pause("a")
    await q.put_many(range(4_500), shared="a", priority=1)
    await q.put("keyed", keys="b")
    await q.put("unkeyed")
    assert await q.payloads() == ["keyed", "unkeyed"]
    assert (await t.wakes(q.get(), q.put("later"))).payload == "later"


@clause(22)
async def leases_already_out_go_on(t: Trial) -> None:
    q = t.queue(retry=Retry(first=0, jitter=False))
    await q.put("ack", keys="a")
    await q.put("nack", keys="b")
    acked, nacked = await q.ready()
    await q.pause()
    await q.pause("b")
    assert not acked.lost
    await acked.ack()
    await nacked.nack()
    assert await q.payloads() == []
    await q.resume()
    assert await q.payloads() == []
    await q.resume("b")
    lease = await q.one()
    assert (lease.payload, lease.attempt) == ("nack", 2)


@clause(22)
async def the_successor_of_a_lease_already_out_waits(t: Trial) -> None:
    q = t.queue()
    await q.put(1, keys="a")
    await q.put(2, keys="a")
    lease = await q.one()
    await q.pause("a")
    await lease.ack()
    assert await q.payloads() == []
    await q.resume("a")
    assert await q.payloads() == [2]


@clause(22)
async def a_pause_survives_an_empty_lane(t: Trial) -> None:
    q = t.queue()
    await q.pause("a")
    await q.put(1, keys="a")
    assert await q.payloads() == []
    await q.resume("a")
    lease = await q.one()
    await q.pause("a")
    await lease.ack()
    assert await q.empty()
    await q.put(2, keys="a")
    assert await q.payloads() == []
    await q.resume("a")
    assert await q.payloads() == [2]


@clause(22)
async def resume_wakes_who_waits_for_work(t: Trial) -> None:
    q = t.queue()
    await q.pause("a")
    await q.put("a", keys="a")
    lease = await t.wakes(q.get(), q.resume("a"))
    assert lease.payload == "a"
    await q.pause()
    await q.put_many([1, 2])
    getters = [await t.start(q.get()) for _ in range(2)]
    await q.resume()
    assert {(await getter.result()).payload for getter in getters} == {1, 2}


@clause(22)
async def what_falls_due_while_paused_waits(t: Trial) -> None:
    q = t.queue(retry=Retry(first=5, jitter=False))
    await q.put("delayed", keys="a", delay=5)
    await q.put("failing", keys="b")
    await (await q.one()).nack()
    await q.pause("a")
    await q.pause("b")
    await t.advance(5)
    assert await q.payloads() == []
    await q.resume("a")
    assert await q.payloads() == ["delayed"]
    await q.resume("b")
    assert await q.payloads() == ["failing"]


@clause(22)
async def every_paused_key_of_a_message_counts(t: Trial) -> None:
    q = t.queue()
    await q.put("ab", keys="a", shared="b")
    await q.pause("a")
    await q.pause("b")
    await q.resume("a")
    assert await q.payloads() == []
    await q.resume("b")
    assert await q.payloads() == ["ab"]


@clause(22)
async def a_paused_message_may_be_cancelled(t: Trial) -> None:
    q = t.queue()
    id = await q.put("ab", keys=["a", "b"])
    await q.put("b", keys="b")
    await q.pause("a")
    assert (await t.wakes(q.get(), q.cancel(id))).payload == "b"


@clause(22)
async def the_order_is_kept_over_a_pause(t: Trial) -> None:
    q = t.queue()
    await q.put("before", keys="a")
    await q.pause("a")
    await q.put("during", keys="a", priority=100)
    await q.resume("a")
    await q.put("after", keys="a")
    assert await q.handle() == ["before", "during", "after"]
