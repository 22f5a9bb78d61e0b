"""Clause 29: a put gives the newest message of its coalescing name its payload."""

from typing import Any

from interlock import Full, Retry
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial, raises

HELD_AT_ONCE = Retry(attempts=1, then="hold")


@clause(29)
async def the_last_put_replaces_the_payload(t: Trial) -> None:
    q = t.queue()
    first = await q.put_known(1, coalesce="price")
    second = await q.put_known(2, coalesce="price")
    assert (first.replaced, second.replaced, second.known) == (False, True, False)
    assert second.id == first.id
    assert await q.put(3, coalesce="price") == first.id
    assert await q.put_nowait(4, coalesce="price") == first.id
    other = await q.put("other", coalesce="other")
    assert other != first.id
    assert await q.payloads() == [4, "other"]


@clause(29)
async def a_name_is_a_str_an_int_or_bytes(t: Trial) -> None:
    q = t.queue()
    id = await q.put(1, coalesce=7)
    assert await q.put(2, coalesce="7") == id
    assert await q.put(3, coalesce=b"7") == id
    assert await q.payloads() == [3]


@clause(29)
async def a_replaced_message_keeps_its_id_and_place(t: Trial) -> None:
    q = t.queue()
    id = await q.put("old", coalesce="a")
    await q.put("second")
    await q.put("new", coalesce="a")
    leases = await q.ready()
    assert [lease.payload for lease in leases] == ["new", "second"]
    assert leases[0].id == id


@clause(29)
async def a_put_while_it_is_leased_waits_behind_it(t: Trial) -> None:
    q = t.queue()
    first = await q.put(1, coalesce="a")
    lease = await q.one()
    second = await q.put_known(2, coalesce="a")
    assert not second.replaced and second.id > first
    assert await q.state(second.id) == "waiting"
    await lease.ack()
    assert await q.payloads() == [2]


@clause(29)
async def many_puts_while_it_is_leased_make_one_successor(t: Trial) -> None:
    q = t.queue()
    await q.put(0, coalesce="a")
    lease = await q.one()
    ids = {await q.put(n, coalesce="a") for n in range(1, 6)}
    assert len(ids) == 1
    assert (await q.stats()).unsettled == 2
    await lease.ack()
    assert await q.handle() == [5]


@clause(29)
async def the_last_of_many_updates_is_never_lost(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=None, first=0))
    last = 300

    async def update() -> None:
        for n in range(1, last + 1):
            await q.put(n, coalesce="a")

    writer = await t.start(update())
    seen: list[int] = []
    failed: set[int] = set()
    while not seen or seen[-1] != last:
        lease = await q.get()
        if lease.payload % 7 == 0 and lease.payload not in failed:
            failed.add(lease.payload)
            await (lease.release() if lease.payload % 2 else lease.nack())
            continue
        seen.append(lease.payload)
        await lease.ack()
    await writer.result()
    assert seen == sorted(set(seen)), "values in the order of their puts, each once"
    assert (await q.stats()).unsettled == 0


@clause(29)
async def a_retried_message_goes_before_its_successor_with_its_own_payload(t: Trial) -> None:
    q = t.queue(retry=Retry(first=0, jitter=False))
    await q.put(1, coalesce="a")
    lease = await q.one()
    await q.put(2, coalesce="a")
    await lease.nack()
    again = await q.one()
    assert (again.payload, again.attempt) == (1, 2)
    await again.ack()
    assert await q.handle() == [2]


@clause(29)
async def a_put_replaces_the_successor_not_the_retried_one(t: Trial) -> None:
    q = t.queue(retry=Retry(first=0, jitter=False))
    await q.put(1, coalesce="a")
    lease = await q.one()
    successor = await q.put(2, coalesce="a")
    await lease.nack()
    assert await q.put(3, coalesce="a") == successor
    assert await q.handle() == [1, 3]


@clause(29)
async def a_replaced_message_begins_at_attempt_1(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=3, first=0, jitter=False))
    id = await q.put(1, coalesce="a")
    for _ in range(2):
        await (await q.one()).nack(error="broken")
    assert await q.put(2, coalesce="a") == id
    lease = await q.one()
    assert (lease.payload, lease.attempt) == (2, 1)
    await lease.nack()
    again = await q.one()
    assert again.attempt == 2


