"""Clause 25: a handler that waits for a message behind its own gets WouldDeadlock."""

import asyncio
import threading
from collections.abc import Awaitable
from typing import Any

from interlock import Empty, Full, Retry, ShutDown, WouldDeadlock
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial, raises


@clause(25)
async def a_put_into_a_full_queue_that_the_handler_alone_drains(t: Trial) -> None:
    q = t.queue(maxsize=1, retry=Retry(attempts=1))
    first = await q.put("first", keys="a")
    seen: list[BaseException] = []

    async def handler(payload: Any) -> None:
        with raises(WouldDeadlock, str(first)) as caught:
            await q.put("second", keys="b")
        seen.extend(caught)

    await t.handle_all(q, handler)
    assert len(seen) == 1
    stats = await q.stats()
    assert (stats.unsettled, stats.puts, stats.dead) == (0, 1, 0)


@clause(25)
async def a_batch_put_into_a_full_queue_that_the_handler_alone_drains(t: Trial) -> None:
    q = t.queue(maxsize=2, retry=Retry(attempts=1))
    first = await q.put("first", keys="a")
    seen: list[BaseException] = []

    async def handler(payload: Any) -> None:
        with raises(WouldDeadlock, str(first)) as caught:
            await q.put_many(["second", "third"], keys="b")
        seen.extend(caught)

    await t.handle_all(q, handler)
    assert len(seen) == 1


@clause(25)
async def a_put_that_does_not_wait_is_just_full(t: Trial) -> None:
    q = t.queue(maxsize=1, retry=Retry(attempts=1))
    await q.put("first", keys="a")
    seen: list[BaseException] = []

    async def handler(payload: Any) -> None:
        for put in (q.put_nowait("second"), q.put("second", timeout=0.01)):
            with raises(Full) as caught:
                await put
            seen.extend(caught)

    await t.handle_all(q, handler)
    assert len(seen) == 2


@clause(25)
async def a_put_that_another_handler_makes_room_for_waits(t: Trial) -> None:
    q = t.queue(maxsize=2, retry=Retry(attempts=1))
    await q.put("puts", keys="a")
    await q.put("other", keys="b")
    putting = asyncio.Event() if t.aio else threading.Event()
    handled: list[Any] = []

    async def handler(payload: Any) -> None:
        if payload == "puts":
            putting.set()
            await q.put("room", keys="c")
        elif payload == "other":
            waited: Any = putting.wait()
            if isinstance(waited, Awaitable):
                await waited
        handled.append(payload)

    await t.handle_all(q, handler, threads=2)
    assert sorted(handled) == ["other", "puts", "room"]


@clause(25)
async def a_put_into_a_queue_full_of_messages_that_wait_for_the_handlers_slot(t: Trial) -> None:
    q = t.queue(maxsize=3, limits={"bank": 1}, retry=Retry(attempts=1))
    first = await q.put("first", limit="bank")
    seen: list[BaseException] = []

    async def handler(payload: Any) -> None:
        if payload != "first":
            return
        await q.put("second", keys="a", limit="bank")
        await q.put("behind", keys="a")
        with raises(WouldDeadlock, str(first)) as caught:
            await q.put("more")
        seen.extend(caught)

    await t.handle_all(q, handler, threads=2)
    assert len(seen) == 1


@clause(25)
async def a_get_after_shutdown_waits_while_others_may_take_a_message(t: Trial) -> None:
    q = t.queue(limits={"bank": 2})
    await q.put("other", limit="bank")
    await q.put("first", keys="a", limit="bank")
    await q.put("unkeyed", limit="bank")
    other, lease = await q.ready()
    await q.shutdown()
    await other.ack()
    settled: list[Any] = []

    async def inside() -> None:
        async with lease:
            with raises(WouldDeadlock):
                # Not what has a free slot now: that has no key.
                await q.get(kind="keyed")
            assert settled, "a message could still be handled"

    running = await t.start(inside())
    unkeyed = await q.one()
    settled.append(unkeyed.payload)
    await unkeyed.ack()
    await running.result()
    assert settled == ["unkeyed"]


@clause(25)
async def a_get_after_shutdown_whose_caller_handles_all_that_is_left(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=1))
    first = await q.put("first", keys="a")
    await q.put("behind", keys="a")
    seen: list[BaseException] = []

    async def handler(payload: Any) -> None:
        await q.shutdown()
        for get in (q.get(), q.get_many(2), q.get(kind="keyed")):
            if payload == "first":
                with raises(WouldDeadlock, str(first)) as caught:
                    await get
                seen.extend(caught)
            else:
                get.close()

    await t.handle_all(q, handler)
    assert len(seen) == 3


