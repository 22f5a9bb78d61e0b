"""Clause 28: groups take turns."""

from collections import Counter
from typing import Any

from interlock import Empty, Rate, Retry
from interlock.testing.contract.faces import QueueFace
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial, raises

AT_ONCE = Retry(attempts=None, first=0)


async def _put(q: QueueFace, *named: str, **options: Any) -> None:
    """Put a message for each word: its first letter is the group, ``-`` for none."""
    for word in named:
        group = None if word[0] == "-" else word[0]
        await q.put(word, group=group, **options)


@clause(28)
async def groups_take_turns(t: Trial) -> None:
    q = t.queue()
    await _put(q, "a1", "a2", "a3", "b1", "b2", "c1")
    assert await q.payloads() == ["a1", "b1", "c1", "a2", "b2", "a3"]


@clause(28)
async def a_lease_of_many_takes_turns_too(t: Trial) -> None:
    q = t.queue()
    await _put(q, "a1", "a2", "a3", "b1", "b2", "c1")
    assert [lease.payload for lease in await q.get_many(4)] == ["a1", "b1", "c1", "a2"]
    assert [lease.payload for lease in await q.get_many(4)] == ["b2", "a3"]


@clause(28)
async def a_loud_group_delays_no_other(t: Trial) -> None:
    q = t.queue()
    await q.put_many(["loud"] * 800, group="loud")
    for n in range(8):
        await q.put_many([f"quiet {n}"] * 8, group=f"quiet {n}")
    first = Counter([(await q.get_nowait()).payload for _ in range(72)])
    assert set(first.values()) == {8}


@clause(28)
async def messages_without_a_group_are_one_group(t: Trial) -> None:
    q = t.queue()
    await _put(q, "-1", "-2", "-3", "a1", "a2", "b1")
    assert await q.payloads() == ["-1", "a1", "b1", "-2", "a2", "-3"]


@clause(28)
async def a_queue_without_groups_is_first_come_first_served(t: Trial) -> None:
    q = t.queue(weights={"a": 3, "*": 2})
    await _put(q, "-1", "-2")
    await q.put("k", keys="k")
    assert await q.payloads() == ["-1", "-2", "k"]
    await _put(q, "a1")
    assert await q.payloads() == ["a1"]


@clause(28)
async def turns_begin_anew_when_all_messages_with_groups_are_settled(t: Trial) -> None:
    q = t.queue(weights={"*": 2})
    await _put(q, "-1", "a1")
    assert await q.handle() == ["-1", "a1"]
    await _put(q, "-2", "-3", "-4", "b1", "b2")
    assert await q.payloads() == ["-2", "-3", "b1", "b2", "-4"]


@clause(28)
async def a_turn_is_as_many_messages_as_the_weight(t: Trial) -> None:
    q = t.queue(weights={"a": 3, "b*": 2, "*": 1})
    await _put(q, *[f"a{n}" for n in range(7)], *[f"b{n}" for n in range(4)], "c0", "c1")
    expected = ["a0", "a1", "a2", "b0", "b1", "c0", "a3", "a4", "a5", "b2", "b3", "c1", "a6"]
    assert await q.payloads() == expected


@clause(28)
async def the_exact_group_counts_before_the_longest_prefix(t: Trial) -> None:
    q = t.queue(weights={"*": 1, "a*": 2, "ab": 3})
    for group in ("abc", "ab", "c"):
        await q.put_many([group] * 4, group=group)
    expected = ["abc"] * 2 + ["ab"] * 3 + ["c"] + ["abc"] * 2 + ["ab"] + ["c"] * 3
    assert await q.payloads() == expected


@clause(28)
async def other_weights_hold_for_the_turn_that_goes_on(t: Trial) -> None:
    q = t.queue(weights={"a": 4})
    await _put(q, *[f"a{n}" for n in range(9)], *[f"b{n}" for n in range(3)])
    assert [(await q.get_nowait()).payload for _ in range(3)] == ["a0", "a1", "a2"]
    await q.configure(weights={"a": 2})
    expected = ["a3", "b0", "a4", "a5", "b1", "a6", "a7", "b2", "a8"]
    assert await q.payloads() == expected