@clause(29)
async def a_message_that_backs_off_keeps_its_time(t: Trial) -> None:
    q = t.queue(retry=Retry(first=10, jitter=False))
    id = await q.put(1, coalesce="a")
    await (await q.one()).nack()
    await t.advance(9)
    assert await q.put(2, coalesce="a") == id
    assert await q.state(id) == "backing_off"
    await t.advance(0.999)
    assert await q.payloads() == []
    await t.advance(0.001)
    lease = await q.one()
    assert (lease.payload, lease.attempt) == (2, 1)


@clause(29)
async def a_held_message_stays_held(t: Trial) -> None:
    q = t.queue(retry=HELD_AT_ONCE)
    id = await q.put(1, coalesce="a")
    await (await q.one()).nack()
    assert await q.put(2, coalesce="a") == id
    assert await q.state(id) == "held"
    assert await q.payloads() == []
    assert await q.retry(id)
    assert await q.payloads() == [2]


@clause(29)
async def a_message_that_was_leased_alone_no_longer_must_be(t: Trial) -> None:
    q = t.queue(lease=10, retry=Retry(attempts=5, first=0, jitter=False))
    await q.put(1, coalesce="a")
    await q.one()
    await t.advance(10)
    await q.put(2, coalesce="a")
    await q.put("plain")
    assert [lease.payload for lease in await q.get_many(2)] == [2, "plain"]


@clause(29)
async def a_dead_letter_is_not_replaced(t: Trial) -> None:
    q = t.queue()
    first = await q.put(1, coalesce="a")
    await (await q.one()).reject("bad")
    assert await q.put(2, coalesce="a") > first
    assert [letter.payload for letter in await q.dead_letters()] == [1]
    assert await q.payloads() == [2]


@clause(29)
async def a_requeued_message_is_an_ordinary_one(t: Trial) -> None:
    q = t.queue()
    await q.put(1, coalesce="a")
    await (await q.one()).reject("bad")
    (letter,) = await q.dead_letters()
    again = await q.requeue(letter.id)
    new = await q.put_known(2, coalesce="a")
    assert not new.replaced
    # It has the name as a key, as it had before.
    assert await q.state(again) == "ready" and await q.state(new.id) == "waiting"
    assert await q.handle() == [1, 2]


@clause(29)
async def a_cancelled_successor_leaves_the_next_put_queued(t: Trial) -> None:
    q = t.queue(retry=Retry(first=0, jitter=False))
    await q.put(1, coalesce="a")
    lease = await q.one()
    successor = await q.put(2, coalesce="a")
    assert await q.cancel(successor)
    await lease.nack()
    # The older one is never replaced again.
    new = await q.put_known(3, coalesce="a")
    assert not new.replaced and new.id > successor
    assert await q.handle() == [1, 3]


@clause(29)
async def a_cancelled_message_is_not_replaced(t: Trial) -> None:
    q = t.queue()
    id = await q.put(1, coalesce="a")
    assert await q.cancel(id)
    new = await q.put_known(2, coalesce="a")
    assert not new.replaced and new.id > id
    assert await q.handle() == [2]


@clause(29)
async def another_set_of_keys_is_refused(t: Trial) -> None:
    q = t.queue()
    id = await q.put(1, coalesce="a", keys="b", shared="c")
    differs = f"another set of keys than message {id}, whose payload it would replace"
    options: list[dict[str, Any]] = [
        {},
        {"keys": "b"},
        {"keys": ["b", "c"]},
        {"shared": ["b", "c"]},
        {"keys": ["b", "d"], "shared": "c"},
    ]
    for named in options:
        with raises(ValueError, differs):
            await q.put(2, coalesce="a", **named)
    assert (await q.stats()).coalesced == 0
    assert await q.payloads() == [1]


@clause(29)
async def another_priority_or_limit_is_refused(t: Trial) -> None:
    q = t.queue()
    id = await q.put(1, coalesce="a", priority=1, limit=["x", "y"])
    options: list[tuple[str, dict[str, Any]]] = [
        ("priority", {"limit": ["x", "y"]}),
        ("priority", {"priority": 2, "limit": "x"}),
        ("limit", {"priority": 1}),
        ("limit", {"priority": 1, "limit": "x"}),
    ]
    for what, named in options:
        with raises(ValueError, f"another {what} than message {id}, whose payload"):
            await q.put(2, coalesce="a", **named)
    assert await q.put(3, coalesce="a", priority=1, limit=["y", "x", "y"]) == id
    assert await q.payloads() == [3]


