"""Clause 9: a failed message is redelivered in its own place, one attempt higher."""

from datetime import timedelta

from interlock import Retry
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial, raises

_AT_ONCE = Retry(attempts=None, first=0)


@clause(9)
async def a_nacked_message_keeps_its_place(t: Trial) -> None:
    q = t.queue(retry=_AT_ONCE)
    id = await q.put("first", keys="a")
    await q.put("second", keys="a")
    lease = await q.one()
    await lease.nack()
    again = await q.one()
    assert (again.id, again.payload, again.attempt) == (id, "first", 2)
    await again.ack()
    second = await q.one()
    assert (second.payload, second.attempt) == ("second", 1)


@clause(9)
async def only_what_conflicts_waits_for_a_retry(t: Trial) -> None:
    q = t.queue(retry=Retry(first=5, jitter=False))
    await q.put("failing", keys=["a", "b"])
    await (await q.one()).nack()
    await q.put("behind", keys="b")
    await q.put("reads behind", shared="a")
    await q.put("elsewhere", keys="c")
    await q.put("unkeyed")
    assert await q.payloads() == ["elsewhere", "unkeyed"]
    await t.advance(5)
    assert await q.payloads() == ["failing"]


@clause(9)
async def the_backoff_follows_the_policy(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=None, first=2, factor=3, longest=10, jitter=False))
    await q.put(keys="a")
    for attempt, backoff in enumerate([2, 6, 10, 10], start=1):
        lease = await q.one()
        assert lease.attempt == attempt
        await lease.nack()
        assert await q.state(lease.id) == "backing_off"
        await t.advance(backoff - 0.001)
        assert await q.payloads() == []
        await t.advance(0.001)
    assert (await q.one()).attempt == 5


@clause(9)
async def a_policy_takes_timedeltas(t: Trial) -> None:
    policy = Retry(first=timedelta(seconds=90), longest=timedelta(minutes=2), jitter=False)
    q = t.queue(retry=policy)
    await q.put()
    for backoff in (90, 120):
        await (await q.one()).nack()
        await t.advance(backoff - 0.001)
        assert await q.payloads() == []
        await t.advance(0.001)


@clause(9)
async def a_nack_may_name_its_delay(t: Trial) -> None:
    q = t.queue(retry=Retry(first=100, jitter=False))
    await q.put(keys="a")
    await (await q.one()).nack(delay=3)
    await t.advance(2.999)
    assert await q.payloads() == []
    await t.advance(0.001)
    lease = await q.one()
    assert lease.attempt == 2
    await lease.nack(timedelta(seconds=1))
    await t.advance(1)
    lease = await q.one()
    await lease.nack(delay=0)
    assert (await q.one()).attempt == 4


@clause(9)
async def the_second_lease_that_runs_out_is_a_failure(t: Trial) -> None:
    q = t.queue(lease=10, retry=Retry(first=5, jitter=False))
    id = await q.put("first", keys="a")
    await q.put("second", keys="a")
    await t.suspected(q)
    await t.advance(10)
    assert await q.payloads() == []
    assert await q.state(id) == "backing_off"
    await t.advance(5)
    again = await q.one()
    assert (again.payload, again.attempt) == ("first", 2)


@clause(9)
async def the_backoff_of_an_expiry_counts_from_when_it_is_noticed(t: Trial) -> None:
    q = t.queue(lease=10, retry=Retry(first=5, jitter=False))
    await q.put(keys="a")
    await t.suspected(q)
    await t.advance(100)
    assert await q.payloads() == []
    await t.advance(4.999)
    assert await q.payloads() == []
    await t.advance(0.001)
    assert (await q.one()).attempt == 2


@clause(9)
async def a_handler_that_raised_is_a_failure(t: Trial) -> None:
    q = t.queue(retry=_AT_ONCE)
    id = await q.put("first", keys="a")
    await q.put("second", keys="a")
    lease = await q.one()
    with raises(KeyError) as caught:
        async with lease as payload:
            raise KeyError(payload)
    assert caught[0].args == ("first",)
    again = await q.one()
    assert (again.id, again.attempt) == (id, 2)


