"""Clause 26: at most N leased messages carry a limit's name."""

from typing import Any

from interlock import Empty, Reject, Retry
from interlock.testing.contract.faces import QueueFace
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial, raises

AT_ONCE = Retry(attempts=None, first=0)


@clause(26)
async def at_most_n_messages_of_a_name_are_leased(t: Trial) -> None:
    q = t.queue(limits={"bank": 2})
    for n in range(5):
        await q.put(n, limit="bank")
    await q.put("free")
    leases = await q.ready()
    assert [lease.payload for lease in leases] == [0, 1, "free"]
    await leases[1].ack()
    assert await q.payloads() == [2]
    await leases[2].ack()
    assert await q.payloads() == []


@clause(26)
async def a_lease_of_many_counts_each_message(t: Trial) -> None:
    q = t.queue(limits={"bank": 3})
    await q.put_many(range(5), limit="bank")
    await q.put("free")
    assert [lease.payload for lease in await q.get_many(10)] == [0, 1, 2, "free"]


@clause(26)
async def a_prefix_limits_each_name_by_itself(t: Trial) -> None:
    q = t.queue(limits={"tenant:*": 1, "tenant:a*": 2, "tenant:big": 3})
    for name in ("tenant:b", "tenant:c", "tenant:a1", "tenant:big"):
        await q.put_many([name] * 4, limit=name)
    expected = ["tenant:b", "tenant:c", *["tenant:a1"] * 2, *["tenant:big"] * 3]
    assert await q.payloads() == expected


@clause(26)
async def a_name_without_a_declaration_is_not_limited(t: Trial) -> None:
    q = t.queue(limits={"bank": 1, "tenant:*": 1})
    await q.put_many(range(3), limit="banks")
    await q.put_many(range(3), limit=lambda n: f"tenant{n}")
    assert await q.payloads() == [0, 1, 2] * 2


@clause(26)
async def a_message_with_several_names_takes_slots_of_all_or_of_none(t: Trial) -> None:
    q = t.queue(limits={"a": 1, "b": 1})
    await q.put("b", limit="b")
    holder = await q.one()
    await q.put("both", limit=["a", "b", "a"])
    await q.put("a", limit="a")
    # "both" would wait for b with the slot of a in its hand.
    other = await q.one()
    assert other.payload == "a"
    await holder.ack()
    assert await q.payloads() == []
    await other.ack()
    assert await q.payloads() == ["both"]


@clause(26)
async def of_those_that_wait_the_highest_priority_and_then_the_first_is_next(t: Trial) -> None:
    q = t.queue(limits={"bank": 1})
    await q.put("now", limit="bank")
    lease = await q.one()
    for payload, priority in (("first", 0), ("second", 0), ("urgent", 9), ("last", -9)):
        await q.put(payload, limit="bank", priority=priority)
    assert await q.payloads() == []
    await q.put("most urgent", limit="bank", priority=10)
    await lease.ack()
    expected = ["most urgent", "urgent", "first", "second", "last"]
    assert await q.handle() == expected


@clause(26)
async def a_message_that_waits_for_one_name_is_next_among_those_of_the_other(t: Trial) -> None:
    q = t.queue(limits={"a": 1, "b": 1})
    await q.put("a", limit="a")
    await q.put("b", limit="b")
    a, b = await q.ready()
    await q.put("both", limit=["a", "b"])
    await q.put("only a", limit="a")
    await q.put("only b", limit="b")
    assert await q.payloads() == []
    await b.ack()
    only_b = await q.one()
    assert only_b.payload == "only b", "both has no room in a"
    await only_b.ack()
    await a.ack()
    assert await q.handle() == ["both", "only a"]