@clause(28)
async def a_higher_priority_goes_before_any_turn(t: Trial) -> None:
    q = t.queue()
    await _put(q, "a1", "b1", "b2")
    await _put(q, "a8", "a9", "b9", priority=1)
    assert await q.payloads() == ["a8", "b9", "a9", "a1", "b1", "b2"]


@clause(28)
async def within_a_group_the_first_by_sequence_is_next(t: Trial) -> None:
    q = t.queue(retry=AT_ONCE)
    await _put(q, "a1", "a2", "a3", "b1", "b2", "b3")
    leases = [await q.get_nowait() for _ in range(4)]
    assert [lease.payload for lease in leases] == ["a1", "b1", "a2", "b2"]
    await leases[2].nack()
    await leases[0].release()
    assert await q.payloads() == ["a1", "b3", "a2", "a3"]


@clause(28)
async def a_group_that_has_nothing_ready_keeps_its_place(t: Trial) -> None:
    q = t.queue()
    await _put(q, "a1", "a2", keys="k")
    await _put(q, "b1", "b2", keys="l")
    await _put(q, *[f"c{n}" for n in range(6)])
    leases = [await q.get_nowait() for _ in range(5)]
    assert [lease.payload for lease in leases] == ["a1", "b1", "c0", "c1", "c2"]
    await leases[1].ack()
    await leases[0].ack()
    # Both had their turn before the last of c, and a before b.
    assert [(await q.get_nowait()).payload for _ in range(3)] == ["a2", "b2", "c3"]


@clause(28)
async def a_group_without_messages_begins_at_the_end(t: Trial) -> None:
    q = t.queue(weights={"a": 2})
    await _put(q, "a1", "b1", "b2", "c1")
    a = await q.get_nowait()
    assert a.payload == "a1"
    await a.ack()
    await _put(q, "a2", "a3", "a4")
    assert await q.payloads() == ["b1", "c1", "a2", "a3", "b2", "a4"]


@clause(28)
async def a_consumer_of_one_kind_takes_turns_among_messages_of_that_kind(t: Trial) -> None:
    q = t.queue()
    for group in "ab":
        for n in range(3):
            await q.put(f"{group} keyed {n}", keys=f"{group}{n}", group=group)
            await q.put(f"{group} {n}", group=group)
    ready = [lease.payload for lease in await q.ready(kind="unkeyed")]
    assert ready == ["a 0", "b 0", "a 1", "b 1", "a 2", "b 2"]
    keyed = [lease.payload for lease in await q.ready(kind="keyed")]
    assert keyed == [f"{group} keyed {n}" for n in range(3) for group in "ab"]
    with raises(Empty):
        await q.get_nowait()


@clause(28)
async def a_lease_of_one_kind_uses_no_turn_of_the_other(t: Trial) -> None:
    q = t.queue()
    for group in "ab":
        await q.put(f"{group} keyed", keys=group, group=group)
        await q.put(group, group=group)
    assert (await q.get_nowait(kind="keyed")).payload == "a keyed"
    assert (await q.get_nowait(kind="unkeyed")).payload == "a"
    assert await q.payloads() == ["b keyed", "b"]


@clause(28)
async def a_group_with_messages_of_both_kinds_gets_one_share(t: Trial) -> None:
    q = t.queue()
    for n in range(4):
        await q.put("both", keys=f"k{n}", group="both")
        await q.put("both", group="both")
    await q.put_many(["keyed"] * 4, keys="l", group="in order")
    await q.put_many(["plain"] * 8, group="plain")
    taken = Counter([(await q.get_nowait()).payload for _ in range(9)])
    assert taken == {"both": 4, "plain": 4, "keyed": 1}


