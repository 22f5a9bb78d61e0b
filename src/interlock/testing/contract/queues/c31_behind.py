"""Clause 31: what happens to messages that wait behind a failure, or on a paused key."""

from typing import Any

from interlock import Full, NotDrained, Retry
from interlock.testing.contract.faces import QueueFace
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial, raises

_HOLD = Retry(attempts=1, then="hold")
_DEAD = Retry(attempts=1, then="dead")


async def _stuck(q: QueueFace, **keys: Any) -> int:
    """Put a message that is held at once, and return its id."""
    id = await q.put("stuck", **(keys or {"keys": "a"}))
    lease = await q.one()
    assert lease.payload == "stuck"
    await lease.nack()
    return id


@clause(31)
async def without_behind_a_stuck_key_holds_up_its_messages(t: Trial) -> None:
    q = t.queue(retry=_HOLD)
    await _stuck(q)
    await q.put("behind", keys=["a", "b"])
    await q.put("b", keys="b")
    assert await q.handle() == []
    assert (await q.stats()).parked == 0


@clause(31)
async def a_message_behind_a_held_one_is_parked(t: Trial) -> None:
    q = t.queue(retry=_HOLD, behind="park")
    await q.put("stuck", keys="a")
    lease = await q.one()
    behind = await q.put("behind", keys=["a", "b"])
    await q.put("b", keys="b")
    await lease.nack()
    assert await q.state(behind) == "parked"
    assert await q.handle() == ["b"]
    stats = await q.stats()
    assert (stats.parked, stats.waiting, stats.held, stats.unsettled) == (1, 0, 1, 2)


@clause(31)
async def a_put_behind_a_held_one_is_parked(t: Trial) -> None:
    q = t.queue(retry=_HOLD, behind="park")
    stuck = await _stuck(q)
    behind = await q.put("behind", keys=["a", "b"])
    await q.put("b", keys="b")
    assert await q.state(behind) == "parked"
    assert await q.handle() == ["b"]
    await q.skip(stuck)
    assert await q.handle() == ["behind"]


@clause(31)
async def one_stuck_account_stops_no_other(t: Trial) -> None:
    q = t.queue(retry=_HOLD, behind="park")
    await _stuck(q, keys="account:0")
    for n in range(20):
        await q.put(n, keys=[f"account:{n}", f"account:{n + 1}"])
    assert await q.handle() == list(range(1, 20))


@clause(31)
async def a_parked_message_holds_up_no_barrier(t: Trial) -> None:
    q = t.queue(behind="park")
    await q.pause("a")
    await q.put("parked", keys="a")
    await q.put("barrier", barrier=True)
    assert await q.handle() == ["barrier"]
    await q.resume("a")
    assert await q.handle() == ["parked"]


@clause(31)
async def parked_messages_return_in_their_first_order(t: Trial) -> None:
    q = t.queue(behind="park")
    await q.pause("a")
    await q.pause("b")
    # The first waits for both, and is moved from the list of a to that of b.
    await q.put(1, keys=["a", "b"])
    for n in (2, 3):
        await q.put(n, keys="b")
    await q.resume("a")
    assert (await q.stats()).parked == 3
    await q.put(4, keys="b")
    await q.resume("b")
    assert await q.handle() == [1, 2, 3, 4]


@clause(31)
async def a_sweep_keeps_the_order_of_what_it_parks(t: Trial) -> None:
    q = t.queue(retry=_HOLD, behind="park")
    await q.put("stuck", keys="a")
    lease = await q.one()
    for n in range(5):
        await q.put(n, keys=["a", f"other:{n}"])
    await lease.nack()
    await q.put(5, keys="a")
    (held,) = [m.id for m in await q.messages() if m.payload == "stuck"]
    await q.skip(held)
    assert await q.handle() == list(range(6))


@clause(31)
async def nothing_put_after_the_return_overtakes(t: Trial) -> None:
    q = t.queue(behind="park")
    await q.pause("a")
    await q.put("parked", keys=["a", "b"])
    await q.put("overtakes", keys="b")
    await q.resume("a")
    await q.put("later a", keys="a")
    await q.put("later b", keys="b")
    assert await q.handle() == ["overtakes", "parked", "later a", "later b"]


