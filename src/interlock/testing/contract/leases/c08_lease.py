"""Clause 8: settling takes the lease's token; deadlines; tokens rise."""

from contextlib import AsyncExitStack
from datetime import timedelta
from itertools import pairwise

from interlock import InterlockError, LeaseLost, Retry
from interlock.testing.contract.faces import LeaseFace, QueueFace
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial, raises

_AT_ONCE = Retry(attempts=None, first=0)


@clause(8)
async def a_lease_says_what_it_is(t: Trial) -> None:
    q = t.queue()
    id = await q.put({"any": "payload"}, keys=["a", 7], shared="b")
    lease = await q.one()
    assert lease.payload == {"any": "payload"}
    assert (lease.id, lease.attempt, lease.lost) == (id, 1, False)
    assert lease.keys == frozenset({b"a", b"7"}) and lease.shared == frozenset({b"b"})
    assert isinstance(lease.token, int) and isinstance(lease.queue, str)


@clause(8)
async def a_settled_lease_still_says_what_it_was(t: Trial) -> None:
    for settle in _SETTLINGS:
        q = t.queue(retry=_AT_ONCE)
        id = await q.put("payload", keys=["a", "b"], shared="c")
        lease = await q.one()
        await _settle(lease, settle)
        assert (lease.id, lease.payload, lease.attempt) == (id, "payload", 1)
        assert lease.keys == {b"a", b"b"} and lease.shared == {b"c"}
        assert not lease.lost


@clause(8)
async def a_lost_lease_still_says_what_it_was(t: Trial) -> None:
    q = t.queue(lease=10, retry=_AT_ONCE)
    await q.put("payload", keys=["a", "b"], shared="c")
    lease = await q.one()
    await t.advance(10)
    assert lease.keys == {b"a", b"b"} and lease.shared == {b"c"}
    await (await q.one()).ack()
    assert lease.payload == "payload"
    assert lease.keys == {b"a", b"b"} and lease.shared == {b"c"}
    assert lease.lost


@clause(8)
async def there_is_no_deadline_unless_asked_for(t: Trial) -> None:
    q = t.queue()
    await q.put(keys="a")
    lease = await q.one()
    await t.advance(10 * 365 * 86_400)
    assert await q.payloads() == []
    assert not lease.lost
    await lease.ack()
    assert await q.empty()


@clause(8)
async def a_lease_runs_out_at_its_deadline(t: Trial) -> None:
    q = t.queue(lease=10, retry=_AT_ONCE)
    id = await q.put("a", keys="a")
    await q.put("b", keys="a")
    first = await q.one()
    await t.advance(9.999)
    assert await q.payloads() == []
    await t.advance(0.001)
    again = await q.one()
    assert (again.id, again.attempt) == (id, 1)
    assert again.token > first.token
    assert first.lost and not again.lost


@clause(8)
async def a_deadline_may_be_a_timedelta(t: Trial) -> None:
    q = t.queue(lease=timedelta(minutes=1), retry=_AT_ONCE)
    await q.put()
    lease = await q.one()
    await t.advance(59)
    assert await q.payloads() == []
    await t.advance(1)
    assert (await q.one()).id == lease.id


@clause(8)
async def a_lease_that_ran_out_changes_nothing(t: Trial) -> None:
    for settle in _SETTLINGS:
        q = t.queue(lease=10, retry=_AT_ONCE)
        await q.put("a", keys="a")
        await q.put("b", keys="a")
        first = await q.one()
        await t.advance(10)
        again = await q.one()
        await _is_lost(q, first, settle)
        await again.ack()
        assert (await q.one()).payload == "b"


@clause(8)
async def a_deadline_that_no_call_has_noticed_counts(t: Trial) -> None:
    q = t.queue(lease=10, retry=_AT_ONCE)
    await q.put("a", keys="a")
    lease = await q.one()
    await t.advance(10)
    with raises(LeaseLost):
        await lease.ack()
    assert lease.lost
    assert (await q.one()).attempt == 1


@clause(8)
async def a_settled_lease_changes_nothing(t: Trial) -> None:
    for settle in _SETTLINGS:
        q = t.queue()
        await q.put("a", keys="a")
        await q.put("b", keys="a")
        first = await q.one()
        await first.ack()
        second = await q.one()
        await _is_lost(q, first, settle)
        await second.ack()
        assert await q.empty()


@clause(8)
async def a_lease_is_settled_once_however_it_is_settled(t: Trial) -> None:
    for settle in _SETTLINGS:
        q = t.queue(retry=_AT_ONCE)
        await q.put()
        lease = await q.one()
        await _settle(lease, settle)
        if settle == "extend":
            continue
        await _is_lost(q, lease, "ack")


@clause(8)
async def an_old_token_does_not_settle_the_new_lease(t: Trial) -> None:
    q = t.queue(retry=_AT_ONCE)
    await q.put()
    first = await q.one()
    await first.nack()
    second = await q.one()
    assert second.id == first.id
    await _is_lost(q, first, "ack")
    assert not second.lost
    await second.ack()


