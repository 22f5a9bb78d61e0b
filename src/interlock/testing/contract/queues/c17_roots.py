"""Clause 17: roots names the messages that hold others up, and how many wait for each."""

from typing import Any

from interlock import Retry
from interlock.testing.contract.registry import BAD_CALL, clause
from interlock.testing.contract.trial import Trial, raises

_HOLD = Retry(attempts=1, then="hold")


def _told(roots: Any) -> list[tuple[str, int | None, bytes | None, int]]:
    assert all(root.exact for root in roots)
    return [(root.kind, root.id, root.key, root.blocked) for root in roots]


@clause(17)
async def a_chain_of_two_key_messages_is_counted_to_its_end(t: Trial) -> None:
    q = t.queue(retry=_HOLD)
    held = await q.put(keys="k0")
    await (await q.one()).nack()
    for n in range(9):
        await q.put(keys=[f"k{n}", f"k{n + 1}"])
    await q.put(keys="other")
    found = await q.roots()
    assert _told(found) == [("held", held, b"k0", 9)]
    assert (found.blocked, found.exact, found.roots[0].depth) == (9, True, 1)
    assert found.summary == "9 messages blocked by 1 held message"
    few = await q.roots(walk=4)
    assert (few.blocked, few.exact, few.roots[0].exact) == (4, False, False)
    await q.skip(held)
    assert not (await q.roots()).roots


@clause(17)
async def every_kind_of_root_is_named_the_one_that_blocks_most_first(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=2, first=50, jitter=False, then="hold"))
    held = await q.put(keys="held")
    await (await q.one()).nack(delay=0)
    await (await q.one()).nack()
    backing_off = await q.put(keys="backing off")
    await (await q.one()).nack()
    leased = await q.put(keys="leased")
    await q.one()
    await q.pause("paused")
    for key, count in (("held", 4), ("backing off", 3), ("leased", 2), ("paused", 1)):
        for _ in range(count):
            await q.put(keys=key)
    await t.advance(5)
    early = await q.roots(slow_wait=5.5)
    assert "leased" not in {root.kind for root in early}
    found = await q.roots(slow_wait=5)
    assert _told(found) == [
        ("held", held, b"held", 4),
        ("backing_off", backing_off, b"backing off", 3),
        ("leased", leased, b"leased", 2),
        ("paused", None, b"paused", 1),
    ]
    assert [root.leased_for for root in found] == [None, None, 5, None]
    assert [root.due_in for root in found] == [None, 45, None, None]
    assert found.blocked == 10


@clause(17)
async def what_waits_for_several_roots_is_counted_once(t: Trial) -> None:
    q = t.queue(retry=_HOLD)
    held = []
    for key in "ab":
        held.append(await q.put(keys=key))
        await (await q.one()).nack()
    for _ in range(3):
        await q.put(keys=["a", "b"])
    found = await q.roots()
    assert [root.blocked for root in found] == [3, 3]
    assert found.blocked == 3
    assert found.summary == "3 messages blocked by 2 held messages"
    (first,) = (await q.roots(1)).roots
    assert first.id == held[0]
    assert not (await q.roots(1)).exact, "one more is there"


@clause(17)
async def readers_do_not_wait_for_readers(t: Trial) -> None:
    q = t.queue(retry=_HOLD)
    held = await q.put(shared="a")
    await (await q.one()).nack()
    await q.put(shared="a")
    assert not (await q.roots()).roots
    await q.put(keys="a")
    await q.put(shared="a")
    assert _told(await q.roots()) == [("held", held, b"a", 2)]


@clause(17)
async def a_barrier_counts_and_all_behind_it(t: Trial) -> None:
    q = t.queue(retry=_HOLD)
    held = await q.put(keys="a")
    await (await q.one()).nack()
    await q.put(barrier=True)
    for n in range(3):
        await q.put(keys=f"other {n}")
    assert _told(await q.roots()) == [("held", held, b"a", 4)]


@clause(17)
async def a_paused_queue_blocks_all_that_is_not_handed_out(t: Trial) -> None:
    q = t.queue()
    await q.put(keys="a")
    await q.one()
    for key in "abc":
        await q.put(keys=key)
    await q.put(delay=9)
    await q.pause()
    found = await q.roots(slow_wait=9)
    assert _told(found) == [("paused", None, None, 3)]


@clause(17)
async def a_root_is_found_behind_thousands_of_delays(t: Trial) -> None:
    q = t.queue(retry=Retry(attempts=2, first=500, longest=500, jitter=False))
    backing_off = await q.put(keys="a")
    await (await q.one()).nack()
    await q.put(keys="a")
    for _ in range(12):
        await q.put_many([0] * 900, delay=400)
    found = await q.roots()
    assert _told(found) == [("backing_off", backing_off, b"a", 1)]
    assert found.exact


@clause(BAD_CALL)
async def roots_takes_a_limit_seconds_and_a_walk(t: Trial) -> None:
    q = t.queue()
    for wrong, error in (
        ({"limit": 0}, ValueError),
        ({"limit": "9"}, TypeError),
        ({"slow_wait": -1}, ValueError),
        ({"slow_wait": "9"}, TypeError),
        ({"walk": 0}, ValueError),
        ({"walk": 2_001}, ValueError),
        ({"walk": 1.5}, TypeError),
    ):
        with raises(error, *wrong):
            await q.roots(**wrong)
