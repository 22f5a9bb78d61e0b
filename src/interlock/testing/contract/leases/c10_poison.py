"""Clause 10: the settlement of a message whose attempts are used up."""

from interlock import Retry
from interlock.testing.contract.faces import QueueFace
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial, raises

_DEAD = Retry(attempts=2, first=0, then="dead")
_HOLD = Retry(attempts=2, first=0, then="hold")


async def _use_up(q: QueueFace, id: int, attempts: int = 2) -> None:
    """Lease the one ready message, which must be `id`, and nack it, this many times."""
    for _ in range(attempts):
        lease = await q.one()
        assert lease.id == id
        await lease.nack(error="boom")


@clause(10)
async def used_up_attempts_make_a_dead_letter(t: Trial) -> None:
    q = t.queue(retry=_DEAD)
    id = await q.put("poison", keys=["a", "b"], shared="c", priority=3)
    await _use_up(q, id)
    (letter,) = await q.dead_letters()
    assert (letter.id, letter.payload, letter.attempts) == (id, "poison", 2)
    assert (set(letter.keys), set(letter.shared)) == ({b"a", b"b"}, {b"c"})
    assert letter.priority == 3
    assert "boom" in str(letter.error)


@clause(10)
async def a_dead_letter_lets_the_lanes_move_on(t: Trial) -> None:
    q = t.queue(retry=_DEAD)
    id = await q.put("poison", keys="a")
    await q.put("next", keys="a")
    await _use_up(q, id)
    assert await q.handle() == ["next"]
    stats = await q.stats()
    assert (stats.dead, stats.dead_lettered, stats.unsettled) == (1, 1, 0)


@clause(10)
async def the_default_is_five_attempts_then_dead(t: Trial) -> None:
    q = t.queue()
    id = await q.put("poison")
    for attempt in range(1, 6):
        lease = await q.one()
        assert lease.attempt == attempt
        await lease.nack(delay=0)
    assert await q.empty()
    (letter,) = await q.dead_letters()
    assert (letter.id, letter.attempts) == (id, 5)


@clause(10)
async def an_exception_is_kept_as_the_error(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=1))
    await q.put("nacked")
    await (await q.one()).nack(error=ValueError("no such account"))
    await q.put("raised")
    with raises(ZeroDivisionError):
        async with await q.one():
            raise ZeroDivisionError("by zero")
    nacked, raised = await q.dead_letters()
    assert "ValueError" in nacked.error and "no such account" in nacked.error
    assert "ZeroDivisionError" in raised.error and "by zero" in raised.error


@clause(10)
async def an_exception_that_is_not_retried_is_given_up_at_once(t: Trial) -> None:
    q = t.queue(retry=Retry(on=(OSError,)))
    await q.put(keys="a")
    await q.put("next", keys="a")
    with raises(KeyError):
        async with await q.one():
            raise KeyError("no such account")
    (letter,) = await q.dead_letters()
    assert letter.attempts == 1 and "KeyError" in letter.error
    assert await q.handle() == ["next"]


@clause(10)
async def an_exception_that_is_not_retried_is_held_where_the_policy_holds(t: Trial) -> None:
    q = t.queue(retry=Retry(on=(OSError,), then="hold"))
    id = await q.put(keys="a")
    await q.put("next", keys="a")
    with raises(KeyError):
        async with await q.one():
            raise KeyError("no such account")
    assert await q.state(id) == "held" and await q.payloads() == []
    assert await q.bury(id)
    (letter,) = await q.dead_letters()
    assert letter.attempts == 1
    assert "KeyError" in letter.error and "no such account" in letter.error


@clause(10)
async def the_last_error_is_kept(t: Trial) -> None:
    q = t.queue(retry=_DEAD)
    await q.put()
    await (await q.one()).nack(error="first")
    await (await q.one()).nack(error="last")
    assert (await q.dead_letters())[0].error == "last"


@clause(10)
async def an_expiry_may_use_up_the_attempts(t: Trial) -> None:
    q = t.queue(lease=10, retry=Retry(attempts=1))
    await q.put(keys="a")
    await q.put("next", keys="a")
    await t.suspected(q)
    await t.advance(10)
    assert (await q.one()).payload == "next"
    assert (await q.dead_letters())[0].error == "lease expired"


@clause(10)
async def the_bound_holds_for_a_nack_that_names_its_delay(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=1))
    await q.put()
    await (await q.one()).nack(delay=5)
    assert len(await q.dead_letters()) == 1
    assert await q.empty()