@clause(26)
async def the_kind_asked_for_chooses_among_those_that_wait(t: Trial) -> None:
    q = t.queue(limits={"bank": 1})
    await q.put("now", limit="bank")
    lease = await q.one()
    await q.put("unkeyed", limit="bank")
    await q.put("keyed", limit="bank", keys="k")
    assert await q.payloads() == []
    await lease.ack()
    with_key = await q.get_nowait(kind="keyed")
    assert with_key.payload == "keyed"
    with raises(Empty):
        await q.get_nowait(kind="unkeyed")
    await with_key.ack()
    assert (await q.get_nowait(kind="unkeyed")).payload == "unkeyed"


@clause(26)
async def a_message_that_backs_off_holds_no_slot_and_its_key_stays_closed(t: Trial) -> None:
    q = t.queue(limits={"bank": 1}, retry=Retry(attempts=2, first=10, jitter=False, then="hold"))
    await q.put("fails", keys="k", limit="bank")
    await q.put("behind", keys="k", limit="bank")
    await q.put("other", limit="bank")
    await (await q.one()).nack(error="broken")
    other = await q.one()
    assert other.payload == "other"
    await t.advance(10)
    assert await q.payloads() == [], "ready again, and the slot is taken"
    await other.ack()
    await (await q.one()).nack(error="broken")
    await q.put("while it is held", limit="bank")
    assert await q.payloads() == ["while it is held"]


@clause(26)
async def every_end_of_a_lease_frees_its_slot(t: Trial) -> None:
    q = t.queue(limits={"bank": 1}, lease=10, retry=AT_ONCE)
    first = await q.put("a", limit="bank")
    await q.put("b", limit="bank")
    await (await q.one()).release()
    await (await q.one()).nack(5)
    b = await q.one()
    assert b.payload == "b"
    assert await q.revoke(b.id, then="hold")
    await q.skip(b.id)
    await t.advance(5)
    assert (await q.one()).id == first
    await t.advance(10)
    again = await q.one()
    await q.put("c", limit="bank")
    await again.reject("useless")
    assert await q.payloads() == ["c"]


@clause(26)
async def a_waiting_get_is_woken_by_a_free_slot(t: Trial) -> None:
    q = t.queue(limits={"bank": 1})
    await q.put("a", limit="bank")
    lease = await q.one()
    await q.put("b", limit="bank")
    assert (await t.wakes(q.get(), lease.ack())).payload == "b"


@clause(26)
async def a_waiting_get_is_woken_by_a_higher_limit(t: Trial) -> None:
    q = t.queue(limits={"bank": 1})
    await q.put_many(range(4), limit="bank")
    await q.one()
    woken = await t.wakes(q.get(), q.configure(limits={"bank": 3}))
    assert woken.payload == 1
    assert await q.payloads() == [2]


@clause(26)
async def a_lower_limit_ends_no_lease(t: Trial) -> None:
    q = t.queue(limits={"bank": 3})
    await q.put_many(range(5), limit="bank")
    leases = await q.ready()
    assert len(leases) == 3
    await q.configure(limits={"bank": 1})
    assert not any(lease.lost for lease in leases)
    await leases[0].ack()
    await leases[1].ack()
    assert await q.payloads() == []
    await leases[2].ack()
    assert await q.payloads() == [3]
    await q.configure(limits={})
    assert await q.payloads() == [4]


@clause(26)
async def a_paused_key_keeps_no_slot_from_others(t: Trial) -> None:
    q = t.queue(limits={"bank": 1})
    await q.put("now", limit="bank")
    lease = await q.one()
    await q.put("paused", keys="k", limit="bank")
    await q.put("other", limit="bank")
    assert await q.payloads() == []
    await q.pause("k")
    await lease.ack()
    other = await q.one()
    assert other.payload == "other"
    await q.resume("k")
    assert await q.payloads() == []
    await other.ack()
    assert await q.payloads() == ["paused"]


@clause(26)
async def a_barrier_waits_for_messages_that_wait_for_a_limit(t: Trial) -> None:
    q = t.queue(limits={"bank": 1})
    await q.put_many(["a", "b"], limit="bank")
    await q.put("barrier", barrier=True, limit="bank")
    await q.put("behind")
    lease = await q.one()
    await lease.ack()
    b = await q.one()
    assert b.payload == "b"
    await b.ack()
    assert await q.handle() == ["barrier", "behind"]


