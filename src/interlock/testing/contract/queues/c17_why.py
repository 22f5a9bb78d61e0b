"""Clause 17: explain returns the state of every unsettled message, and its holders."""

from typing import Any

from interlock import Retry
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial, raises


def _holders(node: Any) -> dict[bytes | None, tuple[int, ...]]:
    """Return the messages that hold a node up, by key; None is a barrier."""
    return {blocker.key: tuple(blocker.holders) for blocker in node.blocked}


def _ahead(node: Any) -> dict[bytes | None, int]:
    assert all(blocker.exact for blocker in node.blocked)
    return {blocker.key: blocker.ahead for blocker in node.blocked}


def _ids(explanation: Any) -> list[int]:
    return [node.id for node in explanation.nodes]


@clause(17)
async def every_state_has_its_name(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=2, first=9, jitter=False, then="hold"))
    held = await q.put(keys="held")
    await (await q.one()).nack(delay=0)
    await (await q.one()).nack()
    backing_off = await q.put(keys="backing off")
    await (await q.one()).nack()
    leased = await q.put(keys="a")
    await q.one()
    waiting = await q.put(keys="a")
    ready = await q.put(keys="b")
    delayed = await q.put(keys="c", delay=9)
    states = {id: await q.state(id) for id in (held, backing_off, leased, waiting, ready, delayed)}
    assert states == {
        held: "held",
        backing_off: "backing_off",
        leased: "leased",
        waiting: "waiting",
        ready: "ready",
        delayed: "delayed",
    }


@clause(17)
async def a_leased_message_says_how_long_and_how_much_is_left(t: Trial) -> None:
    q = t.queue(lease=30)
    id = await q.put(keys="a")
    await t.advance(2)
    await q.one()
    await t.advance(3)
    (node,) = (await q.explain(id)).nodes
    assert (node.id, node.attempt) == (id, 1)
    assert (node.age, node.held_for, node.lease_left) == (5, 3, 27)
    assert (node.due_in, tuple(node.blocked), tuple(node.paused)) == (None, (), ())


@clause(17)
async def a_lease_without_a_deadline_says_so(t: Trial) -> None:
    q = t.queue()
    id = await q.put()
    await q.one()
    await t.advance(3)
    (node,) = (await q.explain(id)).nodes
    assert (node.held_for, node.lease_left) == (3, None)


@clause(17)
async def what_falls_due_says_when(t: Trial) -> None:
    q = t.queue(retry=Retry(first=9, jitter=False))
    delayed = await q.put(keys="a", delay=10)
    failing = await q.put(keys="b")
    await t.advance(1)
    await (await q.one()).nack()
    await t.advance(1)
    (node,) = (await q.explain(delayed)).nodes
    assert (node.due_in, node.held_for, tuple(node.blocked)) == (8, None, ())
    (node,) = (await q.explain(failing)).nodes
    assert (node.due_in, node.attempt, tuple(node.blocked)) == (8, 2, ())


@clause(17)
async def a_waiting_message_names_the_holder_and_how_many_stand_before(t: Trial) -> None:
    q = t.queue()
    first = await q.put(keys="a")
    for _ in range(3):
        await q.put(keys="a")
    last = await q.put(keys="a")
    await q.one()
    explanation = await q.explain(last)
    assert _ids(explanation) == [last, first]
    node, root = explanation.nodes
    assert _holders(node) == {b"a": (first,)}
    assert _ahead(node) == {b"a": 4}
    assert (root.state, tuple(root.blocked)) == ("leased", ())
    assert not explanation.truncated


@clause(17)
async def each_key_names_its_own_holders(t: Trial) -> None:
    q = t.queue()
    a = await q.put(keys="a")
    b = [await q.put(shared="b") for _ in range(2)]
    await q.put(shared="free")
    id = await q.put(keys=["b", "a", "open"], shared="free")
    explanation = await q.explain(id)
    assert _holders(explanation.nodes[0]) == {b"b": tuple(b), b"a": (a,)}
    assert _ahead(explanation.nodes[0]) == {b"b": 2, b"a": 1}
    assert [blocker.key for blocker in explanation.nodes[0].blocked] == [b"b", b"a"]
    assert _ids(explanation) == [id, *b, a]