@clause(9)
async def release_keeps_place_and_attempt(t: Trial) -> None:
    q = t.queue(retry=Retry(first=60, jitter=False))
    id = await q.put("first", keys="a")
    await q.put("second", keys="a")
    for _ in range(10):
        lease = await q.one()
        assert (lease.id, lease.attempt) == (id, 1)
        await lease.release()
    await (await q.one()).nack(delay=0)
    lease = await q.one()
    assert lease.attempt == 2
    await lease.release()
    assert (await q.one()).attempt == 2


@clause(9)
async def a_return_wakes_who_waits_for_work(t: Trial) -> None:
    q = t.queue(retry=_AT_ONCE)
    await q.put(keys="a")
    lease = await q.one()
    lease = await t.wakes(q.get(), lease.release())
    lease = await t.wakes(q.get(), lease.nack())
    assert lease.attempt == 2


@clause(9)
async def the_end_of_a_backoff_wakes_who_waits_for_work(t: Trial) -> None:
    q = t.queue(retry=Retry(first=5, jitter=False))
    await q.put(keys="a")
    await (await q.one()).nack()
    assert (await t.wakes(q.get(), t.advance(5))).attempt == 2


@clause(9)
async def several_backoffs_end_in_order_of_their_sequence(t: Trial) -> None:
    q = t.queue()
    await q.put_many(range(4))
    for lease, delay in zip(await q.ready(), [4, 3, 2, 1], strict=True):
        await lease.nack(delay=delay)
    await t.advance(2)
    assert await q.payloads() == [2, 3]
    await t.advance(2)
    assert await q.payloads() == [0, 1]


@clause(9)
async def jitter_spreads_the_backoff_and_stays_within_the_longest(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=None, first=100, longest=100))
    await q.put_many(range(50))
    for lease in await q.ready():
        await lease.nack()
    ends = []
    for moment in range(100):
        ends += [moment] * len(await q.ready())
        await t.advance(1)
    ends += [100] * len(await q.ready())
    assert len(ends) == 50
    assert len(set(ends)) > 5


@clause(9)
async def a_lease_that_runs_out_is_charged_only_where_its_message_was_alone(t: Trial) -> None:
    q = t.queue(lease=10, retry=Retry(attempts=1))
    ids = await q.put_many(["poison", "innocent", "innocent too"], keys=None)
    assert len(await q.get_many(3)) == 3
    # Their consumer died: the cause is unknown.
    await t.advance(10)
    assert (await q.stats()).retries == 0
    poison = await q.get_nowait()
    assert (poison.id, poison.attempt) == (ids[0], 1)
    await t.advance(10)
    for id in ids[1:]:
        lease = await q.get_nowait()
        assert (lease.id, lease.attempt) == (id, 1)
        await lease.ack()
    assert [letter.id for letter in await q.dead_letters()] == [ids[0]]


@clause(9)
async def a_handler_that_ends_by_itself_frees_its_message_of_suspicion(t: Trial) -> None:
    q = t.queue(lease=10, retry=Retry(attempts=2, first=0))
    await q.put(keys="a")
    await (await t.suspected(q)).nack()
    # As if no lease of it had expired.
    assert (await t.suspected(q)).attempt == 2
    await t.advance(10)
    assert await q.payloads() == []
    assert (await q.dead_letters())[0].attempts == 2


@clause(9)
async def a_release_keeps_the_suspicion(t: Trial) -> None:
    q = t.queue(lease=10, retry=Retry(attempts=1))
    await q.put(keys="a")
    await (await t.suspected(q)).release()
    assert (await q.one()).attempt == 1
    await t.advance(10)
    assert await q.payloads() == []
    assert len(await q.dead_letters()) == 1