@clause(31)
async def a_retry_of_the_held_message_opens_no_key(t: Trial) -> None:
    q = t.queue(retry=_HOLD, behind="park")
    stuck = await _stuck(q)
    behind = await q.put("behind", keys="a")
    await q.retry(stuck)
    assert await q.state(behind) == "parked"
    lease = await q.one()
    later = await q.put("later", keys="a")
    assert await q.state(later) == "parked"
    await lease.ack()
    assert await q.handle() == ["behind", "later"]


@clause(31)
async def a_paused_key_parks_and_a_paused_queue_does_not(t: Trial) -> None:
    q = t.queue(behind="park")
    id = await q.put("a", keys="a")
    await q.pause()
    assert await q.state(id) == "waiting"
    await q.pause("a")
    assert await q.state(id) == "parked"
    await q.resume("a")
    await q.resume()
    assert await q.handle() == ["a"]


@clause(31)
async def a_message_that_was_handed_out_keeps_its_places(t: Trial) -> None:
    q = t.queue(behind="park")
    id = await q.put("first", keys=["a", "b"])
    lease = await q.one()
    await q.pause("a")
    await lease.release()
    await q.put("b", keys="b")
    assert await q.state(id) == "waiting"
    assert await q.handle() == []
    await q.resume("a")
    assert await q.handle() == ["first", "b"]


@clause(31)
async def a_key_paused_and_stuck_opens_when_both_end(t: Trial) -> None:
    q = t.queue(retry=_HOLD, behind="park")
    stuck = await _stuck(q)
    await q.pause("a")
    await q.put("behind", keys="a")
    await q.resume("a")
    assert (await q.stats()).parked == 1
    await q.pause("a")
    await q.skip(stuck)
    assert (await q.stats()).parked == 1
    await q.resume("a")
    assert await q.handle() == ["behind"]


@clause(31)
async def a_reader_beside_a_held_reader_runs(t: Trial) -> None:
    q = t.queue(retry=_HOLD, behind="park")
    stuck = await _stuck(q, shared="a")
    await q.put("reader", shared="a")
    writer = await q.put("writer", keys="a")
    behind = await q.put("behind the writer", shared="a")
    assert [await q.state(id) for id in (writer, behind)] == ["parked", "parked"]
    assert await q.handle() == ["reader"]
    await q.skip(stuck)
    assert await q.handle() == ["writer", "behind the writer"]


@clause(31)
async def after_eight_times_a_message_waits_in_place(t: Trial) -> None:
    q = t.queue(behind="park")
    id = await q.put("a", keys=["a", "b"])
    for _ in range(8):
        await q.pause("a")
        assert await q.state(id) == "parked"
        await q.resume("a")
    await q.pause("a")
    assert await q.state(id) == "waiting"
    await q.put("b", keys="b")
    assert await q.handle() == []


@clause(31)
async def a_message_that_stays_keeps_those_before_it(t: Trial) -> None:
    q = t.queue(behind="park")
    before = await q.put("before", keys="a")
    stays = await q.put("stays", keys="a", behind="wait")
    after = await q.put("after", keys="a")
    await q.pause("a")
    assert [await q.state(id) for id in (before, stays, after)] == ["waiting", "waiting", "parked"]
    await q.resume("a")
    assert await q.handle() == ["before", "stays", "after"]


@clause(31)
async def a_put_beyond_half_of_the_bound_is_full_at_once(t: Trial) -> None:
    q = t.queue(maxsize=4, behind="park")
    await q.pause("a")
    await q.put_many([1, 2], keys="a")
    with raises(Full, "half"):
        await q.put(3, keys="a")
    with raises(Full, "half"):
        await q.put_many(["b", 3], keys=lambda payload: "b" if payload == "b" else "a")
    await q.put("b", keys="b")
    await q.put("waits", keys="a", behind="wait")
    assert await q.handle() == ["b"]


@clause(31)
async def bury_buries_what_waits_with_an_error_that_names_the_held_one(t: Trial) -> None:
    q = t.queue(retry=_HOLD, behind="bury")
    await q.put("stuck", keys="a")
    lease = await q.one()
    behind = [await q.put(n, keys=["a", "b"]) for n in range(2)]
    await lease.nack()
    behind.append(await q.put(2, keys="a"))
    dead = {letter.id: letter.error for letter in await q.dead_letters()}
    assert dead == dict.fromkeys(behind, f"behind message {lease.id}")
    await q.put("b", keys="b")
    assert await q.handle() == ["b"]