@clause(17)
async def a_chain_is_followed_to_its_roots(t: Trial) -> None:
    q = t.queue()
    ids = [await q.put(keys=[f"k{n}", f"k{n + 1}"]) for n in range(5)]
    await q.one()
    explanation = await q.explain(ids[4])
    assert _ids(explanation) == ids[::-1]
    for n, node in enumerate(explanation.nodes[:-1]):
        assert node.state == "waiting"
        assert _holders(node) == {f"k{4 - n}".encode(): (ids[3 - n],)}
    assert explanation.nodes[-1].state == "leased"


@clause(17)
async def each_message_is_named_once_breadth_first(t: Trial) -> None:
    q = t.queue()
    root = await q.put(keys=["a", "b"])
    left = await q.put(keys=["a", "c"])
    right = await q.put(keys=["b", "d"])
    tip = await q.put(keys=["c", "d"])
    explanation = await q.explain(tip)
    assert _ids(explanation) == [tip, left, right, root]
    assert not explanation.truncated


@clause(17)
async def a_limit_cuts_the_answer_and_it_says_so(t: Trial) -> None:
    q = t.queue()
    ids = [await q.put(keys=[f"k{n}", f"k{n + 1}"]) for n in range(5)]
    explanation = await q.explain(ids[4], limit=3)
    assert _ids(explanation) == [ids[4], ids[3], ids[2]]
    assert explanation.truncated
    assert not (await q.explain(ids[4], limit=5)).truncated


@clause(17)
async def a_hundred_messages_are_the_default_limit(t: Trial) -> None:
    q = t.queue()
    ids = [await q.put(keys=[f"k{n}", f"k{n + 1}"]) for n in range(150)]
    explanation = await q.explain(ids[-1])
    assert len(explanation.nodes) == 100 and explanation.truncated


@clause(17)
async def a_key_is_explained_by_what_stands_on_it(t: Trial) -> None:
    q = t.queue()
    other = await q.put(keys="b")
    first = await q.put(keys=["a", "b"])
    second = await q.put(shared="a")
    await q.put(keys="c")
    explanation = await q.explain(key="a")
    assert _ids(explanation) == [first, second, other]
    assert _holders(explanation.nodes[0]) == {b"b": (other,)}
    assert _holders(explanation.nodes[1]) == {b"a": (first,)}
    seven = await q.put(keys="7")
    assert _ids(await q.explain(key=7)) == [seven]


@clause(17)
async def a_message_behind_a_barrier_names_it(t: Trial) -> None:
    q = t.queue()
    before = await q.put(keys="a")
    barrier = await q.put(barrier=True)
    await q.put(barrier=True)
    after = await q.put(keys="a")
    explanation = await q.explain(after)
    node = explanation.nodes[0]
    assert node.blocked[0].key is None
    assert _holders(node)[None] == (barrier,)
    assert _ahead(node)[None] == 2
    assert before in _ids(explanation)


@clause(17)
async def a_waiting_barrier_says_how_many_stand_before_it(t: Trial) -> None:
    q = t.queue()
    leased = await q.put(keys="a")
    await q.one()
    await q.put(keys="a")
    await q.put()
    await q.put(delay=5)
    barrier = await q.put(barrier=True)
    node = (await q.explain(barrier)).nodes[0]
    assert node.state == "waiting"
    assert [blocker.key for blocker in node.blocked] == [None]
    assert node.blocked[0].ahead == 3
    assert leased in node.blocked[0].holders


@clause(17)
async def a_paused_message_names_what_is_paused(t: Trial) -> None:
    q = t.queue()
    id = await q.put(keys=["a", "b"])
    await q.pause("a")
    (node,) = (await q.explain(id)).nodes
    assert (node.state, tuple(node.paused)) == ("waiting", (b"a",))
    await q.pause()
    (node,) = (await q.explain(id)).nodes
    assert set(node.paused) == {b"", b"a"}
    await q.resume()
    await q.resume("a")
    (node,) = (await q.explain(id)).nodes
    assert (node.state, tuple(node.paused)) == ("ready", ())


@clause(17)
async def who_is_held_up_by_a_paused_key_learns_it_from_the_chain(t: Trial) -> None:
    q = t.queue()
    await q.pause("a")
    first = await q.put(keys=["a", "b"])
    behind = await q.put(keys="b")
    explanation = await q.explain(behind)
    assert _ids(explanation) == [behind, first]
    assert tuple(explanation.nodes[1].paused) == (b"a",)


