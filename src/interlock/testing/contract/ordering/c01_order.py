"""Clause 1: conflicting messages are leased in sequence. Also the equality of keys."""

from random import Random

from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial


@clause(1)
async def messages_of_one_key_come_in_put_order(t: Trial) -> None:
    q = t.queue()
    for n in range(5):
        await q.put(n, keys="a")
    for n in range(5):
        lease = await q.one()
        assert lease.payload == n
        await lease.ack()
    assert await q.empty()


@clause(1)
async def a_batch_takes_its_places_in_the_order_of_its_items(t: Trial) -> None:
    q = t.queue()
    ids = await q.put_many([3, 1, 2], keys="a")
    assert ids == sorted(set(ids)) and len(ids) == 3
    assert await q.handle() == [3, 1, 2]


@clause(1)
async def puts_of_each_of_several_concurrent_callers_keep_their_order(t: Trial) -> None:
    q = t.queue()

    async def caller(me: int) -> list[int]:
        return [await q.put([me, n], keys="a") for n in range(25)]

    running = [await t.start(caller(me)) for me in range(6)]
    ids = [await one.result() for one in running]
    assert len({id for own in ids for id in own}) == 150
    handled = await q.handle()
    for me, own in enumerate(ids):
        assert own == sorted(own)
        assert [payload for payload in handled if payload[0] == me] == [[me, n] for n in range(25)]


@clause(1)
async def a_batch_may_name_the_keys_of_each_item(t: Trial) -> None:
    q = t.queue()
    await q.put_many(["a1", "b1", "a2"], keys=lambda payload: payload[0])
    assert await q.payloads() == ["a1", "b1"]


@clause(1)
async def writers_and_readers_of_a_key_come_in_put_order(t: Trial) -> None:
    q = t.queue()
    for n, mode in enumerate(["shared", "shared", "keys", "shared", "keys", "keys", "shared"]):
        await q.put(n, **{mode: "a"})
    rounds = []
    while leases := await q.ready():
        rounds.append([lease.payload for lease in leases])
        await q.ack_many(leases)
    assert rounds == [[0, 1], [2], [3], [4], [5], [6]]


@clause(1)
async def order_holds_on_each_of_a_messages_keys(t: Trial) -> None:
    q = t.queue()
    random = Random(1)
    names = "abcdef"
    put: dict[int, list[str]] = {}
    for _ in range(300):
        keys = random.sample(names, random.randint(1, 3))
        put[await q.put(keys=keys)] = keys
    handed: dict[str, list[int]] = {name: [] for name in names}
    while leases := await q.ready():
        random.shuffle(leases)
        for lease in leases[: random.randint(1, len(leases))]:
            for key in put[lease.id]:
                handed[key].append(lease.id)
            await lease.ack()
            leases.remove(lease)
        for lease in leases:
            await lease.release()
    for name in names:
        assert handed[name] == [id for id, keys in put.items() if name in keys]


@clause(1)
async def str_int_and_bytes_of_one_text_are_one_key(t: Trial) -> None:
    q = t.queue()
    for n, key in enumerate([7, "7", b"7"]):
        await q.put(n, keys=key)
    await q.put("other", keys="07")
    first, other = await q.ready()
    assert (first.payload, other.payload) == (0, "other")
    assert first.keys == frozenset({b"7"})


@clause(1)
async def a_str_is_utf_8_and_an_int_is_its_decimal_digits(t: Trial) -> None:
    q = t.queue()
    await q.put(keys=["é", -12, 10**30, b"\x00\xff"])
    lease = await q.one()
    assert lease.keys == {"é".encode(), b"-12", b"1" + b"0" * 30, b"\x00\xff"}


@clause(1)
async def a_str_is_always_one_key(t: Trial) -> None:
    q = t.queue()
    await q.put("word", keys="ab")
    await q.put("letter", keys="a")
    assert await q.payloads() == ["word", "letter"]


@clause(1)
async def keys_may_be_any_iterable(t: Trial) -> None:
    q = t.queue()
    for keys in (
        ["a", "b"],
        ("a", "b"),
        {"a", "b"},
        frozenset({"a", "b"}),
        iter(["a", "b"]),
        dict.fromkeys(["a", "b"]),
        (key for key in "ab"),
    ):
        await q.put(keys=keys)
        await q.put(shared=["c", "d"])
    lease, *readers = await q.ready()
    assert lease.keys == {b"a", b"b"} and len(readers) == 7
    assert {reader.shared for reader in readers} == {frozenset({b"c", b"d"})}
    assert len(await q.handle()) == 0


@clause(1)
async def a_key_named_in_both_ways_is_exclusive(t: Trial) -> None:
    q = t.queue()
    await q.put("both", keys="a", shared=["a", "b"])
    await q.put("reader", shared="a")
    lease = await q.one()
    assert lease.keys == {b"a"} and lease.shared == {b"b"}


@clause(1)
async def a_key_named_twice_counts_once(t: Trial) -> None:
    q = t.queue()
    await q.put("twice", keys=["a", "a", b"a"], shared=["b", "b"])
    await q.put("next", keys=["a", "b"])
    lease = await q.one()
    assert lease.keys == {b"a"} and lease.shared == {b"b"}
    await lease.ack()
    assert await q.handle() == ["next"]
    assert await q.empty()


@clause(1)
async def the_queue_may_be_told_how_a_payload_names_its_keys(t: Trial) -> None:
    q = t.queue(keys=lambda payload: payload[0], shared=lambda payload: list(payload[1:]))
    await q.put("ab")
    await q.put("b")
    await q.put("ab", keys=(), shared=())
    first, unkeyed = await q.ready()
    assert first.keys == {b"a"} and first.shared == {b"b"}
    assert (unkeyed.keys, unkeyed.shared) == (frozenset(), frozenset())


@clause(1)
async def ids_rise_with_the_puts(t: Trial) -> None:
    q = t.queue()
    ids = [await q.put(), *await q.put_many([1, 2]), await q.put_nowait(), await q.put(keys="a")]
    assert all(isinstance(id, int) for id in ids)
    assert ids == sorted(set(ids))
