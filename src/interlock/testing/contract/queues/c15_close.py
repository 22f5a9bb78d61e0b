"""Clause 15: shutdown lets the rest drain; join names the obstacles; blocked calls wake."""

from typing import Any

from interlock import Empty, Full, NotDrained, Retry, ShutDown
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial, raises


@clause(15)
async def shutdown_refuses_puts(t: Trial) -> None:
    q = t.queue(maxsize=1)
    await q.put("there")
    assert await q.shutdown() == []
    before = await q.stats()
    with raises(ShutDown):
        await q.put("late")
    with raises(ShutDown):
        await q.put_nowait("late", keys="a")
    with raises(ShutDown):
        await q.put_many(["late"])
    assert await q.stats() == before


@clause(15)
async def shutdown_lets_the_rest_drain(t: Trial) -> None:
    q = t.queue()
    for n in range(3):
        await q.put(n, keys="a")
    await q.shutdown()
    assert await q.handle() == [0, 1, 2]
    with raises(ShutDown):
        await q.get_nowait()
    with raises(ShutDown):
        await q.get()
    with raises(ShutDown):
        await q.get_many(3)


@clause(15)
async def get_goes_on_while_anything_is_unsettled(t: Trial) -> None:
    q = t.queue(retry=Retry(first=0, jitter=False))
    await q.put("leased")
    lease = await q.one()
    await q.shutdown()
    with raises(Empty):
        await q.get_nowait()
    lease = await t.wakes(q.get(), lease.nack())
    with raises(ShutDown):
        await t.wakes(q.get(), lease.ack())


@clause(15)
async def what_was_delayed_is_handed_out_after_shutdown(t: Trial) -> None:
    q = t.queue()
    await q.put("delayed", delay=5)
    await q.shutdown()
    lease = await t.wakes(q.get(), t.advance(5))
    assert lease.payload == "delayed"


@clause(15)
async def shutdown_wakes_a_blocked_get_of_an_empty_queue(t: Trial) -> None:
    q = t.queue()
    with raises(ShutDown):
        await t.wakes(q.get(), q.shutdown())


@clause(15)
async def shutdown_wakes_everyone_who_waits(t: Trial) -> None:
    q = t.queue()
    getters = [await t.start(q.get()) for _ in range(3)]
    getters += [await t.start(q.get(kind=kind)) for kind in ("keyed", "unkeyed")]
    getters.append(await t.start(q.get_many(5)))
    await q.shutdown()
    for getter in getters:
        with raises(ShutDown):
            await getter.result()


@clause(15)
async def the_last_settlement_after_shutdown_wakes_everyone_who_waits(t: Trial) -> None:
    q = t.queue()
    await q.put(keys="a")
    lease = await q.one()
    await q.shutdown()
    getters = [await t.start(q.get()) for _ in range(3)]
    await lease.ack()
    for getter in getters:
        with raises(ShutDown):
            await getter.result()


@clause(15)
async def a_cancel_after_shutdown_may_be_the_last_settlement(t: Trial) -> None:
    q = t.queue()
    id = await q.put(delay=5)
    await q.shutdown()
    with raises(ShutDown):
        await t.wakes(q.get(), q.cancel(id))


@clause(15)
async def shutdown_wakes_blocked_puts(t: Trial) -> None:
    q = t.queue(maxsize=1)
    await q.put("there")
    batch = await t.start(q.put_many(["late"]))
    with raises(ShutDown):
        await t.wakes(q.put("late"), q.shutdown())
    with raises(ShutDown):
        await batch.result()
    assert await q.handle() == ["there"]


@clause(15)
async def an_immediate_shutdown_cancels_and_returns_what_is_not_leased(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=1, then="hold"))
    await q.put("leased", keys="a")
    await q.put("held", keys="b")
    leased, failing = await q.ready()
    await failing.nack()
    await q.put("waiting", keys="a")
    await q.put("ready", keys="c", shared="s")
    await q.put("delayed", delay=5)
    await q.put("barrier", barrier=True)
    messages = await q.shutdown(immediate=True)
    assert [m.payload for m in messages] == ["held", "waiting", "ready", "delayed", "barrier"]
    ids = [m.id for m in messages]
    assert ids == sorted(ids)
    assert (set(messages[2].keys), set(messages[2].shared)) == ({b"c"}, {b"s"})
    stats = await q.stats()
    assert (stats.unsettled, stats.leased, stats.cancelled) == (1, 1, 5)
    with raises(ShutDown):
        await q.get_nowait()
    await leased.ack()
    with raises(ShutDown):
        await q.get_nowait()