@clause(17)
async def a_held_message_stands_at_the_root_of_a_chain(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=1, then="hold"))
    held = await q.put(keys="a")
    await (await q.one()).nack()
    behind = await q.put(keys="a")
    explanation = await q.explain(behind)
    assert [(node.id, node.state) for node in explanation.nodes] == [
        (behind, "waiting"),
        (held, "held"),
    ]


@clause(17)
async def what_is_settled_or_unknown_has_no_explanation(t: Trial) -> None:
    q = t.queue()
    settled = await q.put()
    await (await q.one()).ack()
    dead = await q.put()
    await (await q.one()).reject("no")
    for id in (settled, dead, 10**9):
        with raises(KeyError, str(id)):
            await q.explain(id)
    await q.put(keys="a", delay=5)
    for key in ("nobody", "a"):
        with raises(KeyError, key):
            await q.explain(key=key)


@clause(17)
async def an_explanation_can_be_read(t: Trial) -> None:
    q = t.queue()
    first = await q.put(keys="account:7")
    await q.one()
    second = await q.put(keys="account:7")
    drawn = str(await q.explain(second))
    for word in (str(first), str(second), "account:7", "leased", "waiting"):
        assert word in drawn, f"{word} is missing in\n{drawn}"


@clause(17)
async def explain_changes_nothing(t: Trial) -> None:
    q = t.queue()
    for _ in range(5):
        await q.put(keys="a")
    before = await q.stats()
    await q.explain(key="a")
    assert await q.stats() == before
    assert len(await q.handle()) == 5


@clause(17)
async def stats_count_the_messages_in_each_state(t: Trial) -> None:
    q = t.queue(retry=Retry(first=9, jitter=False))
    await q.put("failing", keys="f")
    await (await q.one()).nack()
    await q.put("leased", keys="a")
    await q.one()
    await q.put("waiting", keys="a")
    await q.put("ready", keys="b")
    await q.put("delayed", delay=9)
    stats = await q.stats()
    assert (
        stats.unsettled,
        stats.delayed,
        stats.waiting,
        stats.ready,
        stats.leased,
        stats.backing_off,
        stats.held,
        stats.dead,
    ) == (5, 1, 1, 1, 1, 1, 0, 0)
    assert (stats.puts, stats.leases, stats.acks, stats.retries) == (5, 2, 0, 1)


@clause(17)
async def hot_keys_are_the_deepest_lanes(t: Trial) -> None:
    q = t.queue()
    for key in ("a", "c", "b", "c", "b", "c"):
        await q.put(keys=key)
    await q.put(shared="d")
    await q.put(keys="a", delay=5)
    assert [(hot.key, hot.depth) for hot in await q.hot_keys(3)] == [
        (b"c", 3),
        (b"b", 2),
        (b"a", 1),
    ]
    assert [hot.key for hot in await q.hot_keys(9)] == [b"c", b"b", b"a", b"d"]
    await q.handle()
    assert await q.hot_keys(9) == []


@clause(17)
async def what_is_queued_is_listed_in_the_order_of_its_puts(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=1, then="hold"))
    held = await q.put("held", keys=["a", "b"], priority=3)
    await (await q.one()).nack(error="no such account")
    delayed = await q.put("delayed", keys="d", delay=60)
    waiting = await q.put("waiting", keys="b", shared="s")
    unkeyed = await q.put("unkeyed")
    lease = await q.one()
    ready = await q.put("ready", shared="s2")
    told = await q.messages()
    assert [one.id for one in told] == [held, delayed, waiting, unkeyed, ready]
    states = ["held", "delayed", "waiting", "leased", "ready"]
    assert [one.state for one in told] == states == [one.payload for one in told][:3] + states[3:]
    first, later, third, *_ = told
    assert (first.keys, first.priority, first.attempt) == ({b"a", b"b"}, 3, 1)
    assert "no such account" in first.error and third.error == ""
    assert (third.keys, third.shared, later.keys) == ({b"b"}, {b"s"}, {b"d"})
    await lease.ack()
    assert [one.id for one in await q.messages()] == [held, delayed, waiting, ready]