@clause(10)
async def for_ever_is_for_ever(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=None, first=0))
    await q.put(keys="a")
    for attempt in range(1, 101):
        lease = await q.one()
        assert lease.attempt == attempt
        await lease.nack()
    assert await q.dead_letters() == []


@clause(10)
async def reject_makes_a_dead_letter_at_once(t: Trial) -> None:
    for retry in (Retry(attempts=None, first=0), _DEAD, _HOLD):
        q = t.queue(retry=retry)
        id = await q.put("bad", keys="a")
        await q.put("next", keys="a")
        await (await q.one()).reject("malformed")
        assert (await q.one()).payload == "next"
        (letter,) = await q.dead_letters()
        assert (letter.id, letter.attempts, letter.error) == (id, 1, "malformed")


@clause(10)
async def hold_keeps_the_lanes_closed(t: Trial) -> None:
    q = t.queue(retry=_HOLD)
    id = await q.put("poison", keys=["a", "b"])
    await _use_up(q, id)
    await q.put("behind", keys="b")
    await q.put("elsewhere", keys="c")
    assert await q.payloads() == ["elsewhere"]
    await t.advance(1_000_000)
    assert await q.payloads() == []
    assert await q.state(id) == "held"
    assert await q.dead_letters() == []
    assert (await q.stats()).held == 1


@clause(10)
async def retry_puts_a_held_message_back_in_its_place(t: Trial) -> None:
    q = t.queue(retry=_HOLD)
    id = await q.put("poison", keys="a")
    await q.put("behind", keys="a")
    await _use_up(q, id)
    lease = await t.wakes(q.get(), q.retry(id))
    assert (lease.id, lease.attempt) == (id, 3)
    await lease.ack()
    assert (await q.one()).payload == "behind"


@clause(10)
async def a_held_message_that_fails_again_is_held_again(t: Trial) -> None:
    q = t.queue(retry=_HOLD)
    id = await q.put(keys="a")
    await _use_up(q, id)
    assert await q.retry(id)
    await _use_up(q, id, attempts=1)
    assert await q.state(id) == "held"


@clause(10)
async def skip_settles_a_held_message(t: Trial) -> None:
    q = t.queue(retry=_HOLD)
    id = await q.put("poison", keys="a")
    await q.put("behind", keys="a")
    await _use_up(q, id)
    assert (await t.wakes(q.get(), q.skip(id))).payload == "behind"
    assert await q.dead_letters() == []
    assert (await q.stats()).skipped == 1


@clause(10)
async def bury_makes_a_held_message_a_dead_letter(t: Trial) -> None:
    q = t.queue(retry=_HOLD)
    id = await q.put("poison", keys="a")
    await q.put("behind", keys="a")
    await _use_up(q, id)
    assert (await t.wakes(q.get(), q.bury(id))).payload == "behind"
    (letter,) = await q.dead_letters()
    assert (letter.id, letter.attempts) == (id, 2)
    assert "boom" in letter.error


@clause(10)
async def an_operator_may_act_on_what_is_backing_off(t: Trial) -> None:
    q = t.queue(retry=Retry(first=60, jitter=False))
    ids = await q.put_many(["retry", "skip", "bury"], keys=lambda payload: payload)
    for lease in await q.ready():
        await lease.nack(error="boom")
    assert await q.retry(ids[0]) and await q.skip(ids[1]) and await q.bury(ids[2])
    lease = await q.one()
    assert (lease.payload, lease.attempt) == ("retry", 2)
    assert [letter.payload for letter in await q.dead_letters()] == ["bury"]
    assert (await q.stats()).unsettled == 1


@clause(10)
async def an_operator_acts_on_nothing_else(t: Trial) -> None:
    q = t.queue(retry=_DEAD)
    leased = await q.put("leased", keys="a")
    waiting = await q.put("waiting", keys="a")
    delayed = await q.put("delayed", delay=5)
    settled = await q.put("settled", keys="b")
    dead = await q.put("dead", keys="c")
    leases = {lease.payload: lease for lease in await q.ready()}
    await leases["settled"].ack()
    await leases["dead"].reject("no")
    ready = await q.put("ready", keys="d")
    before = await q.stats()
    for id in (leased, waiting, delayed, settled, dead, ready, 10**9):
        assert not await q.retry(id)
        assert not await q.skip(id)
        assert not await q.bury(id)
    assert await q.stats() == before
    assert not leases["leased"].lost
