"""Clause 10: dead letters, requeueing them, and their own bound."""

from interlock import Full, Retry, ShutDown
from interlock.testing.contract.faces import QueueFace
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial, raises


async def _dead(q: QueueFace, payload: str, **options: object) -> int:
    """Put a message, reject it and return its id; no other message may be ready."""
    id = await q.put(payload, **options)
    await (await q.one()).reject(f"{payload} is bad")
    return id


@clause(10)
async def a_requeued_letter_is_a_new_message_at_the_end(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=2, first=0))
    id = await _dead(q, "poison", keys="a", shared="s", priority=7)
    await q.put("before", keys="a")
    new = await q.requeue(id)
    await q.put("after", keys="a")
    assert new > id
    assert await q.dead_letters() == []
    before = await q.one()
    assert before.payload == "before"
    await before.ack()
    lease = await q.one()
    assert (lease.id, lease.payload, lease.attempt) == (new, "poison", 1)
    assert lease.keys == {b"a"} and lease.shared == {b"s"}
    await lease.nack()
    await (await q.one()).nack()
    (letter,) = await q.dead_letters()
    assert (letter.id, letter.priority, letter.attempts) == (new, 7, 2)
    assert await q.handle() == ["after"]
    assert (await q.stats()).requeued == 1


@clause(10)
async def a_requeue_is_free_of_deduplication(t: Trial) -> None:
    q = t.queue()
    id = await _dead(q, "poison", dedup="once")
    new = await q.requeue(id)
    assert new != id
    assert (await q.one()).id == new
    assert await q.put("poison", dedup="once") == id


@clause(10)
async def a_queue_that_is_shut_down_takes_no_requeue(t: Trial) -> None:
    q = t.queue()
    id = await _dead(q, "poison")
    await q.shutdown()
    with raises(ShutDown):
        await q.requeue(id)
    with raises(KeyError):
        await q.requeue(10**9)
    assert [letter.id for letter in await q.dead_letters()] == [id]
    with raises(ShutDown):
        await q.get()


@clause(10)
async def a_requeue_wakes_who_waits_for_work(t: Trial) -> None:
    q = t.queue()
    id = await _dead(q, "poison", keys="a")
    assert (await t.wakes(q.get(), q.requeue(id))).payload == "poison"


@clause(10)
async def a_requeued_barrier_is_a_barrier_again(t: Trial) -> None:
    q = t.queue()
    id = await _dead(q, "barrier", barrier=True)
    await q.put("before", keys="a")
    await q.requeue(id)
    await q.put("after", keys="b")
    before = await q.one()
    assert before.payload == "before"
    await before.ack()
    assert (await q.one()).payload == "barrier"


@clause(10)
async def a_requeue_needs_room(t: Trial) -> None:
    q = t.queue(maxsize=1)
    id = await _dead(q, "poison")
    await q.put("fills")
    with raises(Full):
        await q.requeue(id)
    assert [letter.id for letter in await q.dead_letters()] == [id]
    assert await q.handle() == ["fills"]
    assert await q.requeue(id) > id


@clause(10)
async def dead_letters_are_listed_oldest_first(t: Trial) -> None:
    q = t.queue()
    first = await q.put("put first", keys="a")
    second = await q.put("put second", keys="b")
    leases = await q.ready()
    await leases[1].reject("dies first")
    await leases[0].reject("dies second")
    assert [letter.id for letter in await q.dead_letters()] == [second, first]
    assert [letter.id for letter in await q.dead_letters(1)] == [second]
    assert [letter.id for letter in await q.dead_letters(limit=2)] == [second, first]


@clause(10)
async def dead_letters_may_be_asked_for_by_key(t: Trial) -> None:
    q = t.queue()
    await _dead(q, "writes a", keys=["a", "b"])
    await _dead(q, "unkeyed")
    await _dead(q, "reads a", shared="a")
    await _dead(q, "writes 7", keys="7")
    assert [letter.payload for letter in await q.dead_letters(key="a")] == ["writes a", "reads a"]
    assert [letter.payload for letter in await q.dead_letters(key=7)] == ["writes 7"]
    assert [letter.payload for letter in await q.dead_letters(1, key="a")] == ["writes a"]
    assert await q.dead_letters(key="nobody") == []


@clause(10)
async def when_dead_letters_reach_their_bound_the_policy_is_hold(t: Trial) -> None:
    q = t.queue(maxdead=1, retry=Retry(attempts=1))
    await q.put("first", keys="a")
    await (await q.one()).nack()
    second = await q.put("second", keys="a")
    third = await q.put("third", keys="b")
    await q.put("behind", keys="a")
    leases = {lease.id: lease for lease in await q.ready()}
    await leases[second].nack()
    await leases[third].reject("no")
    assert [letter.payload for letter in await q.dead_letters()] == ["first"]
    assert (await q.state(second), await q.state(third)) == ("held", "held")
    assert await q.payloads() == []
    assert not await q.bury(second)
    assert await q.state(second) == "held"