@clause(17)
async def what_is_listed_may_be_some_of_it_in_pages(t: Trial) -> None:
    q = t.queue()
    ids = [await q.put(n, keys=f"key {n % 3}", shared="all") for n in range(9)]
    assert [one.id for one in await q.messages(2)] == ids[:2]
    assert [one.id for one in await q.messages(5, after=ids[1])] == ids[2:7]
    assert [one.id for one in await q.messages(key="key 1")] == ids[1::3]
    assert [one.id for one in await q.messages(key="all", after=ids[7])] == ids[8:]
    assert [one.id for one in await q.messages(1, key="key 1", after=ids[1])] == ids[4:5]
    assert [one.id for one in await q.messages(state="ready")] == ids[:3]
    later = await q.put("later", keys="key 1", shared="all", delay=60)
    assert [one.id for one in await q.messages(key="key 1")] == [*ids[1::3], later]
    assert await q.cancel(later)
    assert await q.messages(state="held") == [] == await q.messages(key="nobody's")
    assert await q.messages(after=ids[-1]) == []
    await q.cancel(ids[2])
    # The next page works although the last message of this one is settled.
    assert [one.id for one in await q.messages(2, after=ids[2])] == ids[3:5]


@clause(17)
async def pages_show_what_is_there_throughout_once_and_as_it_is(t: Trial) -> None:
    q = t.queue()
    ids = [await q.put(n, keys=f"key {n % 3}", delay=9 * (n % 2)) for n in range(99)]
    first = await q.messages(10)
    assert [one.id for one in first] == ids[:10]
    gone = [ids[5], ids[10], *ids[20:70:2]]
    for id in gone:
        await q.cancel(id)
    # A delayed message gets a new place, and keeps its id.
    await t.advance(10)
    leases = await q.ready()
    new = await q.put("new", keys="key 1")
    pages = [first]
    while page := await q.messages(10, after=pages[-1][-1].id):
        pages.append(page)
    assert [len(page) for page in pages[:-1]] == [10] * (len(pages) - 1)
    told = [one for page in pages[1:] for one in page]
    assert [one.id for one in told] == [id for id in [*ids[10:], new] if id not in gone]
    assert {one.state for one in told} <= {"ready", "waiting", "leased"} and leases[0].id == ids[0]
    # A page that is requested again, and one that was never begun.
    assert [one.id for one in await q.messages(10, after=ids[9])] == [one.id for one in pages[1]]
    assert [one.id for one in await q.messages(2, after=ids[70])] == ids[71:73]
    for lease in leases:
        await lease.ack()


@clause(17)
async def pages_of_a_state_and_of_a_key_go_on(t: Trial) -> None:
    q = t.queue()
    ids = [await q.put(n, keys=f"key {n % 3}", delay=9 * (n % 2)) for n in range(60)]
    for options in ({"state": "delayed"}, {"key": "key 1"}, {"key": "key 2", "state": "waiting"}):
        wanted = [one.id for one in await q.messages(60, **options)]
        told = [one.id for one in await q.messages(3, **options)]
        other = [one.id for one in await q.messages(4)]
        while page := await q.messages(3, after=told[-1], **options):
            told += [one.id for one in page]
            other += [one.id for one in await q.messages(4, after=other[-1])]
        assert told == wanted and len(told) >= 9
        assert other == ids[: len(other)] and len(other) >= 12


@clause(17)
async def what_is_pending_on_a_key_is_purged(t: Trial) -> None:
    q = t.queue()
    await q.put("leased", keys=7)
    lease = await q.one()
    for n in range(3):
        await q.put(n, keys="7", shared="b", delay=n % 2)
    await q.put("reads", shared=b"7")
    other = await q.put("other", keys="b")
    assert await q.purge(key=7) == 4
    assert {one.id for one in await q.messages()} == {lease.id, other}
    assert await q.state(other) == "ready"
    assert await q.purge("pending", key="7") == 0
    await lease.ack()


@clause(17)
async def what_is_pending_is_purged(t: Trial) -> None:
    q = t.queue()
    await q.put("leased", keys="a")
    lease = await q.one()
    for n in range(4):
        await q.put(n, keys="a", delay=n % 2)
    assert await q.purge() == 4
    assert [one.payload for one in await q.messages()] == ["leased"]
    await lease.ack()
    assert await q.purge("pending") == 0
