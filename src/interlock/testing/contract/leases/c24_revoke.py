"""Clause 24: revoke ends a lease as if it had expired, and settles the message as requested."""

from interlock import LeaseLost, Retry
from interlock.testing.contract.faces import LeaseFace, QueueFace
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial, raises


async def _hung(q: QueueFace) -> LeaseFace:
    """Return a lease whose handler hangs on key a, with a message behind it."""
    await q.put("hung", keys="a")
    await q.put("behind", keys="a")
    return await q.one()


async def _dead_to(q: QueueFace, lease: LeaseFace) -> None:
    """Check that the lease's token is dead, and that the lease reports it."""
    assert lease.lost
    before = await q.stats()
    with raises(LeaseLost):
        await lease.ack()
    with raises(LeaseLost):
        await lease.extend(60)
    assert await q.stats() == before


@clause(24)
async def a_revoked_message_is_retried_unless_told(t: Trial) -> None:
    q = t.queue(retry=Retry(first=5, jitter=False))
    lease = await _hung(q)
    assert await q.revoke(lease.id)
    await _dead_to(q, lease)
    assert await q.payloads() == []
    assert await q.state(lease.id) == "backing_off"
    await t.advance(5)
    again = await q.one()
    assert (again.payload, again.attempt) == ("hung", 2)
    assert again.token > lease.token
    stats = await q.stats()
    assert (stats.revoked, stats.retries) == (1, 1)


@clause(24)
async def then_retry_follows_the_policy_to_its_end(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=1))
    lease = await _hung(q)
    assert await q.revoke(lease.id, then="retry")
    (letter,) = await q.dead_letters()
    assert (letter.id, letter.error) == (lease.id, "revoked")
    assert (await q.one()).payload == "behind"


@clause(24)
async def then_hold_keeps_the_lanes_closed(t: Trial) -> None:
    q = t.queue()
    lease = await _hung(q)
    assert await q.revoke(lease.id, then="hold")
    await _dead_to(q, lease)
    assert await q.state(lease.id) == "held"
    assert await q.payloads() == []
    assert await q.retry(lease.id)
    assert (await q.one()).attempt == 2


@clause(24)
async def then_dead_makes_a_dead_letter(t: Trial) -> None:
    q = t.queue()
    lease = await _hung(q)
    assert (await t.wakes(q.get(), q.revoke(lease.id, then="dead"))).payload == "behind"
    await _dead_to(q, lease)
    (letter,) = await q.dead_letters()
    assert (letter.id, letter.attempts, letter.error) == (lease.id, 1, "revoked")


@clause(24)
async def then_dead_holds_when_dead_letters_are_at_their_bound(t: Trial) -> None:
    q = t.queue(maxdead=1)
    await q.put()
    await (await q.one()).reject("fills the bound")
    lease = await _hung(q)
    assert await q.revoke(lease.id, then="dead")
    assert await q.state(lease.id) == "held"


@clause(24)
async def then_skip_settles_it(t: Trial) -> None:
    q = t.queue()
    lease = await _hung(q)
    assert (await t.wakes(q.get(), q.revoke(lease.id, then="skip"))).payload == "behind"
    await _dead_to(q, lease)
    assert await q.dead_letters() == []
    assert (await q.stats()).unsettled == 1


@clause(24)
async def only_a_leased_message_is_revoked(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=2, first=9, jitter=False, then="hold"))
    held = await q.put(keys="held")
    await (await q.one()).nack(delay=0)
    await (await q.one()).nack()
    backing_off = await q.put(keys="backing off")
    await (await q.one()).nack()
    settled = await q.put()
    await (await q.one()).ack()
    ready = await q.put(keys="b")
    waiting = await q.put(keys="b")
    delayed = await q.put(delay=5)
    before = await q.stats()
    for id in (held, backing_off, settled, ready, waiting, delayed, 10**9):
        for then in ("retry", "hold", "dead", "skip"):
            assert not await q.revoke(id, then=then)
    assert await q.stats() == before


@clause(24)
async def a_revoked_lease_may_be_dropped_without_harm(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=None, first=0))
    lease = await _hung(q)
    assert await q.revoke(lease.id)
    again = await q.one()
    lease.drop()
    assert not again.lost and again.attempt == 2
    await again.ack()


@clause(24)
async def a_lease_without_a_deadline_can_be_revoked(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=None, first=0))
    lease = await _hung(q)
    await t.advance(1_000_000)
    assert not lease.lost
    assert (await t.wakes(q.get(), q.revoke(lease.id))).attempt == 2


@clause(24)
async def a_revoked_barrier_keeps_its_place(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=None, first=0))
    await q.put("barrier", barrier=True)
    await q.put("behind", keys="a")
    lease = await q.one()
    assert await q.revoke(lease.id)
    again = await q.one()
    assert (again.payload, again.attempt) == ("barrier", 2)
