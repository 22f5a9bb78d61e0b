"""Clause 30: messages that follow each other on the same keys are leased as a run."""

from typing import Any

from interlock import LeaseLost, Rate, Retry
from interlock.testing.contract.faces import LeaseFace, QueueFace
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial, raises

AT_ONCE = Retry(first=0, jitter=False)


async def _put(q: QueueFace, *payloads: Any, **options: Any) -> list[int]:
    """Put messages of one key and one run."""
    given = {"keys": "k", "run": 100, "label": "send", **options}
    return [await q.put(payload, **given) for payload in payloads]


async def _run(q: QueueFace, limit: int = 1, **options: Any) -> list[LeaseFace]:
    """Lease the next message, and those of its run."""
    return await q.get_many(limit, block=False, runs=True, **options)


def _of(leases: list[LeaseFace]) -> list[Any]:
    return [lease.payload for lease in leases]


@clause(30)
async def adjacent_messages_of_a_key_are_a_run(t: Trial) -> None:
    q = t.queue()
    ids = await _put(q, 1, 2, 3)
    leases = await _run(q)
    assert _of(leases) == [1, 2, 3]
    assert [lease.id for lease in leases] == ids
    assert {lease.attempt for lease in leases} == {1}
    assert len({lease.token for lease in leases}) == 1, "they have one lease"


@clause(30)
async def a_run_has_at_most_its_number(t: Trial) -> None:
    q = t.queue()
    await _put(q, 1, 2, 3, run=2)
    leases = await _run(q)
    assert _of(leases) == [1, 2]
    for lease in leases:
        await lease.ack()
    assert _of(await _run(q)) == [3]


@clause(30)
async def a_consumer_that_takes_no_runs_gets_single_messages(t: Trial) -> None:
    q = t.queue()
    await _put(q, 1, 2)
    assert _of(await q.get_many(10, block=False)) == [1]
    assert await q.payloads() == []


@clause(30)
async def a_limit_counts_the_first_messages_of_runs(t: Trial) -> None:
    q = t.queue()
    for key in "abc":
        await _put(q, key, key.upper(), keys=key)
    assert _of(await _run(q, 2)) == ["a", "A", "b", "B"]
    assert _of(await _run(q, 5)) == ["c", "C"]


@clause(30)
async def messages_of_other_keys_between_them_end_no_run(t: Trial) -> None:
    q = t.queue()
    await _put(q, 1)
    await q.put("other", keys="other")
    await _put(q, 2)
    assert _of(await _run(q)) == [1, 2]


@clause(30)
async def another_message_of_the_key_ends_the_run(t: Trial) -> None:
    q = t.queue()
    await _put(q, 1, 2)
    await q.put("plain", keys="k")
    await _put(q, 3)
    assert _of(await _run(q)) == [1, 2]


@clause(30)
async def another_label_or_number_ends_the_run(t: Trial) -> None:
    q = t.queue()
    for other in ({"label": "other"}, {"run": 99}):
        await _put(q, 1)
        await _put(q, 2, **other)
        leases = await _run(q)
        assert _of(leases) == [1]
        await leases[0].ack()
        assert await q.handle() == [2]


@clause(30)
async def all_keys_must_be_the_same(t: Trial) -> None:
    q = t.queue()
    await _put(q, 1, 2, keys=["a", "b"])
    await _put(q, 3, keys=["b", "a"])
    await _put(q, 4, keys="a")
    assert _of(await _run(q)) == [1, 2, 3]


@clause(30)
async def a_message_with_more_keys_ends_the_run(t: Trial) -> None:
    q = t.queue()
    await _put(q, 1, keys="a")
    await _put(q, 2, keys=["a", "b"])
    assert _of(await _run(q)) == [1]


@clause(30)
async def a_message_that_waits_on_another_key_too_ends_the_run(t: Trial) -> None:
    q = t.queue()
    await q.put("holder", keys="b")
    await _put(q, 1, keys="a")
    await _put(q, 2, keys=["a", "b"])
    assert _of(await _run(q, 9)) == ["holder", 1]


@clause(30)
async def a_reader_between_them_ends_the_run(t: Trial) -> None:
    q = t.queue()
    await _put(q, 1, shared="s")
    await q.put("reader", shared="s")
    await _put(q, 2, shared="s")
    assert _of(await _run(q)) == [1]


@clause(30)
async def messages_with_shared_keys_alone_are_no_run(t: Trial) -> None:
    q = t.queue()
    await _put(q, 1, 2, keys=None, shared="s")
    assert _of(await _run(q)) == [1]
    assert _of(await _run(q)) == [2]


