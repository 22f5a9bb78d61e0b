"""Clause 11: a queue is bounded by messages and by bytes; it never drops."""

import queue
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from interlock import Empty, Full, Retry
from interlock.testing.contract.faces import QueueFace
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial, raises, step

_AT_ONCE = Retry(attempts=None, first=0)


@clause(11)
async def no_bound_is_the_default(t: Trial) -> None:
    q = t.queue()
    for n in range(5_000):
        await q.put_nowait(n)
    assert not await q.full()
    assert await q.qsize() == 5_000


@clause(11)
async def a_full_queue_refuses_a_put_that_does_not_wait(t: Trial) -> None:
    q = t.queue(maxsize=2)
    await q.put(1)
    assert not await q.full()
    await q.put(2)
    assert await q.full()
    before = await q.stats()
    with raises(Full):
        await q.put_nowait(3)
    with raises(Full):
        await q.put(3, block=False)
    with raises(Full):
        await q.put_many([3], block=False)
    assert await q.stats() == before
    assert await q.handle() == [1, 2]


@clause(11)
async def a_full_queue_times_a_put_out(t: Trial) -> None:
    q = t.queue(maxsize=1)
    await q.put(1)
    with raises(Full):
        await q.put(2, timeout=0)
    with raises(Full):
        await t.until_ended(await t.start(q.put(2, timeout=0.01)))
    assert await q.handle() == [1]


@clause(11)
async def a_full_queue_blocks_a_put_until_there_is_room(t: Trial) -> None:
    q = t.queue(maxsize=1)
    await q.put(1)
    first = await q.one()
    await t.wakes(q.put(2), first.ack())
    second = await q.one()
    assert second.payload == 2
    await t.wakes(q.put_many([3]), second.ack())
    assert (await q.one()).payload == 3


@clause(11)
async def leased_messages_count(t: Trial) -> None:
    q = t.queue(maxsize=2)
    await q.put_many([1, 2])
    leases = await q.ready()
    assert await q.full()
    assert await q.qsize() == 0
    assert await q.empty()
    with raises(Full):
        await q.put_nowait(3)
    await leases[0].ack()
    await q.put_nowait(3)


@clause(11)
async def concurrent_puts_fill_the_room_and_the_others_are_refused(t: Trial) -> None:
    q = t.queue(maxsize=5)

    async def put(n: int) -> tuple[int, int] | None:
        try:
            return await q.put_nowait(n), n
        except Full:
            return None

    running = [await t.start(put(n)) for n in range(12)]
    done = [one for one in [await each.result() for each in running] if one]
    assert len(done) == 5
    assert await q.payloads() == [n for _, n in sorted(done)]


@clause(11)
async def every_unsettled_message_counts(t: Trial) -> None:
    q = t.queue(maxsize=4, retry=Retry(attempts=1, then="hold"))
    await q.put("delayed", delay=60)
    await q.put("held")
    await (await q.one()).nack()
    await q.put("leased", keys="a")
    await q.put("waits", keys="a")
    await q.one()
    assert await q.full()
    with raises(Full):
        await q.put_nowait("no room")
    assert await q.qsize() == 3


@clause(11)
async def what_settles_a_message_makes_room(t: Trial) -> None:
    async def ack(q: QueueFace, id: int) -> None:
        await (await q.one()).ack()

    async def reject(q: QueueFace, id: int) -> None:
        await (await q.one()).reject("no")

    async def die(q: QueueFace, id: int) -> None:
        await (await q.one()).nack()

    async def cancel(q: QueueFace, id: int) -> None:
        assert await q.cancel(id)

    async def revoke(q: QueueFace, id: int) -> None:
        await q.one()
        assert await q.revoke(id, then="skip")

    for settle in (ack, reject, die, cancel, revoke):
        q = t.queue(maxsize=1, retry=Retry(attempts=1))
        id = await q.put("first")
        await t.wakes(q.put("second"), settle(q, id))
        assert (await q.one()).payload == "second"


@clause(11)
async def an_operator_who_settles_makes_room(t: Trial) -> None:
    async def hold(q: QueueFace) -> int:
        id = await q.put("first")
        await (await q.one()).nack()
        return id

    settles: list[Callable[[QueueFace, int], Coroutine[Any, Any, bool]]] = [
        QueueFace.skip,
        QueueFace.bury,
        QueueFace.cancel,
    ]
    for settle in settles:
        q = t.queue(maxsize=1, retry=Retry(attempts=1, then="hold"))
        id = await hold(q)
        await t.wakes(q.put("second"), settle(q, id))
        assert (await q.one()).payload == "second"


