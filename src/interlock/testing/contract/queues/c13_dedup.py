"""Clause 13: a put with a known dedup string queues nothing and never blocks."""

from datetime import timedelta

from interlock import Full, Retry
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial, raises


@clause(13)
async def a_known_put_queues_nothing_and_answers_the_first_id(t: Trial) -> None:
    q = t.queue()
    first = await q.put("first", dedup="x", keys="a")
    assert await q.put("again", dedup="x", keys="b") == first
    assert await q.put_nowait("again", dedup="x") == first
    assert await q.put("other", dedup="y") != first
    assert await q.payloads() == ["first", "other"]
    stats = await q.stats()
    assert (stats.puts, stats.deduplicated) == (2, 2)


@clause(13)
async def a_put_can_say_whether_it_was_known(t: Trial) -> None:
    q = t.queue(maxsize=1)
    first = await q.put_known("first", dedup="x")
    again = await q.put_known("again", dedup="x")
    assert (first.known, again.known) == (False, True)
    assert again.id == first.id
    with raises(Full):
        await q.put_known("other", timeout=0)
    await (await q.one()).ack()
    unnamed = await q.put_known("unnamed")
    assert not unnamed.known and unnamed.id > first.id
    assert await q.payloads() == ["unnamed"]


@clause(13)
async def a_put_that_waits_for_room_can_say_that_it_became_known(t: Trial) -> None:
    q = t.queue(maxsize=2)
    await q.put("fills")
    await q.put("fills too")
    waits = await t.start(q.put_known("waits", dedup="x"))
    (first, second) = await q.ready()
    await first.ack()
    put = await waits.result()
    assert not put.known
    known = await q.put_known("again", dedup="x")
    assert known.known and known.id == put.id
    await second.ack()


@clause(13)
async def it_is_known_while_unsettled(t: Trial) -> None:
    q = t.queue(dedup_window=10, retry=Retry(attempts=1, then="hold"))
    id = await q.put(dedup="x", delay=1_000)
    assert await q.put(dedup="x") == id
    await t.advance(1_000)
    assert await q.put(dedup="x") == id
    lease = await q.one()
    await t.advance(1_000)
    assert await q.put(dedup="x") == id
    await lease.nack()
    await t.advance(1_000)
    assert await q.put(dedup="x") == id


@clause(13)
async def it_is_known_within_the_window_after_it_was_settled(t: Trial) -> None:
    q = t.queue(dedup_window=10)
    id = await q.put(dedup="x")
    await t.advance(100)
    await (await q.one()).ack()
    await t.advance(9.999)
    assert await q.put(dedup="x") == id
    await t.advance(0.001)
    new = await q.put(dedup="x")
    assert new > id
    assert await q.put(dedup="x") == new


@clause(13)
async def the_window_is_five_minutes_unless_told(t: Trial) -> None:
    q = t.queue()
    id = await q.put(dedup="x")
    await (await q.one()).ack()
    await t.advance(299.999)
    assert await q.put(dedup="x") == id
    await t.advance(0.001)
    assert await q.put(dedup="x") != id


@clause(13)
async def a_window_may_be_a_timedelta(t: Trial) -> None:
    q = t.queue(dedup_window=timedelta(seconds=1))
    id = await q.put(dedup="x")
    await (await q.one()).ack()
    await t.advance(1)
    assert await q.put(dedup="x") != id


@clause(13)
async def every_way_to_settle_what_was_handed_out_opens_the_window(t: Trial) -> None:
    q = t.queue(dedup_window=10, retry=Retry(attempts=1, then="hold"))
    skipped = await q.put(dedup="skipped")
    await (await q.one()).nack()
    assert await q.skip(skipped)
    rejected = await q.put(dedup="rejected")
    await (await q.one()).reject("dead letters are settled")
    revoked = await q.put(dedup="revoked")
    await q.one()
    assert await q.revoke(revoked, then="skip")
    all = (("skipped", skipped), ("rejected", rejected), ("revoked", revoked))
    for dedup, id in all:
        assert await q.put(dedup=dedup) == id
    await t.advance(10)
    for dedup, id in all:
        assert await q.put(dedup=dedup) != id


@clause(13)
async def a_cancelled_message_is_known_no_longer(t: Trial) -> None:
    q = t.queue(dedup_window=10, retry=Retry(attempts=1, then="hold"))
    delayed = await q.put("delayed", dedup="delayed", delay=5)
    first = await q.put("first", dedup="first", keys="a")
    waits = await q.put("waits", dedup="waits", keys="a")
    held = await q.put("held", dedup="held")
    lease, failing = await q.ready()
    await failing.nack()
    for name, id in (("delayed", delayed), ("waits", waits), ("held", held)):
        assert await q.cancel(id)
        # The corrected one is queued, and known from then on.
        new = await q.put(f"{name}, corrected", dedup=name)
        assert new > id and await q.put("again", dedup=name) == new
    assert not await q.cancel(first) and await q.put(dedup="first") == first
    await lease.ack()
    assert await q.put(dedup="first") == first
    corrected = {f"{name}, corrected" for name in ("delayed", "waits", "held")}
    assert set(await q.payloads()) == corrected


@clause(13)
async def a_string_that_was_cancelled_and_put_again_keeps_its_own_window(t: Trial) -> None:
    q = t.queue(dedup_window=10)
    await q.put("first", dedup="x")
    await (await q.one()).ack()
    await t.advance(10)
    id = await q.put("second", dedup="x")
    assert await q.cancel(id)
    third = await q.put("third", dedup="x")
    await t.advance(5)
    await (await q.one()).ack()
    await t.advance(9.999)
    assert await q.put(dedup="x") == third
    await t.advance(0.001)
    assert await q.put(dedup="x") != third


@clause(13)
async def it_never_blocks_even_when_full(t: Trial) -> None:
    q = t.queue(maxsize=1, maxbytes=3)
    id = await q.put(b"abc", dedup="x")
    assert await q.full()
    assert await q.put(b"abc", dedup="x") == id
    assert await q.put_nowait(b"abc", dedup="x") == id
    assert await q.put_many([b"abc"], dedup=lambda payload: "x") == [id]
    with raises(Full):
        await q.put_nowait(b"a", dedup="y")


@clause(13)
async def a_refused_put_is_not_known(t: Trial) -> None:
    q = t.queue(maxsize=1)
    await q.put("fills")
    with raises(Full):
        await q.put_nowait("refused", dedup="x")
    await (await q.one()).ack()
    await q.put("put", dedup="x")
    assert (await q.one()).payload == "put"


@clause(13)
async def a_batch_may_name_the_dedup_of_each_item(t: Trial) -> None:
    q = t.queue()
    first, other, again, never = await q.put_many(
        ["x first", "y", "x again", ""], dedup=lambda payload: payload[:1] or None
    )
    assert again == first and len({first, other, never}) == 3
    assert await q.payloads() == ["x first", "y", ""]
    assert (await q.stats()).deduplicated == 1


@clause(13)
async def known_items_take_no_room_in_a_batch(t: Trial) -> None:
    q = t.queue(maxsize=2)
    id = await q.put("first", dedup="x")
    await q.put("fills")
    known = await q.put_many(["a", "b", "c"], dedup=lambda payload: "x", block=False)
    assert known == [id, id, id]


@clause(13)
async def a_retry_stays_known_and_one(t: Trial) -> None:
    q = t.queue(retry=Retry(first=0, jitter=False))
    id = await q.put("x", dedup="x")
    await (await q.one()).nack()
    assert await q.put("again", dedup="x") == id
    assert (await q.one()).attempt == 2