@clause(10)
async def room_among_the_dead_letters_lifts_the_hold_for_later_ones(t: Trial) -> None:
    q = t.queue(maxdead=1)
    first = await _dead(q, "first")
    second = await _dead(q, "second", keys="a")
    assert await q.state(second) == "held"
    new = await q.requeue(first)
    assert await q.state(second) == "held"
    assert await q.bury(second)
    assert [letter.id for letter in await q.dead_letters()] == [second]
    await (await q.one()).reject("full again")
    assert await q.state(new) == "held"


@clause(10)
async def a_dead_letter_is_discarded(t: Trial) -> None:
    q = t.queue()
    first, second = await _dead(q, "one", keys="a"), await _dead(q, "two", keys="a")
    alive = await q.put("three", keys="a")
    assert await q.discard(first)
    assert not await q.discard(first) and not await q.discard(alive)
    assert [letter.id for letter in await q.dead_letters()] == [second]
    with raises(KeyError):
        await q.requeue(first)
    assert (await q.stats()).dead == 1
    assert await q.purge("dead") == 1
    assert await q.dead_letters() == [] and await q.payloads() == ["three"]


@clause(10)
async def dead_letters_of_a_key_are_purged(t: Trial) -> None:
    q = t.queue()
    of_a = [await _dead(q, f"of a {n}", keys=["a", f"own {n}"]) for n in range(3)]
    read = await _dead(q, "reader", shared="a")
    others = [await _dead(q, "b", keys="b"), await _dead(q, "none")]
    alive = await q.put("alive", keys="a")
    assert await q.purge("dead", key="nobody's") == 0
    assert await q.purge("dead", key="a") == len([*of_a, read])
    assert [letter.id for letter in await q.dead_letters()] == others
    assert [one.id for one in await q.messages()] == [alive]
    assert await q.purge("dead", key="a") == 0


@clause(10)
async def a_discarded_letter_makes_room_for_another(t: Trial) -> None:
    q = t.queue(maxdead=1, retry=Retry(attempts=1))
    first = await _dead(q, "one")
    held = await q.put("two")
    await (await q.one()).nack()
    assert await q.state(held) == "held"
    assert not await q.bury(held)
    assert await q.discard(first)
    assert await q.bury(held)
    assert [letter.id for letter in await q.dead_letters()] == [held]


@clause(10)
async def a_dead_letter_is_dropped_a_while_after_it_was_seen_too_old(t: Trial) -> None:
    q = t.queue(maxdead=2, dead_ttl=60)
    first = await _dead(q, "first", keys="a")
    await t.advance(20)
    second = await _dead(q, "second", keys="a")
    held = await q.put("held", keys="a")
    await (await q.one()).reject("no room")
    assert await q.state(held) == "held"
    await t.advance(39.999)
    assert not await q.bury(held)
    await t.advance(0.001)
    # The first is too old from here on; it is dropped after the same time again, because its age
    # limit is short.
    assert not await q.bury(held)
    await t.advance(59.999)
    assert not await q.bury(held)
    await t.advance(0.001)
    # The second, too old by now, was not when the first was found to be.
    assert await q.bury(held)
    assert [letter.id for letter in await q.dead_letters()] == [second, held]
    with raises(KeyError):
        await q.requeue(first)
    stats = await q.stats()
    assert (stats.dead, stats.dead_lettered, stats.dead_expired) == (2, 3, 1)


@clause(10)
async def no_dead_letter_goes_within_ten_minutes_of_a_call_that_found_it_too_old(t: Trial) -> None:
    q = t.queue(dead_ttl=30 * 86_400)
    ids = [await _dead(q, "one"), await _dead(q, "two")]
    await t.advance(31 * 86_400)
    for _ in range(2):
        await q.put("next")
    await t.advance(599.999)
    await q.put("next")
    assert [letter.id for letter in await q.dead_letters()] == ids
    await t.advance(0.001)
    await q.put("next")
    assert await q.dead_letters() == []


@clause(10)
async def a_dead_letter_without_an_age_limit_stays(t: Trial) -> None:
    q = t.queue(dead_ttl=None)
    id = await _dead(q, "old")
    await t.advance(400 * 86_400)
    await q.put("next")
    assert [letter.id for letter in await q.dead_letters()] == [id]


@clause(20)
async def dead_letters_go_by_age_a_thousand_at_a_call(t: Trial) -> None:
    q = t.queue(dead_ttl=60, retry=Retry(attempts=1))
    ids = []
    for _ in range(4):
        ids += await q.put_many([str(n) for n in range(1_000)])
        for lease in await q.get_many(1_000):
            await lease.reject("bad")
    await t.advance(100)
    await q.put("first")
    await (await q.one()).ack()
    await t.advance(60)
    await q.put("next")
    (letter,) = await q.dead_letters(limit=1)
    # In one process, moving the clock and reading count as such calls too.
    assert ids.index(letter.id) in (1_000, 3_000)
    for _ in range(3):
        await q.put("next")
    assert (await q.stats()).dead_expired == 4_000 and await q.dead_letters() == []