@clause(11)
async def a_returning_message_is_not_new(t: Trial) -> None:
    q = t.queue(maxsize=1, maxbytes=5, lease=10, retry=_AT_ONCE)
    await q.put(b"12345", keys="a")
    await (await q.one()).nack()
    await (await q.one()).release()
    await t.suspected(q)
    await t.advance(10)
    assert (await q.one()).attempt == 3
    with raises(Full):
        await q.put_nowait(b"")


@clause(11)
async def a_queue_is_bounded_by_bytes(t: Trial) -> None:
    q = t.queue(maxbytes=10)
    await q.put(b"12345")
    await q.put("1234")
    assert (await q.stats()).bytes == 9
    with raises(Full):
        await q.put_nowait(b"12")
    await q.put_nowait(b"1")
    await q.put_nowait(b"")
    first, *_ = await q.ready()
    with raises(Full):
        await q.put_nowait(b"1")
    await t.wakes(q.put(b"abcde"), first.ack())
    assert (await q.stats()).bytes == 10


@clause(11)
async def changed_bounds_hold_for_what_comes(t: Trial) -> None:
    q = t.queue(maxsize=2, maxdead=1, retry=Retry(attempts=1))
    await q.put_many([1, 2])
    # Waiting puts find the room of a larger bound.
    changed = await t.wakes(_put_and_configured(q, 3), q.configure(maxsize=3))
    assert (changed["maxsize"], changed["maxdead"], changed["retry"].attempts) == (3, 1, 1)
    # A smaller bound drops nothing: puts wait until enough is settled.
    await q.configure(maxsize=2)
    with raises(Full):
        await q.put_nowait(4)
    first, second, third = await q.ready()
    assert [one.payload for one in (first, second, third)] == [1, 2, 3]
    await first.ack()
    with raises(Full):
        await q.put_nowait(4)
    # Failures follow the new policy, also those of earlier puts.
    await q.configure(retry=Retry(attempts=2, first=0))
    await second.nack()
    assert (await q.stats()).dead == 0
    again = await q.one()
    assert (again.payload, again.attempt) == (2, 2)
    await again.nack()
    assert (await q.stats()).dead == 1
    await q.put_nowait(4)
    # The new bound of dead letters is reached: the next message is held.
    await q.configure(maxdead=0, retry=Retry(attempts=1))
    await third.nack()
    assert ((await q.stats()).dead, (await q.stats()).held) == (1, 1)


async def _put_and_configured(q: QueueFace, payload: object) -> Any:
    await q.put(payload)
    return await q.configure()


@clause(11)
async def the_queue_may_be_told_how_large_a_payload_is(t: Trial) -> None:
    q = t.queue(maxbytes=10, sizeof=lambda payload: payload["size"])
    await q.put({"size": 6})
    with raises(Full):
        await q.put_nowait({"size": 5})
    await q.put({"size": 4})
    assert (await q.stats()).bytes == 10


@clause(11)
async def what_is_larger_than_the_bound_is_an_error(t: Trial) -> None:
    q = t.queue(maxsize=2, maxbytes=4)
    await q.put(b"1")
    before = await q.stats()
    with raises(ValueError):
        await q.put(b"12345")
    with raises(ValueError):
        await q.put_many([b"1", b"2", b"3"])
    with raises(ValueError):
        await q.put_many([b"123", b"45"])
    assert await q.stats() == before


@clause(11)
async def a_batch_enters_whole_or_not_at_all(t: Trial) -> None:
    q = t.queue(maxsize=3)
    await q.put_many([1, 2], keys="a")
    before = await q.stats()
    with raises(Full):
        await q.put_many([3, 4], keys="b", block=False)
    with raises(Full):
        await t.until_ended(await t.start(q.put_many([3, 4], keys="b", timeout=0.01)))
    assert await q.stats() == before
    lease = await q.one()
    ids = await t.wakes(q.put_many([3, 4], keys="b"), lease.ack())
    assert len(ids) == 2
    assert await q.payloads() == [2, 3]


@clause(11)
async def a_batch_with_one_wrong_item_enters_not_at_all(t: Trial) -> None:
    def key(payload: int) -> object:
        return 1.5 if payload == 3 else "a"

    q = t.queue()
    before = await q.stats()
    with raises(TypeError):
        await q.put_many([1, 2, 3], keys=key)
    assert await q.stats() == before


