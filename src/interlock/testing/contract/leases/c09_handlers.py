"""Clauses 9, 10 and 24 for handlers of `consume`: they raise, raise on purpose, or hang."""

import asyncio
import threading
from collections.abc import Awaitable
from typing import Any

from interlock import Reject, Retry, RetryAfter, current_lease
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial, raises

_AT_ONCE = Retry(attempts=None, first=0)


@clause(9)
async def a_consumer_goes_on_after_a_handler_that_raised(t: Trial) -> None:
    q = t.queue(retry=_AT_ONCE)
    await q.put_many(["a1", "b1", "a2"], keys=lambda payload: payload[0])
    handled: list[tuple[Any, int]] = []

    async def handler(payload: Any) -> None:
        attempt = current_lease().attempt
        if payload == "a1" and attempt == 1:
            raise ValueError("once")
        handled.append((payload, attempt))

    await t.handle_all(q, handler)
    assert sorted(handled) == [("a1", 2), ("a2", 1), ("b1", 1)]
    assert handled.index(("a1", 2)) < handled.index(("a2", 1))


@clause(9)
async def a_handler_may_say_when_to_try_again(t: Trial) -> None:
    q = t.queue(retry=_AT_ONCE)
    await q.put("payload", keys="a")
    times: list[float] = []

    async def handler(payload: Any) -> None:
        times.append(t.clock.now())
        if len(times) == 1:
            raise RetryAfter(30)

    await t.handle_all(q, handler)
    first, second = times
    assert second - first >= 30
    assert (await q.stats()).retries == 1


@clause(9)
async def a_handler_that_asks_for_later_keeps_place_keys_and_attempt(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=1))
    await q.put("first", keys=["a", "b"])
    await q.put("behind", keys="b")
    await q.put("elsewhere", keys="c")
    handled: list[tuple[Any, int]] = []
    times: list[float] = []

    async def handler(payload: Any) -> None:
        handled.append((payload, current_lease().attempt))
        if payload == "first":
            times.append(t.clock.now())
            if len(times) < 3:
                raise RetryAfter(30, attempt=False)

    await t.handle_all(q, handler)
    assert sorted(handled) == [("behind", 1), ("elsewhere", 1), *[("first", 1)] * 3]
    assert handled.index(("behind", 1)) > max(
        at for at, one in enumerate(handled) if one[0] == "first"
    )
    assert times[1] - times[0] >= 30 and times[2] - times[1] >= 30
    stats = await q.stats()
    assert (stats.releases, stats.retries, stats.dead) == (2, 0, 0)


@clause(10)
async def a_handler_may_reject_its_message(t: Trial) -> None:
    q = t.queue(retry=_AT_ONCE)
    await q.put("bad", keys="a")
    await q.put("good", keys="a")
    handled: list[Any] = []

    async def handler(payload: Any) -> None:
        if payload == "bad":
            raise Reject("malformed")
        handled.append(payload)

    await t.handle_all(q, handler)
    (letter,) = await q.dead_letters()
    assert (letter.payload, letter.attempts, letter.error) == ("bad", 1, "malformed")
    assert handled == ["good"]


@clause(10)
async def a_handler_that_always_raises_ends_as_a_dead_letter(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=3, first=1, jitter=False))
    await q.put("poison")

    async def handler(payload: Any) -> None:
        raise ZeroDivisionError(payload)

    await t.handle_all(q, handler)
    (letter,) = await q.dead_letters()
    assert letter.attempts == 3
    assert "ZeroDivisionError" in letter.error


@clause(24)
async def a_handlers_own_timeout_revokes_its_lease(t: Trial) -> None:
    q = t.queue(retry=_AT_ONCE)
    await q.put("hangs once", keys="a")
    retried = asyncio.Event() if t.aio else threading.Event()
    lost: list[bool] = []

    async def handler(payload: Any) -> None:
        if current_lease().attempt > 1:
            retried.set()
            return
        waited: Any = retried.wait()
        if isinstance(waited, Awaitable):
            await waited
        lost.append(current_lease().lost)

    await t.handle_all(q, handler, threads=2, timeout=0.05)
    assert lost == [True]
    assert (await q.stats()).revoked >= 1


@clause(9)
async def outside_of_a_handler_there_is_no_current_lease(t: Trial) -> None:
    q = t.queue()
    id = await q.put()
    with raises(LookupError):
        current_lease()
    async with await q.one():
        assert current_lease().id == id
    with raises(LookupError):
        current_lease()