@clause(26)
async def a_delayed_message_takes_no_slot_before_it_is_due(t: Trial) -> None:
    q = t.queue(limits={"bank": 1})
    await q.put("later", delay=10, limit="bank")
    await q.put("now", limit="bank")
    lease = await q.one()
    assert lease.payload == "now"
    await t.advance(10)
    assert await q.payloads() == []
    await lease.ack()
    assert await q.payloads() == ["later"]


@clause(26)
async def a_cancelled_message_leaves_the_line_to_the_next(t: Trial) -> None:
    q = t.queue(limits={"bank": 1})
    await q.put("now", limit="bank")
    lease = await q.one()
    ids = [await q.put(n, limit="bank") for n in range(3)]
    assert await q.payloads() == []
    assert await q.cancel(ids[0])
    await lease.ack()
    assert await q.cancel(ids[1])
    assert await q.payloads() == [2]


async def _passed(q: QueueFace, times: int) -> tuple[int, list[Any]]:
    """Let others pass a message of both names this often. Return its id, and the leases."""
    await q.put("a", limit="a")
    await q.put("b", limit="b")
    leases = await q.ready()
    id = await q.put("both", keys="k", limit=["a", "b"])
    await q.put_many(["a"] * 50, limit="a")
    await q.put_many(["b"] * 50, limit="b")
    assert await q.payloads() == []
    for n in range(times):
        name = "ab"[n % 2]
        await leases[n % 2].ack()
        leases[n % 2] = await q.one()
        assert leases[n % 2].payload == name
    return id, leases


@clause(26)
async def a_message_that_was_passed_64_times_gets_the_next_slots(t: Trial) -> None:
    q = t.queue(limits={"a": 1, "b": 1})
    _, (a, b) = await _passed(q, 64)
    await a.ack()
    assert await q.payloads() == [], "kept for the message of both"
    await b.ack()
    assert (await q.one()).payload == "both"


@clause(26)
async def a_keeper_keeps_its_slots_until_its_kind_is_asked_for(t: Trial) -> None:
    q = t.queue(limits={"a": 1, "b": 1})
    id, leases = await _passed(q, 64)
    for lease in leases:
        await lease.ack()
    assert await q.ready(kind="unkeyed") == []
    waits = await q.put(limit="a")
    (full,) = (await q.explain(waits)).nodes[0].limits
    assert (full.name, full.leased, full.keeper) == ("a", 0, id)
    assert [lease.payload for lease in await q.ready(kind="keyed")] == ["both"]


@clause(26)
async def a_cancelled_keeper_releases_what_it_keeps(t: Trial) -> None:
    q = t.queue(limits={"a": 1, "b": 1})
    id, (a, _) = await _passed(q, 64)
    await a.ack()
    assert await q.payloads() == []
    assert await q.cancel(id)
    assert await q.payloads() == ["a"]


@clause(26)
async def a_keeper_whose_key_is_paused_releases_what_it_keeps(t: Trial) -> None:
    q = t.queue(limits={"a": 1, "b": 1})
    id, (a, b) = await _passed(q, 64)
    await a.ack()
    assert await q.payloads() == []
    await q.pause("k")
    again = await q.one()
    assert again.payload == "a"
    await q.resume("k")
    await again.ack()
    assert (await q.one()).payload == "a", "it begins to wait anew"
    await b.ack()
    assert (await q.one()).payload == "b"
    assert await q.state(id) == "ready"


@clause(26)
async def a_lower_limit_takes_back_what_a_keeper_keeps(t: Trial) -> None:
    q = t.queue(limits={"a": 2, "b": 1})
    await q.put("a", limit="a")
    held = await q.one()
    _, (a, b) = await _passed(q, 64)
    await a.ack()
    await b.ack()
    await q.configure(limits={"a": 1, "b": 1})
    assert await q.payloads() == ["b"], "one of a is leased"
    await held.ack()
    assert held.payload == "a"