@clause(29)
async def a_leased_message_is_not_compared(t: Trial) -> None:
    q = t.queue()
    await q.put(1, coalesce="a", priority=1, keys="b")
    lease = await q.one()
    await q.put(2, coalesce="a")
    await lease.ack()
    assert await q.payloads() == [2]


@clause(29)
async def the_same_keys_in_another_order_are_the_same(t: Trial) -> None:
    q = t.queue()
    id = await q.put(1, coalesce="a", keys=["b", "c"], shared=["d", "e"])
    named: dict[str, Any] = {"keys": ["c", "a", "b", "c"], "shared": ["e", "d", "b"]}
    assert await q.put(2, coalesce="a", **named) == id
    assert await q.payloads() == [2]


@clause(29)
async def a_delayed_message_compares_its_keys_too(t: Trial) -> None:
    q = t.queue()
    id = await q.put(1, coalesce="a", keys=["b", "c"], delay=5)
    with raises(ValueError, "set of keys"):
        await q.put(2, coalesce="a", keys="b")
    assert await q.put(3, coalesce="a", keys=["c", "b", "c"]) == id


@clause(29)
async def the_name_is_a_key_of_the_message(t: Trial) -> None:
    q = t.queue()
    await q.put("plain", keys="a")
    id = await q.put("named", coalesce="a", shared="a")
    assert await q.state(id) == "waiting"
    plain = await q.one()
    await plain.ack()
    lease = await q.one()
    assert (lease.keys, lease.shared) == (frozenset({b"a"}), frozenset())


@clause(29)
async def a_pause_of_the_name_holds_it(t: Trial) -> None:
    q = t.queue()
    await q.pause("a")
    await q.put(1, coalesce="a")
    await q.put(2, coalesce="a")
    assert await q.payloads() == []
    await q.resume("a")
    assert await q.payloads() == [2]


@clause(29)
async def a_message_in_front_of_a_barrier_is_replaced_there(t: Trial) -> None:
    q = t.queue()
    await q.put(1, coalesce="a")
    await q.put("barrier", barrier=True)
    await q.put(2, coalesce="a")
    assert await q.handle() == [2, "barrier"]


@clause(29)
async def a_full_queue_takes_a_replacement(t: Trial) -> None:
    q = t.queue(maxsize=1)
    id = await q.put("1", coalesce="a")
    with raises(Full):
        await q.put_nowait("other", coalesce="b")
    assert await q.put_nowait("2", coalesce="a") == id
    assert await q.put_many(["3", "4"], coalesce="a", timeout=0) == [id, id]
    assert await q.payloads() == ["4"]


@clause(29)
async def a_replacement_needs_room_for_the_difference_only(t: Trial) -> None:
    q = t.queue(maxbytes=1_000)
    id = await q.put("a" * 500, coalesce="a")
    await q.put("b" * 300)
    assert await q.put_nowait("c" * 600, coalesce="a") == id
    assert (await q.ready())[0].payload == "c" * 600


@clause(29)
async def a_larger_payload_waits_for_room_and_the_old_one_stays(t: Trial) -> None:
    q = t.queue(maxbytes=1_000)
    id = await q.put("a" * 300, coalesce="a")
    await q.put("b" * 500, priority=1)
    with raises(Full):
        await q.put_nowait("c" * 600, coalesce="a")
    with raises(ValueError):
        await q.put("d" * 1_001, coalesce="a")
    (plain, named) = await q.ready()
    assert named.payload == "a" * 300
    await named.release()
    waits = await t.start(q.put("c" * 600, coalesce="a"))
    await plain.ack()
    assert await waits.result() == id
    assert (await q.one()).payload == "c" * 600


@clause(29)
async def a_put_that_waits_for_room_replaces_what_came_meanwhile(t: Trial) -> None:
    q = t.queue(maxsize=1, retry=Retry(first=0, jitter=False))
    id = await q.put(1, coalesce="a")
    lease = await q.one()
    # The newest is leased, and there is no room for a successor.
    waits = await t.start(q.put_known(2, coalesce="a"))
    await lease.release()
    put = await waits.result()
    assert put.replaced and put.id == id
    assert await q.payloads() == [2]


