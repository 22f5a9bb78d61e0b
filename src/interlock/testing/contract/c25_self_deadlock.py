"""Clause 25: a handler that waits for what waits for the handler itself gets WouldDeadlock."""

import asyncio
import threading
from collections.abc import Awaitable
from typing import Any

from interlock import Full, Retry, WouldDeadlock
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
