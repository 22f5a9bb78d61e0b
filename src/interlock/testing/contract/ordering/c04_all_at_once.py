"""Clause 4: a put takes its place in all its lanes or in none, and nothing can deadlock."""

from collections import Counter
from itertools import permutations
from random import Random

from interlock import Full, ShutDown
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial, raises


@clause(4)
async def any_order_of_keys_and_puts_drains(t: Trial) -> None:
    q = t.queue()
    wanted = 0
    for one in permutations("abc"):
        for other in permutations("bcd", 2):
            await q.put(keys=one)
            await q.put(keys=other)
            await q.put(keys=one[0], shared=other)
            wanted += 3
    assert len(await q.handle()) == wanted
    assert await q.empty()


@clause(4)
async def a_refused_put_takes_no_place(t: Trial) -> None:
    q = t.queue(maxsize=2)
    await q.put("a", keys="a")
    await q.put("free", keys="z")
    with raises(Full):
        await q.put_nowait("refused", keys=["a", "b"])
    leases = {lease.payload: lease for lease in await q.ready()}
    await leases["free"].ack()
    await q.put("b", keys="b")
    assert (await q.one()).payload == "b"
    await leases["a"].ack()
    await q.put("a again", keys="a")
    assert (await q.one()).payload == "a again"


@clause(4)
async def a_put_with_one_wrong_key_takes_no_place(t: Trial) -> None:
    q = t.queue()
    with raises(TypeError):
        await q.put("refused", keys=["a", 1.5])
    with raises(ValueError):
        await q.put("refused", keys="a", shared=["b", ""])
    await q.put("a", keys=["a", "b"])
    assert (await q.one()).payload == "a"


@clause(4)
async def producers_and_consumers_side_by_side_never_deadlock(t: Trial) -> None:
    q = t.queue(maxsize=16)
    handled: Counter[tuple[int, int]] = Counter()

    async def produce(producer: int) -> None:
        random = Random(producer)
        for n in range(150):
            keys = random.sample("abcdef", random.randint(1, 4))
            await q.put((producer, n), keys=keys[:2], shared=keys[2:])

    async def consume() -> None:
        while True:
            try:
                lease = await q.get()
            except ShutDown:
                return
            handled[tuple(lease.payload)] += 1
            await lease.ack()

    producers = [await t.start(produce(n)) for n in range(4)]
    consumers = [await t.start(consume()) for _ in range(3)]
    for producer in producers:
        await producer.result()
    await q.shutdown()
    for consumer in consumers:
        await consumer.result()
    assert handled == Counter((producer, n) for producer in range(4) for n in range(150))