@clause(11)
async def an_empty_batch_is_nothing(t: Trial) -> None:
    q = t.queue(maxsize=1)
    await q.put(1)
    assert await q.put_many([]) == []
    assert (await q.stats()).puts == 1


@clause(11)
async def every_blocked_put_enters_as_room_comes(t: Trial) -> None:
    q = t.queue(maxsize=1)
    await q.put(0)
    puts = [await t.start(q.put(n)) for n in range(1, 5)]
    handled = []
    for _ in range(5):
        lease = await q.get()
        handled.append(lease.payload)
        await lease.ack()
    for put in puts:
        await put.result()
    assert handled[0] == 0 and sorted(handled) == [0, 1, 2, 3, 4]


@clause(11)
async def a_put_that_fits_passes_a_batch_that_does_not(t: Trial) -> None:
    q = t.queue(maxsize=4)
    await q.put_many([1, 2])
    batch = await t.start(q.put_many([3, 4, 5]))
    await q.put(6)
    lease = await q.get()
    await t.wakes(q.put_many([7, 8]), lease.ack())
    handled = await q.handle()
    await batch.result()
    assert handled + await q.handle() == [2, 6, 7, 8, 3, 4, 5]


@clause(11)
async def handlers_that_put_go_on_while_a_batch_waits(t: Trial) -> None:
    q = t.queue(maxsize=10)
    handled = Counter[int]()

    async def handle(left: int) -> None:
        if left > 0:
            await q.put(left - 1)
        handled[left] += 1

    await q.put_many([25] * 4)
    batch = await t.start(q.put_many([-1] * 10))
    consumer = await t.start(q.consume(handle if t.aio else lambda n: step(handle(n)), threads=4))
    await t.until_ended(batch)
    await t.until_ended(await t.start(q.join()))
    await q.shutdown()
    running = await consumer.result()
    if not t.aio:
        running.join()
    assert handled == {-1: 10} | dict.fromkeys(range(26), 4)


@clause(11)
async def a_batch_is_not_passed_for_ever(t: Trial) -> None:
    q = t.queue(maxsize=10)
    await q.put_many([1, 2])
    held = await q.get()
    batch = await t.start(q.put_many([3] * 9))

    async def is_refused(times: int) -> bool:
        for _ in range(times):
            try:
                await q.cancel(await q.put_nowait("passes"))
            except Full:
                return True
        return False

    # It may take a moment until the batch waits in line.
    assert await is_refused(100_000)
    await t.advance(0.01)
    # The last cancelled message counted as settled, so it is kept for the same time again.
    assert await is_refused(1)
    await t.advance(0.01)
    assert not await is_refused(100), "nothing was settled: those who fit pass again"
    await t.advance(1)
    assert await is_refused(100)
    await held.ack()
    for lease in await q.get_many(9):
        await lease.ack()
    assert len(await batch.result()) == 9


@clause(11)
async def a_batch_that_gives_up_is_in_nobodys_way(t: Trial) -> None:
    q = t.queue(maxsize=4)
    await q.put_many([1, 2])
    held = await q.get()
    batch = await t.start(q.put_many([3] * 4, timeout=0.01))
    with raises(Full):
        await t.until_ended(batch)
    for _ in range(100):
        await q.cancel(await q.put_nowait("passes"))
    await held.ack()


@clause(11)
async def an_empty_queue_refuses_or_times_out_a_get(t: Trial) -> None:
    q = t.queue()
    for get in (q.get_nowait(), q.get(block=False), q.get(timeout=0), q.get_many(3, block=False)):
        with raises(Empty):
            await get
    with raises(Empty):
        await t.until_ended(await t.start(q.get(timeout=0.01)))
    with raises(Empty):
        await t.until_ended(await t.start(q.get_many(3, timeout=0.01)))


@clause(11, faces=("sync",))
async def block_and_timeout_stand_where_queue_queue_has_them(t: Trial) -> None:
    q = t.queue(maxsize=1)
    with raises(Empty):
        q.raw.get(False)
    with raises(Empty):
        q.raw.get(True, 0)
    q.raw.put("payload", True, 0, keys="a")
    with raises(Full):
        q.raw.put("payload", False)
    with raises(Full):
        q.raw.put("payload", True, 0)
    assert await q.handle() == ["payload"]


@clause(11, faces=("sync",))
async def full_and_empty_are_those_of_the_standard_library(t: Trial) -> None:
    q = t.queue(maxsize=1)
    with raises(queue.Empty):
        await q.get_nowait()
    await q.put()
    with raises(queue.Full):
        await q.put_nowait()