@clause(28)
async def a_limit_is_shared_out_in_turns(t: Trial) -> None:
    q = t.queue(limits={"bank": 1})
    await _put(q, "a0", limit="bank")
    lease = await q.one()
    await _put(q, "a1", "a2", "a3", "a4", "b1", "b2", "c1", limit="bank")
    assert await q.payloads() == []
    for expected in ("a1", "b1", "c1", "a2", "b2", "a3"):
        await lease.ack()
        lease = await q.one()
        assert lease.payload == expected


@clause(28)
async def a_group_that_waits_for_a_limit_again_begins_at_the_end(t: Trial) -> None:
    q = t.queue(limits={"bank": 1})
    await _put(q, "a0", limit="bank")
    lease = await q.one()
    for word in ("a1", "b1", "c1", "a2"):
        await _put(q, word, limit="bank")
        assert await q.payloads() == []
        if word == "a1":
            await lease.ack()
            lease = await q.one()
            assert lease.payload == word
    for expected in ("b1", "c1", "a2"):
        await lease.ack()
        lease = await q.one()
        assert lease.payload == expected


@clause(28)
async def a_rate_is_shared_out_in_turns(t: Trial) -> None:
    q = t.queue(limits={"api": Rate(1, per=10)})
    await _put(q, "a1", "a2", "a3", "b1", "b2", limit="api")
    assert await q.payloads() == ["a1"]
    found = []
    for _ in range(4):
        await t.advance(10)
        found += await q.payloads()
    assert found == ["b1", "a2", "b2", "a3"]


@clause(28)
async def a_group_that_waits_for_a_limit_delays_no_other(t: Trial) -> None:
    q = t.queue(limits={"bank": 1})
    await _put(q, "a1", "a2", limit="bank")
    await _put(q, "b1", "b2", "a3")
    leases = await q.ready()
    assert [lease.payload for lease in leases] == ["a1", "b1", "a3", "b2"]
    await _put(q, "b3", "b4")
    await leases[0].ack()
    # It has its turn before b: it was granted before b's last.
    assert await q.payloads() == ["a2", "b3", "b4"]


@clause(28)
async def a_later_message_of_a_group_stays_behind_its_earlier_one_at_a_limit(t: Trial) -> None:
    q = t.queue(limits={"bank": 1})
    await _put(q, "a0", limit="bank")
    lease = await q.one()
    await _put(q, "a1", "b1", limit="bank")
    assert await q.payloads() == []
    await _put(q, "a2")
    assert await q.payloads() == ["a2"], "now b is before a in turn, and a before b at the bank"
    await _put(q, "b2", limit="bank")
    for expected in ("a1", "b1", "b2"):
        await lease.ack()
        lease = await q.one()
        assert lease.payload == expected


@clause(28)
async def a_message_of_a_paused_key_uses_no_turn(t: Trial) -> None:
    q = t.queue()
    for word in ("a1", "b1", "a2", "b2"):
        await _put(q, word, keys=word)
    await q.pause("a1")
    assert [(await q.get_nowait()).payload for _ in range(2)] == ["a2", "b1"]
    await q.resume("a1")
    assert await q.payloads() == ["a1", "b2"]


@clause(28)
async def a_delayed_message_has_its_place_in_turn_when_it_is_due(t: Trial) -> None:
    q = t.queue()
    await q.put("a1", delay=10, group="a")
    await _put(q, "b1", "b2", "b3")
    assert [(await q.get_nowait()).payload for _ in range(2)] == ["b1", "b2"]
    await t.advance(10)
    assert await q.payloads() == ["a1", "b3"]


@clause(28)
async def a_barrier_separates_the_turns_of_both_sides(t: Trial) -> None:
    q = t.queue()
    await _put(q, "a1", "a2", "b1")
    await q.put("barrier", barrier=True, group="c")
    await _put(q, "b2", "b3", "a3")
    assert await q.handle() == ["a1", "b1", "a2", "barrier", "b2", "a3", "b3"]


