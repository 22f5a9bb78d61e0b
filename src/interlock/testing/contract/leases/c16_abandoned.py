"""Clause 16: a lease dropped unsettled counts as a nack, never as an ack; it warns."""

import asyncio
import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from interlock import Retry
from interlock.testing.contract.faces import LeaseFace
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial, raises

_AT_ONCE = Retry(attempts=None, first=0)


@contextmanager
def _warned() -> Iterator[list[str]]:
    """Yield a list of the texts of the block's resource warnings, filled once the block has
    ended."""
    texts: list[str] = []
    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
        gc.collect()
    texts += [str(w.message) for w in caught if issubclass(w.category, ResourceWarning)]


@clause(16)
async def a_dropped_lease_is_a_nack_and_warns(t: Trial) -> None:
    q = t.queue(retry=_AT_ONCE)
    id = await q.put("first", keys="a")
    await q.put("second", keys="a")
    lease = await q.one()
    with _warned() as texts:
        lease.drop()
    assert len(texts) == 1 and str(id) in texts[0]
    again = await q.one()
    assert (again.id, again.attempt) == (id, 2)
    assert again.token > lease.token
    assert (await q.stats()).acks == 0


@clause(16)
async def a_lease_in_a_cycle_of_garbage_is_dropped_too(t: Trial) -> None:
    q = t.queue(retry=_AT_ONCE)
    await q.put(keys="a")
    with _warned() as texts:
        cycle: list[object] = [await q.loose()]
        cycle.append(cycle)
        del cycle
    assert len(texts) == 1
    assert (await q.one()).attempt == 2


@clause(16)
async def a_dropped_lease_follows_the_retry_policy(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=2, first=5, jitter=False))
    await q.put("poison", keys="a")
    await q.put("next", keys="a")
    with _warned():
        (await q.one()).drop()
    assert await q.payloads() == []
    await t.advance(5)
    with _warned():
        (await q.one()).drop()
    (letter,) = await q.dead_letters()
    assert (letter.payload, letter.attempts, letter.error) == ("poison", 2, "abandoned")
    assert await q.handle() == ["next"]


@clause(16)
async def a_dropped_lease_wakes_who_waits_for_work(t: Trial) -> None:
    q = t.queue(retry=_AT_ONCE)
    await q.put(keys="a")
    lease = await q.one()

    async def drop() -> None:
        lease.drop()

    with _warned():
        assert (await t.wakes(q.get(), drop())).attempt == 2


@clause(16)
async def a_settled_lease_may_be_dropped(t: Trial) -> None:
    q = t.queue(retry=_AT_ONCE)
    leases: list[LeaseFace] = []
    for settle in (LeaseFace.ack, LeaseFace.nack, LeaseFace.release):
        await q.put()
        lease = await q.get_nowait()
        await settle(lease)
        leases.append(lease)
        await q.ack_many(await q.ready())
    await q.put()
    rejected = await q.one()
    await rejected.reject("no")
    before = await q.stats()
    with _warned() as texts:
        for lease in [*leases, rejected]:
            lease.drop()
    assert texts == []
    assert await q.stats() == before


@clause(16)
async def a_lost_lease_may_be_dropped(t: Trial) -> None:
    q = t.queue(lease=10, retry=_AT_ONCE)
    await q.put(keys="a")
    lost = await q.one()
    await t.advance(10)
    again = await q.one()
    with _warned() as texts:
        lost.drop()
    assert texts == []
    assert not again.lost
    assert again.attempt == 1
    await again.ack()


@clause(16)
async def a_consumer_that_dies_gives_back_what_it_leased(t: Trial) -> None:
    q = t.queue(retry=_AT_ONCE)
    await q.put("a", keys="a")

    async def die() -> None:
        lease = await q.loose()
        raise RuntimeError(lease.payload)

    with _warned() as texts:
        consumer = await t.start(die())
        with raises(RuntimeError, "a") as caught:
            await consumer.result()
        del consumer, caught
    assert len(texts) == 1
    lease = await q.one()
    assert (lease.payload, lease.attempt) == ("a", 2)


@clause(16, faces=("aio",))
async def a_cancelled_coroutine_gives_back_what_it_leased(t: Trial) -> None:
    q = t.queue(retry=_AT_ONCE)
    await q.put("a", keys="a")

    leased = asyncio.Event()

    async def consume() -> None:
        lease = await q.loose()
        leased.set()
        await asyncio.get_running_loop().create_future()
        await lease.ack()

    with _warned() as texts:
        consumer = await t.start(consume())
        await leased.wait()
        assert await consumer.cancel()
        del consumer
    assert len(texts) == 1
    assert (await q.one()).attempt == 2


@clause(16, faces=("aio",))
async def a_cancelled_get_loses_nothing(t: Trial) -> None:
    q = t.queue()
    for n in range(50):
        getter = await t.start(q.get())
        await q.put(n, keys="a")
        # The put may have readied the getter already: its lease must be returned unharmed.
        if not await getter.cancel():
            await (await getter.result()).release()
        lease = await q.one()
        assert (lease.payload, lease.attempt) == (n, 1)
        await lease.ack()
    assert (await q.stats()).unsettled == 0


@clause(16, faces=("aio",))
async def a_cancelled_get_passes_its_wake_up_on(t: Trial) -> None:
    q = t.queue()
    for n in range(50):
        first = await t.start(q.get())
        second = await t.start(q.get())
        await q.put(n)
        if not await first.cancel():
            await (await first.result()).release()
        lease = await second.result()
        assert lease.payload == n
        await lease.ack()


@clause(16, faces=("aio",))
async def a_cancelled_put_puts_nothing_or_all(t: Trial) -> None:
    q = t.queue(maxsize=1)
    await q.put("there")
    put = await t.start(q.put("cancelled", keys="a"))
    other = await t.start(q.put("other", keys="b"))
    assert await put.cancel()
    await (await q.one()).ack()
    await other.result()
    assert await q.handle() == ["other"]
    assert (await q.stats()).puts == 2