@clause(29)
async def a_debounced_message_is_due_after_the_last_put(t: Trial) -> None:
    q = t.queue()
    id = await q.put(1, coalesce="a", debounce=5, longest=60)
    assert await q.state(id) == "delayed"
    for n in (2, 3):
        await t.advance(4)
        assert await q.put(n, coalesce="a", debounce=5, longest=60) == id
    await t.advance(4.999)
    assert await q.payloads() == []
    await t.advance(0.001)
    assert await q.payloads() == [3]


@clause(29)
async def a_debounced_message_is_due_at_the_longest(t: Trial) -> None:
    q = t.queue()
    await q.put(0, coalesce="a", debounce=5, longest=12)
    for seconds in (4, 4, 3):
        await t.advance(seconds)
        # The longest time of a later put does not count.
        await q.put(seconds, coalesce="a", debounce=5, longest=500)
    await t.advance(0.999)
    assert await q.payloads() == []
    await t.advance(0.001)
    assert await q.payloads() == [3]


@clause(29)
async def a_put_without_debounce_moves_no_time(t: Trial) -> None:
    q = t.queue()
    await q.put(1, coalesce="a", debounce=5, longest=60)
    await t.advance(4)
    await q.put(2, coalesce="a")
    await t.advance(1)
    assert await q.payloads() == [2]


@clause(29)
async def a_message_that_is_due_keeps_its_place(t: Trial) -> None:
    q = t.queue()
    await q.put(1, coalesce="a", debounce=5, longest=60)
    await t.advance(5)
    await q.put("second")
    await q.put(2, coalesce="a", debounce=5, longest=60)
    assert await q.payloads() == [2, "second"]


@clause(29)
async def an_earlier_debounce_wakes_who_waits_for_work(t: Trial) -> None:
    q = t.queue()
    await q.put(1, coalesce="a", debounce=100, longest=100)
    getter = await t.start(q.get())
    await q.put(2, coalesce="a", debounce=5, longest=100)
    await t.advance(5)
    assert (await getter.result()).payload == 2


@clause(29)
async def a_successor_is_debounced_while_the_message_is_leased(t: Trial) -> None:
    q = t.queue()
    await q.put(1, coalesce="a", debounce=5, longest=60)
    await t.advance(5)
    lease = await q.one()
    successor = await q.put(2, coalesce="a", debounce=5, longest=60)
    assert await q.state(successor) == "delayed"
    await lease.ack()
    assert await q.payloads() == []
    await t.advance(5)
    assert await q.payloads() == [2]


@clause(29)
async def two_of_one_batch_become_one(t: Trial) -> None:
    q = t.queue()
    first, other, second, plain = await q.put_many(
        ["a1", "b1", "a2", "-"], coalesce=lambda text: None if text == "-" else text[0]
    )
    assert first == second and len({first, other, plain}) == 3
    assert await q.payloads() == ["a2", "b1", "-"]


@clause(29)
async def a_batch_that_differs_enters_not_at_all(t: Trial) -> None:
    q = t.queue()
    id = await q.put(1, coalesce="a")
    with raises(ValueError, f"items[1] has another set of keys than message {id}"):
        await q.put_many(["plain", "a"], coalesce=lambda text: text[0], keys=["k"])
    with raises(ValueError, "items[1] has another set of keys than items[0]"):
        await q.put_many(["b", "b2"], coalesce="b", each_keys=["k", "m"])
    assert await q.payloads() == [1]


@clause(29)
async def a_purge_forgets_the_names(t: Trial) -> None:
    q = t.queue()
    id = await q.put(1, coalesce="a")
    assert await q.purge("pending") == 1
    new = await q.put_known(2, coalesce="a")
    assert not new.replaced and new.id > id


@clause(29)
async def stats_count_replacements(t: Trial) -> None:
    q = t.queue()
    for n in range(4):
        await q.put(n, coalesce="a")
    stats = await q.stats()
    assert (stats.puts, stats.coalesced, stats.unsettled) == (1, 3, 1)


@clause(29)
async def a_listed_message_has_its_coalescing_name(t: Trial) -> None:
    q = t.queue()
    await q.put(coalesce="a", keys="b")
    await q.put(keys="b")
    assert [one.coalesce for one in await q.messages()] == [b"a", None]