@clause(31)
async def cancel_cancels_and_frees_the_dedup_string(t: Trial) -> None:
    q = t.queue(retry=_HOLD, behind="cancel")
    await q.put("stuck", keys="a")
    lease = await q.one()
    await q.put("behind", keys="a", dedup="d")
    await lease.nack()
    stats = await q.stats()
    assert (stats.cancelled, stats.unsettled) == (1, 1)
    assert not (await q.put_known("again", keys="b", dedup="d")).known


@clause(31)
async def a_pause_buries_nothing(t: Trial) -> None:
    q = t.queue(behind="bury")
    await q.put("before", keys="a")
    await q.pause("a")
    await q.put("after", keys="a")
    await q.resume("a")
    assert await q.handle() == ["before", "after"]


@clause(31)
async def a_dead_message_takes_those_behind_it(t: Trial) -> None:
    q = t.queue(retry=_DEAD, behind="bury")
    first = await q.put("first", keys="a")
    lease = await q.one()
    second = await q.put("second", keys="a")
    await lease.nack()
    assert [letter.id for letter in await q.dead_letters()] == [second, first]
    await q.put("third", keys="a")
    assert await q.handle() == ["third"]


@clause(31)
async def a_dead_message_parks_nothing(t: Trial) -> None:
    q = t.queue(retry=_DEAD, behind="park")
    await q.put("first", keys="a")
    lease = await q.one()
    await q.put("second", keys="a")
    await lease.nack()
    assert await q.handle() == ["second"]


@clause(31)
async def the_message_that_fails_keeps_room_for_itself(t: Trial) -> None:
    q = t.queue(retry=_DEAD, behind="bury", maxdead=2)
    first = await q.put("first", keys="a")
    lease = await q.one()
    ids = [await q.put(n, keys="a") for n in range(3)]
    await lease.nack()
    assert [letter.id for letter in await q.dead_letters()] == [ids[2], first]
    assert await q.handle() == [0, 1]


@clause(31)
async def only_direct_waiters_are_buried(t: Trial) -> None:
    q = t.queue(retry=_HOLD, behind="bury")
    await q.put("stuck", keys="a")
    lease = await q.one()
    await q.put("direct", keys=["a", "b"])
    await q.put("indirect", keys="b")
    await lease.nack()
    assert await q.handle() == ["indirect"]


@clause(31)
async def another_value_of_the_queue_counts_for_what_waits(t: Trial) -> None:
    q = t.queue(retry=_HOLD)
    await _stuck(q)
    waits = await q.put("waits", keys=["a", "b"])
    await q.put("b", keys="b")
    assert await q.handle() == []
    await q.configure(behind="park")
    assert await q.state(waits) == "parked"
    assert await q.handle() == ["b"]


@clause(31)
async def a_delayed_message_due_on_a_stuck_key_is_parked(t: Trial) -> None:
    q = t.queue(retry=_HOLD, behind="park")
    await _stuck(q)
    id = await q.put("delayed", keys="a", delay=5)
    assert await q.state(id) == "delayed"
    await t.advance(5)
    assert await q.handle() == []
    assert await q.state(id) == "parked"


@clause(31)
async def a_parked_message_is_cancelled(t: Trial) -> None:
    q = t.queue(behind="park")
    await q.pause("a")
    id = await q.put("a", keys="a", dedup="d")
    assert await q.cancel(id)
    assert (await q.stats()).unsettled == 0
    await q.resume("a")
    assert await q.handle() == []


@clause(31)
async def explain_tells_behind_what_it_is_parked(t: Trial) -> None:
    q = t.queue(retry=_HOLD, behind="park")
    stuck = await _stuck(q)
    await q.put("first", keys="a")
    id = await q.put("second", keys=["b", "a"])
    await t.advance(12)
    node = (await q.explain(id)).nodes[0]
    parked = node.parked
    assert (node.state, parked.key, parked.ahead, parked.times) == ("parked", b"a", 1, 1)
    assert (parked.since, parked.paused, parked.behind) == (12, False, (stuck,))
    assert f"message {id} parked behind {stuck} on a for 12.0 s, 1 before it" in str(
        await q.explain(id)
    )