@clause(8)
async def lease_lost_is_an_interlock_error(t: Trial) -> None:
    q = t.queue()
    await q.put()
    lease = await q.one()
    await lease.ack()
    with raises(InterlockError):
        await lease.ack()


@clause(8)
async def tokens_rise_with_every_grant(t: Trial) -> None:
    q = t.queue(retry=_AT_ONCE)
    await q.put_many(range(4))
    tokens: list[int] = []
    for _ in range(5):
        leases = [*await q.get_many(2), *await q.ready()]
        tokens.extend(lease.token for lease in leases)
        await t.advance(0.5)
        for lease in leases:
            await (lease.nack() if lease.payload % 2 else lease.release())
    assert len(tokens) == 20
    assert all(before < after for before, after in pairwise(tokens))
    assert tokens[-1] < 2**53


@clause(8)
async def a_token_is_no_less_than_the_time_in_microseconds(t: Trial) -> None:
    q = t.queue()
    await q.put(1)
    await q.put(2)
    await t.advance(1_000)
    first, second = await q.ready()
    assert first.token >= 1_000_000_000
    assert second.token == first.token + 1


@clause(8)
async def extend_counts_from_now(t: Trial) -> None:
    q = t.queue(lease=10, retry=_AT_ONCE)
    await q.put()
    lease = await q.one()
    await t.advance(9)
    await lease.extend(10)
    await t.advance(9.5)
    assert await q.payloads() == []
    await t.advance(0.5)
    await q.one()
    assert lease.lost


@clause(8)
async def extend_may_shorten_a_lease(t: Trial) -> None:
    q = t.queue(lease=1_000, retry=_AT_ONCE)
    await q.put()
    lease = await q.one()
    await lease.extend(timedelta(seconds=1))
    await t.advance(1)
    assert (await q.one()).id == lease.id


@clause(8)
async def extend_gives_a_deadline_to_a_lease_without_one(t: Trial) -> None:
    q = t.queue(retry=_AT_ONCE)
    await q.put()
    lease = await q.one()
    await lease.extend(5)
    await t.advance(5)
    await q.one()
    assert lease.lost


@clause(8)
async def an_expiry_wakes_who_waits_for_work(t: Trial) -> None:
    q = t.queue(lease=10, retry=_AT_ONCE)
    id = await q.put(keys="a")
    await q.one()
    lease = await t.wakes(q.get(), t.advance(10))
    assert (lease.id, lease.attempt) == (id, 1)


@clause(8)
async def many_leases_are_acked_in_one_call(t: Trial) -> None:
    q = t.queue()
    await q.put_many(range(5), keys=lambda n: n % 3)
    leases = await q.get_many(5)
    assert len(leases) == 3
    await q.ack_many(leases)
    assert await q.payloads() == [3, 4]
    with raises(LeaseLost):
        await leases[0].ack()


@clause(8)
async def one_lost_lease_does_not_keep_the_others_from_being_acked(t: Trial) -> None:
    q = t.queue(retry=_AT_ONCE)
    await q.put_many(["a", "b", "c"], keys=lambda payload: payload)
    leases = await q.ready()
    await leases[1].nack(delay=5)
    with raises(LeaseLost):
        await q.ack_many(leases)
    assert (await q.stats()).acks == 2
    assert not await q.payloads()
    await t.advance(5)
    assert await q.payloads() == ["b"]


@clause(8)
async def as_a_context_manager_it_gives_the_payload_and_acks(t: Trial) -> None:
    q = t.queue()
    await q.put("payload", keys="a")
    async with await q.one() as payload:
        assert payload == "payload"
        assert (await q.stats()).leased == 1
    assert (await q.stats()).acks == 1
    assert (await q.stats()).unsettled == 0


@clause(8)
async def a_lease_that_is_left_without_being_entered_is_settled(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=1))
    for payload in ("handled", "failed"):
        await q.put(payload)
    async with AsyncExitStack() as stack:
        # As ExitStack.push(): the manager was entered elsewhere, and exits here.
        stack.push_async_exit(await q.get())
    with raises(ZeroDivisionError):
        async with AsyncExitStack() as stack:
            stack.push_async_exit(await q.get())
            raise ZeroDivisionError
    stats = await q.stats()
    assert (stats.acks, stats.dead, stats.unsettled) == (1, 1, 0)


async def _settle(lease: LeaseFace, how: str) -> None:
    match how:
        case "ack":
            await lease.ack()
        case "nack":
            await lease.nack(delay=0)
        case "reject":
            await lease.reject("no")
        case "release":
            await lease.release()
        case "extend":
            await lease.extend(5)


async def _is_lost(q: QueueFace, lease: LeaseFace, settle: str) -> None:
    before = await q.stats()
    with raises(LeaseLost):
        await _settle(lease, settle)
    assert await q.stats() == before, f"a lost lease's {settle} changed something"


_SETTLINGS = ("ack", "nack", "reject", "release", "extend")