@clause(26)
async def a_listed_message_has_its_names_sorted_and_each_once(t: Trial) -> None:
    q = t.queue(limits={"bank": 1})
    await q.put(limit=["bank", "api", "bank"])
    await q.put()
    assert [one.limit for one in await q.messages()] == [("api", "bank"), ()]


@clause(26)
async def a_dead_letter_keeps_its_names(t: Trial) -> None:
    q = t.queue(limits={"bank": 1})
    id = await q.put("a", limit="bank")
    await (await q.one()).reject("useless")
    await q.put("b", limit="bank")
    lease = await q.one()
    await q.requeue(id)
    assert await q.payloads() == []
    await lease.ack()
    assert await q.payloads() == ["a"]


@clause(26)
async def explain_names_the_full_limits_and_who_holds_them(t: Trial) -> None:
    q = t.queue(limits={"a": 1, "b": 2, "c": 1})
    holders = [await q.put(limit=["a", "b"]), await q.put(limit="b")]
    leases = await q.ready()
    waits = await q.put(limit=["c", "b", "a"])
    for _ in range(2):
        node, *others = (await q.explain(waits)).nodes
        assert node.state == "ready" and node.blocked == ()
        told = [(full.name, full.leased, full.most, full.keeper) for full in node.limits]
        assert told == [("a", 1, 1, None), ("b", 2, 2, None)]
        assert [full.holders for full in node.limits] == [(holders[0],), tuple(holders)]
        assert [other.state for other in others] == ["leased", "leased"]
        assert await q.payloads() == []
    text = str(await q.explain(waits))
    assert "1 of 1 on a" in text and "2 of 2 on b" in text
    await leases[0].ack()
    assert (await q.explain(waits)).nodes[0].limits == ()


@clause(26)
async def stats_count_the_ready_messages_that_were_found_waiting(t: Trial) -> None:
    q = t.queue(limits={"bank": 1})
    await q.put_many(range(3), limit="bank")
    await q.one()
    stats = await q.stats()
    assert (stats.ready, stats.limited, stats.leased, stats.waiting) == (2, 2, 1, 0)
    await q.pause()
    stats = await q.stats()
    assert (stats.ready, stats.limited, stats.waiting) == (0, 2, 2)


@clause(26)
async def handlers_of_a_name_run_n_at_a_time(t: Trial) -> None:
    q = t.queue(limits={"bank": 1})
    running: list[int] = []
    ended: list[int] = []

    async def handler(n: int) -> None:
        running.append(n)
        assert running == [n], "two at once"
        running.remove(n)
        if n == 3 and n not in ended:
            ended.append(n)
            raise Reject("not this one")
        ended.append(n)

    await q.put_many(range(8), limit="bank")
    await t.handle_all(q, handler)
    assert sorted(ended) == list(range(8))


@clause(26)
async def limits_count_leased_and_waiting_messages_of_each_name(t: Trial) -> None:
    q = t.queue(limits={"bank": 2, "tenant:*": 1, "idle": 3})
    await q.put_many(range(4), limit="bank")
    await q.put_many(range(4), limit="tenant:7")
    assert len(await q.ready()) == 3
    told = [(one.name, one.most, one.leased, one.waiting) for one in await q.limits()]
    assert told == [("tenant:7", 1, 1, 3), ("bank", 2, 2, 2), ("idle", 3, 0, 0)]
    assert [one.name for one in await q.limits(1)] == ["tenant:7"]


@clause(26)
async def limits_name_the_keeper_of_each_of_its_names(t: Trial) -> None:
    q = t.queue(limits={"a": 1, "b": 1})
    id, _ = await _passed(q, 64)
    assert [(one.name, one.keeper) for one in await q.limits()] == [("a", id), ("b", id)]