@clause(25)
async def a_get_within_the_with_of_all_that_is_left_after_shutdown(t: Trial) -> None:
    q = t.queue()
    ids = [await q.put("outer"), await q.put("inner")]
    async with await q.get():
        async with await q.get():
            await q.shutdown()
            with raises(WouldDeadlock, str(ids[1]), "1 more"):
                await q.get()
        with raises(WouldDeadlock, str(ids[0])):
            await q.get()
        with raises(Empty):
            await t.until_ended(await t.start(q.get(timeout=0.01)))
    with raises(ShutDown):
        await q.get()


@clause(25)
async def shutdown_ends_the_get_of_who_handles_all_that_is_left(t: Trial) -> None:
    q = t.queue()
    await q.put("first")
    await q.put("second")
    other, lease = await q.ready()

    async def inside() -> None:
        async with lease:
            await q.get()

    running = await t.start(inside())
    await q.shutdown()
    assert not await running.ended(0)
    await other.ack()
    with raises(WouldDeadlock):
        await running.result()


@clause(25)
async def gets_after_shutdown_that_wait_for_each_other(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=1))
    await q.put("first")
    await q.put("second")
    ends: list[str] = []

    async def inside(lease: Any) -> None:
        async with lease:
            try:
                await q.get()
            except WouldDeadlock:
                ends.append("would deadlock")
            except ShutDown:
                ends.append("shut down")

    both = [await t.start(inside(lease)) for lease in await q.ready()]
    await q.shutdown()
    for running in both:
        await running.result()
    # One is refused and settles; then the other holds all remaining keys.
    assert ends == ["would deadlock"] * 2


@clause(25)
async def a_get_after_shutdown_waits_for_what_may_still_come(t: Trial) -> None:
    q = t.queue(retry=Retry(first=5, jitter=False))
    await q.put("handled")
    await q.put("fails")
    async with await q.get():
        failing = await q.one()
        await failing.nack()
        await q.shutdown()
        again = await t.wakes(q.get(), t.advance(5))
        assert again.payload == "fails"
        await again.ack()


@clause(25)
async def a_handler_that_joins_its_own_queue(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=1))
    first = await q.put("first", keys="a")
    seen: list[BaseException] = []

    async def handler(payload: Any) -> None:
        with raises(WouldDeadlock, str(first)) as caught:
            await q.join()
        seen.extend(caught)

    await t.handle_all(q, handler)
    assert len(seen) == 1


@clause(25)
async def a_handler_that_waits_for_a_result_behind_its_own_key(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=1))
    first = await q.put("first", keys="a")
    seen: list[BaseException] = []

    async def handler(payload: Any) -> None:
        if payload == "first":
            second = await q.put("second", keys="a", result_ttl=1_000_000)
            with raises(WouldDeadlock, str(first), str(second), "behind") as caught:
                await q.result(second)
            seen.extend(caught)

    await t.handle_all(q, handler)
    assert len(seen) == 1


@clause(25)
async def the_only_handler_waits_for_a_result_that_it_would_make_itself(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=1))
    first = await q.put("first", keys="a")
    seen: list[BaseException] = []

    async def handler(payload: Any) -> None:
        if payload == "first":
            second = await q.put("second", keys="b", result_ttl=1_000_000)
            with raises(WouldDeadlock, str(first), str(second), "needs a free handler") as caught:
                await q.result(second)
            seen.extend(caught)

    await t.handle_all(q, handler)
    assert len(seen) == 1


@clause(25)
async def a_handler_that_waits_for_a_result_that_needs_its_own_slot(t: Trial) -> None:
    q = t.queue(limits={"bank": 1}, retry=Retry(attempts=1))
    first = await q.put("first", limit="bank")
    seen: list[BaseException] = []

    async def handler(payload: Any) -> None:
        if payload == "first":
            second = await q.put("second", limit="bank", result_ttl=1_000_000)
            words = (str(first), str(second), "waits for a limit: 1 of 1 on bank")
            with raises(WouldDeadlock, *words) as caught:
                await q.result(second)
            seen.extend(caught)

    await t.handle_all(q, handler, threads=3)
    assert len(seen) == 1


@clause(25)
async def a_result_that_another_handler_makes_is_waited_for(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=1))
    await q.put("first", keys="a")
    handled: list[Any] = []

    async def handler(payload: Any) -> None:
        if payload == "first":
            second = await q.put("second", keys="b", result_ttl=1_000_000)
            await q.result(second)
        handled.append(payload)

    await t.handle_all(q, handler, threads=2)
    assert handled == ["second", "first"]