@clause(30)
async def a_barrier_ends_the_run(t: Trial) -> None:
    q = t.queue()
    await _put(q, 1)
    await q.put("barrier", barrier=True)
    await _put(q, 2)
    assert _of(await _run(q)) == [1]


@clause(30)
async def another_priority_or_group_ends_the_run(t: Trial) -> None:
    q = t.queue()
    for other in ({"priority": 1}, {"group": "g"}):
        await _put(q, 1)
        await _put(q, 2, **other)
        leases = await _run(q)
        assert _of(leases) == [1]
        await leases[0].ack()
        assert await q.handle() == [2]


@clause(30)
async def the_first_messages_are_acknowledged_in_order(t: Trial) -> None:
    q = t.queue()
    await _put(q, 1, 2, 3)
    leases = await _run(q)
    await q.ack_many(leases[:2])
    assert await q.payloads() == [], "the last one is leased still"
    await leases[2].ack()
    assert (await q.stats()).unsettled == 0


@clause(30)
async def a_message_is_not_settled_before_those_in_front_of_it(t: Trial) -> None:
    q = t.queue()
    ids = await _put(q, 1, 2, 3)
    leases = await _run(q)
    with raises(LeaseLost):
        await leases[1].ack()
    with raises(LeaseLost):
        await leases[2].nack()
    assert [await q.state(id) for id in ids] == ["leased"] * 3
    await leases[0].ack()
    assert await q.payloads() == []


@clause(30)
async def the_message_behind_the_acknowledged_ones_fails(t: Trial) -> None:
    q = t.queue(retry=AT_ONCE)
    await _put(q, 1, 2, 3, 4)
    leases = await _run(q)
    await leases[0].ack()
    await leases[1].nack(error="broken")
    again = await _run(q)
    assert [(lease.payload, lease.attempt) for lease in again] == [(2, 2)]
    await again[0].ack()
    rest = await _run(q)
    assert [(lease.payload, lease.attempt) for lease in rest] == [(3, 1), (4, 1)]


@clause(30)
async def the_rest_returns_without_being_counted(t: Trial) -> None:
    q = t.queue(retry=AT_ONCE)
    await _put(q, 1, 2, 3)
    leases = await _run(q)
    await leases[0].release()
    stats = await q.stats()
    assert (stats.leases, stats.releases, stats.retries, stats.leased) == (3, 1, 0, 0)
    assert (stats.ready, stats.waiting) == (1, 2)


@clause(30)
async def a_released_message_is_leased_by_itself(t: Trial) -> None:
    q = t.queue(retry=AT_ONCE)
    await _put(q, 1, 2, 3)
    await (await _run(q))[0].release()
    leases = await _run(q)
    assert [(lease.payload, lease.attempt) for lease in leases] == [(1, 1)]


@clause(30)
async def a_dead_message_leaves_the_rest(t: Trial) -> None:
    q = t.queue()
    await _put(q, 1, 2, 3)
    leases = await _run(q)
    await leases[0].reject("useless")
    assert [letter.payload for letter in await q.dead_letters()] == [1]
    assert _of(await _run(q)) == [2, 3]


@clause(30)
async def a_requeued_message_keeps_its_run(t: Trial) -> None:
    q = t.queue()
    (id,) = await _put(q, 1)
    await (await _run(q))[0].reject("useless")
    await q.requeue(id)
    await _put(q, 2)
    assert _of(await _run(q)) == [1, 2]


@clause(30)
async def no_conflicting_message_is_leased_beside_a_run(t: Trial) -> None:
    q = t.queue()
    await _put(q, 1, 2)
    await q.put("behind", keys="k")
    leases = await _run(q)
    await leases[0].ack()
    assert await q.payloads() == []
    await leases[1].ack()
    assert await q.payloads() == ["behind"]


@clause(30)
async def a_message_of_a_run_is_neither_cancelled_nor_revoked(t: Trial) -> None:
    q = t.queue()
    ids = await _put(q, 1, 2)
    leases = await _run(q)
    assert not await q.cancel(ids[1])
    assert not await q.revoke(ids[1])
    for lease in leases:
        await lease.ack()


@clause(30)
async def a_revoked_run_returns_as_a_whole(t: Trial) -> None:
    q = t.queue(retry=AT_ONCE)
    ids = await _put(q, 1, 2, 3)
    leases = await _run(q)
    assert await q.revoke(ids[0])
    assert [await q.state(id) for id in ids] == ["ready", "waiting", "waiting"]
    with raises(LeaseLost):
        await leases[1].ack()
    again = await _run(q)
    assert [(lease.payload, lease.attempt) for lease in again] == [(1, 2)]