@clause(15)
async def an_immediate_shutdown_wakes_who_waits(t: Trial) -> None:
    q = t.queue(maxsize=1)
    await q.put("delayed", delay=5)
    put = await t.start(q.put("late"))
    with raises(ShutDown):
        await t.wakes(q.get(), q.shutdown(immediate=True))
    with raises(ShutDown):
        await put.result()


@clause(15)
async def after_an_immediate_shutdown_no_get_waits_for_what_is_leased(t: Trial) -> None:
    q = t.queue(retry=Retry(first=0, jitter=False))
    await q.put("leased")
    lease = await q.one()
    waiting = [await t.start(q.get()), await t.start(q.get_many(2))]
    await q.shutdown(immediate=True)
    for running in waiting:
        with raises(ShutDown):
            await running.result()
    for get in (q.get(), q.get_nowait(), q.get(timeout=5), q.get_many(2)):
        with raises(ShutDown):
            await get
    await lease.nack()
    again = await q.get_nowait()
    assert (again.payload, again.attempt) == ("leased", 2)
    await again.ack()


@clause(15)
async def consumers_handle_what_comes_back_after_an_immediate_shutdown(t: Trial) -> None:
    q = t.queue(retry=Retry(first=1, jitter=False))
    await q.put("leased")
    seen: list[int] = []

    async def handler(payload: Any) -> None:
        seen.append(1)
        if len(seen) == 1:
            await q.shutdown(immediate=True)
            raise ValueError("once")

    await t.handle_all(q, handler)
    assert len(seen) == 2


@clause(15)
async def shutdown_may_be_repeated_and_made_immediate(t: Trial) -> None:
    q = t.queue()
    await q.put("there")
    assert await q.shutdown() == []
    assert await q.shutdown() == []
    assert [m.payload for m in await q.shutdown(immediate=True)] == ["there"]
    assert await q.shutdown(immediate=True) == []


@clause(15)
async def join_returns_once_everything_is_settled(t: Trial) -> None:
    q = t.queue()
    await q.join()
    await q.join(0)
    await q.put(keys="a")
    lease = await q.one()
    await t.wakes(q.join(), lease.ack())
    await q.join(0)


@clause(15)
async def join_waits_for_what_is_put_while_it_waits(t: Trial) -> None:
    q = t.queue()
    await q.put(1)
    first = await q.one()
    joined = await t.start(q.join())
    await q.put(2)
    await first.ack()
    second = await q.one()
    assert not await joined.ended(0)
    await second.ack()
    await joined.result()


@clause(15)
async def a_dead_letter_does_not_keep_join(t: Trial) -> None:
    q = t.queue()
    await q.put()
    lease = await q.one()
    await t.wakes(q.join(), lease.reject("no"))


@clause(15)
async def join_times_out_with_not_drained(t: Trial) -> None:
    q = t.queue()
    await q.put()
    with raises(NotDrained):
        await t.until_ended(await t.start(q.join(0.01)))
    with raises(TimeoutError):
        await q.join(0)


@clause(15)
async def not_drained_names_what_is_leased_delayed_and_held(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=1, then="hold"))
    leased = await q.put("leased", keys="a")
    held = await q.put("held", keys="b")
    _, failing = await q.ready()
    await failing.nack()
    delayed = await q.put("delayed", delay=5)
    await q.put("waits", keys="a")
    with raises(NotDrained) as caught:
        await q.join(0)
    error = caught[0]
    assert (error.leased, error.held, error.delayed) == ((leased,), (held,), (delayed,))
    assert error.paused == ()


@clause(15)
async def not_drained_names_what_is_paused(t: Trial) -> None:
    q = t.queue()
    await q.put("a", keys="a")
    await q.pause("a")
    with raises(NotDrained) as caught:
        await q.join(0)
    assert caught[0].paused == (b"a",)
    await q.pause()
    with raises(NotDrained) as caught:
        await q.join(0)
    assert set(caught[0].paused) == {b"", b"a"}


@clause(15)
async def not_drained_says_so_in_words(t: Trial) -> None:
    q = t.queue()
    id = await q.put(keys="a")
    await q.one()
    with raises(NotDrained, "leased", str(id)):
        await q.join(0)


@clause(15)
async def a_full_queue_that_is_shut_down_says_shut_down(t: Trial) -> None:
    q = t.queue(maxsize=1)
    await q.put()
    with raises(Full):
        await q.put_nowait()
    await q.shutdown()
    with raises(ShutDown):
        await q.put_nowait()