@clause(28)
async def keys_keep_their_order_across_groups(t: Trial) -> None:
    q = t.queue()
    await q.put("b1", keys="k", group="b")
    await q.put("a1", keys="k", group="a")
    await q.put("b2", keys=["k", "l"], group="b")
    await q.put("a2", keys="l", group="a")
    assert await q.handle() == ["b1", "a1", "b2", "a2"]


@clause(28)
async def a_message_whose_lease_expired_waits_for_the_turn_of_its_group(t: Trial) -> None:
    q = t.queue(lease=10, retry=AT_ONCE)
    await _put(q, "a1", "b1", "a2")
    assert (await q.get_nowait()).payload == "a1"
    await t.advance(10)
    assert [(await q.get_nowait()).payload for _ in range(3)] == ["b1", "a1", "a2"]


@clause(28)
async def a_dead_letter_keeps_its_group(t: Trial) -> None:
    q = t.queue()
    id = await q.put("a1", group="a")
    await (await q.one()).reject("useless")
    await _put(q, "b1", "b2")
    await q.requeue(id)
    assert await q.payloads() == ["b1", "a1", "b2"]


@clause(28)
async def a_message_of_two_busy_names_starts_at_last_beside_groups(t: Trial) -> None:
    q = t.queue(limits={"x": 1, "y": 1})
    await _put(q, "ax", limit="x")
    await _put(q, "by", limit="y")
    leases = await q.ready()
    id = await q.put("both", group="c", limit=["x", "y"])
    await _put(q, "ax", "ax", limit="x")
    await _put(q, "by", "by", limit="y")
    assert await q.payloads() == []
    for n in range(400):
        await leases[n % 2].ack()
        if n % 2 == 0:
            await _put(q, "ax", limit="x")
        else:
            await _put(q, "by", limit="y")
        taken = await q.ready()
        if not taken:
            break
        (leases[n % 2],) = taken
    await leases[1 - n % 2].ack()
    both = await q.one()
    assert both.id == id and n > 64


@clause(28)
async def explain_tells_the_groups_ahead(t: Trial) -> None:
    q = t.queue()
    await _put(q, "a1", "a2", "a3", "b1", "c1")
    ids = {message.payload: message.id for message in await q.messages()}
    await q.get_nowait()
    node = (await q.explain(ids["a3"])).nodes[0]
    assert node.turn is not None
    assert (node.turn.group, node.turn.ready, node.turn.ahead) == ("a", 2, 2)
    assert "group a, 2 ready, 2 groups ahead" in str(await q.explain(ids["a3"]))
    await q.put("plain")
    plain = (await q.messages())[-1].id
    turn = (await q.explain(plain)).nodes[0].turn
    assert turn is not None and (turn.group, turn.ready, turn.ahead) == ("", 1, 0)


@clause(28)
async def explain_tells_no_turn_in_a_queue_without_groups(t: Trial) -> None:
    q = t.queue()
    id = await q.put("a")
    assert (await q.explain(id)).nodes[0].turn is None


@clause(28)
async def stats_count_groups_and_the_oldest_of_all(t: Trial) -> None:
    q = t.queue()
    await q.put("low", group="a", priority=-5)
    await t.advance(2)
    await _put(q, "a1", "b1", "-1")
    stats = await q.stats()
    assert (stats.groups, stats.ready) == (2, 4)
    assert stats.oldest_ready >= 2
    await q.handle()
    assert (await q.stats()).groups == 0


@clause(28)
async def handlers_of_groups_run_in_turns(t: Trial) -> None:
    q = t.queue()
    ended: list[str] = []

    async def handler(word: str) -> None:
        ended.append(word)

    await _put(q, *[f"a{n}" for n in range(20)], "b1", "b2")
    await t.handle_all(q, handler)
    assert len(ended) == 22 and ended.index("b2") <= 4


@clause(28)
async def a_listed_message_has_its_group(t: Trial) -> None:
    q = t.queue()
    await q.put(group="acme")
    await q.put()
    assert [one.group for one in await q.messages()] == ["acme", None]