@clause(30)
async def an_expired_run_returns_and_its_first_message_is_leased_alone(t: Trial) -> None:
    q = t.queue(lease=10, retry=AT_ONCE)
    await _put(q, 1, 2, 3)
    await _run(q)
    await t.advance(10)
    first = await _run(q, 9)
    assert [(lease.payload, lease.attempt) for lease in first] == [(1, 1)]
    await first[0].ack()
    assert _of(await _run(q)) == [2, 3]
    assert (await q.stats()).leases_expired == 1


@clause(30)
async def a_deadline_holds_for_the_whole_run(t: Trial) -> None:
    q = t.queue(lease=10)
    await _put(q, 1, 2)
    leases = await _run(q)
    await t.advance(6)
    await leases[0].ack()
    assert await q.payloads() == []
    await t.advance(4)
    assert await q.payloads() == [2], "the one that is the first now has no new deadline"


@clause(30)
async def each_message_of_a_run_takes_a_slot(t: Trial) -> None:
    q = t.queue(limits={"x": 3})
    await _put(q, 1, 2, 3, 4, limit="x")
    leases = await _run(q)
    assert _of(leases) == [1, 2, 3]
    await q.put("other", limit="x")
    assert await q.payloads() == []
    await leases[0].ack()
    assert await q.payloads() == ["other"]


@clause(30)
async def a_full_name_cuts_the_run(t: Trial) -> None:
    q = t.queue(limits={"x": 1})
    await q.put("holder", limit="x")
    holder = await q.one()
    await _put(q, 1)
    await _put(q, 2, limit="x")
    await _put(q, 3)
    leases = await _run(q)
    assert _of(leases) == [1]
    await leases[0].ack()
    await holder.ack()
    assert _of(await _run(q)) == [2, 3]


@clause(30)
async def the_slots_of_a_returned_run_are_free(t: Trial) -> None:
    q = t.queue(limits={"x": 3}, retry=Retry(first=60, jitter=False))
    await _put(q, 1, 2, 3, limit="x")
    leases = await _run(q)
    await leases[0].nack()
    for n in range(3):
        await q.put(n, limit="x")
    assert await q.payloads() == [0, 1, 2]


@clause(30)
async def each_message_of_a_run_is_charged_to_a_rate(t: Trial) -> None:
    q = t.queue(limits={"x": Rate(1, per=10, burst=3)})
    await _put(q, 1, 2, 3, 4, limit="x")
    leases = await _run(q)
    assert _of(leases) == [1, 2, 3]
    for lease in leases:
        await lease.ack()
    assert await q.payloads() == []
    await t.advance(10)
    assert _of(await _run(q)) == [4]


@clause(30)
async def a_run_uses_a_turn_for_each_message(t: Trial) -> None:
    q = t.queue(weights={"a": 2})
    await _put(q, "a1", "a2", group="a")
    await q.put("a3", group="a")
    await q.put("b1", group="b")
    assert _of(await _run(q)) == ["a1", "a2"]
    assert await q.payloads() == ["b1", "a3"]


@clause(30)
async def a_pause_of_the_key_ends_no_run_and_holds_what_returns(t: Trial) -> None:
    q = t.queue(retry=AT_ONCE)
    await _put(q, 1, 2, 3)
    leases = await _run(q)
    await q.pause("k")
    await leases[0].ack()
    await leases[1].nack()
    assert await q.payloads() == []
    await q.resume("k")
    assert await q.handle() == [2, 3]


@clause(30)
async def explain_and_stats_tell_the_messages_of_a_run_as_leased(t: Trial) -> None:
    q = t.queue()
    ids = await _put(q, 1, 2)
    leases = await _run(q)
    node = (await q.explain(ids[1])).nodes[0]
    assert node.state == "leased"
    assert [blocker.holders for blocker in node.blocked] == [(ids[0],)]
    stats = await q.stats()
    assert (stats.leased, stats.waiting) == (2, 0)
    assert [message.state for message in await q.messages()] == ["leased", "leased"]
    await q.ack_many(leases)


@clause(30)
async def a_name_that_coalesces_is_not_replaced_while_it_is_in_a_run(t: Trial) -> None:
    q = t.queue()
    await _put(q, 1, keys=["a", "b"])
    second = await q.put_known(2, keys=["b"], coalesce="a")
    assert not second.replaced
    await _put(q, 3, keys=["a", "b"])
    assert _of(await _run(q)) == [1]