@clause(31)
async def roots_count_the_parked(t: Trial) -> None:
    q = t.queue(retry=_HOLD, behind="park")
    stuck = await _stuck(q)
    for n in range(3):
        await q.put(n, keys="a")
    (root,) = (await q.roots()).roots
    assert (root.id, root.depth, root.blocked) == (stuck, 3, 3)


@clause(31)
async def a_message_parked_behind_a_barrier_returns_behind_later_barriers(t: Trial) -> None:
    q = t.queue(behind="park")
    await q.put("before", keys="x")
    lease = await q.one()
    await q.put("barrier 1", barrier=True)
    await q.put("parked", keys="a")
    await q.pause("a")
    await q.put("barrier 2", barrier=True)
    await q.resume("a")
    await lease.ack()
    first = await q.one()
    assert first.payload == "barrier 1"
    await first.ack()
    assert await q.handle() == ["barrier 2", "parked"]


@clause(31)
async def a_reader_of_a_paused_key_waits_for_all_of_its_keys(t: Trial) -> None:
    q = t.queue(behind="park")
    await q.pause("a")
    await q.pause("b")
    await q.put("reader", shared=["a", "b"])
    await q.put("c", keys="c")
    await q.resume("a")
    assert await q.handle() == ["c"]
    await q.resume("b")
    assert await q.handle() == ["reader"]


@clause(31)
async def the_messages_own_value_counts_before_that_of_the_queue(t: Trial) -> None:
    q = t.queue(retry=_HOLD, behind="cancel")
    await _stuck(q)
    parked = await q.put("parked", keys="a", behind="park")
    await q.put("cancelled", keys="a")
    assert await q.state(parked) == "parked"
    assert (await q.stats()).cancelled == 1


@clause(31)
async def a_requeued_message_keeps_its_value(t: Trial) -> None:
    q = t.queue(retry=_HOLD)
    id = await q.put("a", keys="a", behind="park")
    await (await q.one()).reject("no")
    await q.pause("a")
    again = await q.requeue(id)
    assert await q.state(again) == "parked"


@clause(31)
async def a_due_message_is_parked_beyond_half(t: Trial) -> None:
    q = t.queue(maxsize=4, behind="park")
    await q.put("delayed", keys="a", delay=5)
    await q.pause("a")
    await q.put_many([1, 2], keys="a")
    await t.advance(5)
    assert await q.handle() == []
    assert (await q.stats()).parked == 3
    await q.resume("a")
    assert await q.handle() == [1, 2, "delayed"]


@clause(31)
async def without_room_for_dead_letters_messages_behind_wait(t: Trial) -> None:
    q = t.queue(retry=_HOLD, behind="bury", maxdead=1)
    await q.put("stuck", keys="a")
    lease = await q.one()
    ids = [await q.put(n, keys="a") for n in range(3)]
    await lease.nack()
    assert [letter.id for letter in await q.dead_letters()] == [ids[2]]
    assert [await q.state(id) for id in ids[:2]] == ["waiting", "waiting"]
    await q.skip(lease.id)
    assert await q.handle() == [0, 1]


@clause(31)
async def join_names_the_parked(t: Trial) -> None:
    q = t.queue(behind="park")
    await q.pause("a")
    id = await q.put("parked", keys="a")
    with raises(NotDrained) as caught:
        await q.join(0)
    assert caught[0].parked == (id,)
    assert "parked" in str(caught[0])


@clause(31)
async def a_message_that_waits_for_a_limit_is_parked(t: Trial) -> None:
    q = t.queue(behind="park", limits={"bank": 1})
    await q.put("first", keys="b", limit="bank")
    lease = await q.one()
    id = await q.put("parked", keys="a", limit="bank")
    assert await q.ready() == []
    assert (await q.stats()).limited == 1
    await q.pause("a")
    assert await q.state(id) == "parked"
    assert (await q.stats()).limited == 0
    await q.put("next", keys="c", limit="bank")
    await lease.ack()
    assert await q.handle() == ["next"]
    await q.resume("a")
    assert await q.handle() == ["parked"]


@clause(31)
async def a_listed_message_has_its_own_outcome(t: Trial) -> None:
    q = t.queue(behind="park")
    await q.put(keys="a", behind="cancel")
    await q.put(keys="a")
    assert [one.behind for one in await q.messages()] == ["cancel", None]
