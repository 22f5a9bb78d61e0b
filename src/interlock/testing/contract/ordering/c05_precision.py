"""Clause 5: a message waits only for messages that conflict with it."""

from dataclasses import dataclass
from random import Random

from interlock import Empty
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial, raises


@clause(5)
async def a_busy_key_holds_up_no_other_key(t: Trial) -> None:
    q = t.queue()
    await q.put("busy", keys="busy")
    busy = await q.one()
    wanted = [await q.put(keys=f"key {n}") for n in range(2_000)]
    assert [lease.id for lease in await q.ready()] == wanted
    assert busy.payload == "busy"


@clause(5)
async def what_waits_holds_up_nobody_else(t: Trial) -> None:
    q = t.queue()
    await q.put("a1", keys="a")
    for n in range(50):
        await q.put(f"a{n + 2}", keys="a")
    await q.put("b", keys="b")
    await q.put("unkeyed")
    assert await q.payloads() == ["a1", "b", "unkeyed"]


@clause(5)
async def readers_do_not_wait_for_readers(t: Trial) -> None:
    q = t.queue()
    await q.put("b", keys="b")
    await q.put("waits for b", keys="b", shared="a")
    await q.put("reader", shared="a")
    assert await q.payloads() == ["b", "reader"]


@clause(5)
async def a_batch_of_leases_gives_what_there_is(t: Trial) -> None:
    q = t.queue()
    await q.put_many(range(3))
    assert [lease.payload for lease in await q.get_many(2)] == [0, 1]
    assert [lease.payload for lease in await q.get_many(64)] == [2]
    with raises(Empty):
        await q.get_many(64, block=False)


@clause(5)
async def a_batch_of_leases_closes_no_lane_it_did_not_ask_for(t: Trial) -> None:
    q = t.queue()
    await q.put_many(["a1", "b1", "a2", "b2"], keys=lambda payload: payload[0])
    (first,) = await q.get_many(1)
    assert first.payload == "a1"
    (other,) = await q.get_many(1)
    assert other.payload == "b1"


@clause(5)
async def a_settlement_wakes_who_waits_for_its_lane(t: Trial) -> None:
    q = t.queue()
    await q.put(1, keys="a")
    await q.put(2, keys="a")
    first = await q.one()
    second = await t.wakes(q.get(), first.ack())
    assert second.payload == 2


@clause(5)
async def a_put_wakes_who_waits_for_work(t: Trial) -> None:
    q = t.queue()
    assert (await t.wakes(q.get(), q.put("put"))).payload == "put"
    assert (await t.wakes(q.get(), q.put_nowait("at once"))).payload == "at once"
    assert (await t.wakes(q.get(), q.put_many(["batch"]))).payload == "batch"
    (lease,) = await t.wakes(q.get_many(9), q.put("to a batch"))
    assert lease.payload == "to a batch"


@clause(5)
async def a_batch_wakes_as_many_as_it_has_messages(t: Trial) -> None:
    q = t.queue()
    getters = [await t.start(q.get()) for _ in range(5)]
    await q.put_many(range(5))
    leases = [await getter.result() for getter in getters]
    assert sorted(lease.payload for lease in leases) == list(range(5))


@clause(5)
async def a_settlement_wakes_as_many_as_it_readies(t: Trial) -> None:
    q = t.queue()
    await q.put(keys=["a", "b", "c"])
    writer = await q.one()
    await q.put("a", keys="a")
    await q.put("b", keys="b")
    await q.put("c", keys="c")
    getters = [await t.start(q.get()) for _ in range(3)]
    await writer.ack()
    assert {(await getter.result()).payload for getter in getters} == {"a", "b", "c"}


@clause(5)
async def a_wake_up_is_not_lost_on_one_who_asks_for_another_kind(t: Trial) -> None:
    q = t.queue()
    keyed = [await t.start(q.get(kind="keyed")) for _ in range(3)]
    unkeyed = await t.start(q.get(kind="unkeyed"))
    await q.put("unkeyed")
    assert (await unkeyed.result()).payload == "unkeyed"
    await q.put_many("abc", keys=lambda payload: payload)
    assert {(await getter.result()).payload for getter in keyed} == {"a", "b", "c"}


@dataclass(frozen=True)
class _Put:
    id: int
    keys: frozenset[str]
    shared: frozenset[str]
    priority: int

    def conflicts(self, other: "_Put") -> bool:
        return bool(self.keys & (other.keys | other.shared) or other.keys & self.shared)


@clause(5)
async def exactly_those_wait_that_conflict_with_one_before(t: Trial) -> None:
    q = t.queue()
    random = Random(5)
    unsettled: list[_Put] = []
    for _ in range(60):
        for _ in range(random.randint(0, 8)):
            keys = frozenset(random.sample("abcdefgh", random.choice([0, 1, 1, 1, 2, 3])))
            shared = frozenset(random.sample("abcdefgh", random.choice([0, 0, 1, 2]))) - keys
            priority = random.choice([0, 0, 0, -100, 100, 7])
            id = await q.put(keys=keys, shared=shared, priority=priority)
            unsettled.append(_Put(id, keys, shared, priority))
        free = [
            put
            for n, put in enumerate(unsettled)
            if not any(put.conflicts(before) for before in unsettled[:n])
        ]
        free.sort(key=lambda put: (-put.priority, put.id))
        leases = await q.ready()
        assert [lease.id for lease in leases] == [put.id for put in free]
        for lease in leases:
            if random.random() < 0.6:
                await lease.ack()
                unsettled = [put for put in unsettled if put.id != lease.id]
            else:
                await lease.release()
