"""Clause 27: rates of limit names, and names that a handler closes."""

from interlock import Rate, Retry, RetryAfter, current_lease
from interlock.testing.contract.faces import LeaseFace, QueueFace
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial, raises

AT_ONCE = Retry(attempts=None, first=0)


@clause(27)
async def messages_of_a_name_are_leased_at_its_rate(t: Trial) -> None:
    q = t.queue(limits={"api": Rate(2, per=10)})
    await q.put_many(range(3), limit="api")
    await q.put("free")
    assert await q.payloads() == [0, "free"], "spread evenly, and nobody else waits"
    await t.advance(4)
    assert await q.payloads() == []
    await t.advance(1)
    assert await q.payloads() == [1]
    await t.advance(5)
    assert await q.payloads() == [2]


@clause(27)
async def a_burst_may_start_at_once_after_a_pause(t: Trial) -> None:
    q = t.queue(limits={"api": Rate(1, per=10, burst=3)})
    await q.put_many(range(9), limit="api")
    assert await q.payloads() == [0, 1, 2]
    await t.advance(10)
    assert await q.payloads() == [3]
    await t.advance(20)
    assert await q.payloads() == [4, 5]
    await t.advance(1_000)
    assert await q.payloads() == [6, 7, 8], "and no more than a burst is saved up"


@clause(27)
async def a_lease_of_many_takes_no_more_than_the_rate_has(t: Trial) -> None:
    q = t.queue(limits={"api": Rate(1, burst=2)})
    await q.put_many(range(5), limit="api")
    assert [lease.payload for lease in await q.get_many(10)] == [0, 1]


@clause(27)
async def no_window_contains_more_grants_than_its_rate(t: Trial) -> None:
    burst, per = 4, 3
    q = t.queue(limits={"api": Rate(1, per=per, burst=burst)})
    await q.put_many(range(60), limit="api")
    times: list[float] = []
    for step in (1, 0, 5, 2, 7, 30, 1, 1, 1, 3, 4, 11, 2, 6):
        await t.advance(step)
        times += [t.clock.now()] * len(await q.payloads())
    assert len(times) > 15
    for first, start in enumerate(times):
        for count, end in enumerate(times[first:], 1):
            # The times are floats; what is checked is far from one grant.
            assert count <= burst + (end - start) / per + 1e-6


@clause(27)
async def a_prefix_gives_each_name_a_rate_of_its_own(t: Trial) -> None:
    q = t.queue(limits={"host:*": Rate(1, per=10), "host:big": Rate(2, per=10, burst=2)})
    for host in ("a", "b", "big"):
        await q.put_many([host] * 3, limit=f"host:{host}")
    assert await q.payloads() == ["a", "b", "big", "big"]
    await t.advance(10)
    assert await q.payloads() == ["a", "b", "big"]


@clause(27)
async def each_attempt_is_charged(t: Trial) -> None:
    q = t.queue(limits={"api": Rate(1, per=10)}, retry=AT_ONCE)
    await q.put("a", limit="api")
    await (await q.one()).nack()
    assert await q.payloads() == []
    await t.advance(10)
    await (await q.one()).release()
    assert await q.payloads() == [], "a released message was granted, too"
    await t.advance(10)
    assert await q.payloads() == ["a"]


@clause(27)
async def several_names_are_charged_together_or_not_at_all(t: Trial) -> None:
    q = t.queue(limits={"slow": Rate(1, per=100), "fast": Rate(1, per=10)})
    await q.put("first", limit="slow")
    assert await q.payloads() == ["first"]
    await q.put("both", limit=["fast", "slow"])
    await q.put("fast", limit="fast")
    assert await q.payloads() == ["fast"], "the other took nothing of it"
    await t.advance(100)
    assert await q.payloads() == ["both"]
    await q.put("fast", limit="fast")
    assert await q.payloads() == [], "both were charged"


@clause(27)
async def a_message_with_a_rate_and_a_limit_takes_both_or_none(t: Trial) -> None:
    q = t.queue(limits={"bank": 1, "api": Rate(1, per=10)})
    await q.put("bank", limit="bank")
    holder = await q.one()
    await q.put("both", limit=["api", "bank"])
    await q.put("api", limit="api")
    assert await q.payloads() == ["api"]
    await holder.ack()
    assert await q.payloads() == []
    await q.put("bank", limit="bank")
    holder = await q.one()
    assert holder.payload == "bank", "the one with both holds no slot while it waits for the rate"
    await t.advance(10)
    assert await q.payloads() == []
    await holder.ack()
    assert await q.payloads() == ["both"]


@clause(27)
async def of_those_that_wait_the_highest_priority_and_then_the_first_is_next(t: Trial) -> None:
    q = t.queue(limits={"api": Rate(1, per=10)})
    await q.put("now", limit="api")
    assert await q.payloads() == ["now"]
    for payload, priority in (("first", 0), ("second", 0), ("urgent", 9), ("last", -9)):
        await q.put(payload, limit="api", priority=priority)
    assert await q.payloads() == []
    for expected in ("urgent", "first", "second", "last"):
        await t.advance(10)
        assert await q.payloads() == [expected]


@clause(27)
async def a_waiting_get_is_woken_when_the_rate_allows_the_next(t: Trial) -> None:
    q = t.queue(limits={"api": Rate(1, per=10)})
    await q.put_many(range(2), limit="api")
    assert await q.payloads() == [0]
    assert (await t.wakes(q.get(), t.advance(10))).payload == 1


@clause(27)
async def a_waiting_get_is_woken_for_one_that_another_found_waiting(t: Trial) -> None:
    q = t.queue(limits={"slow": Rate(1, per=60), "fast": Rate(1, per=5)})
    await q.put_many(["slow", "slow"], limit="slow")
    await q.put_many(["fast", "fast"], limit="fast")
    assert await q.payloads() == ["slow", "fast"]
    assert (await t.wakes(q.get(), t.advance(5))).payload == "fast"
    assert (await t.wakes(q.get(), t.advance(60))).payload == "slow"


@clause(27)
async def a_waiting_get_is_woken_by_a_higher_rate(t: Trial) -> None:
    q = t.queue(limits={"api": Rate(1, per=1_000)})
    await q.put_many(range(3), limit="api")
    assert await q.payloads() == [0]
    await q.configure(limits={"api": Rate(1, per=10)})
    assert await q.payloads() == [], "what was granted still counts"
    assert (await t.wakes(q.get(), t.advance(10))).payload == 1
    await q.configure(limits={})
    assert await q.payloads() == [2]


@clause(27)
async def a_number_may_become_a_rate_and_a_rate_a_number(t: Trial) -> None:
    q = t.queue(limits={"api": 2})
    await q.put_many(range(6), limit="api")
    assert await q.payloads() == [0, 1]
    await q.configure(limits={"api": Rate(1, per=10)})
    assert await q.payloads() == [2]
    await q.configure(limits={"api": 4})
    assert await q.payloads() == [3], "three are leased"


@clause(27)
async def a_rate_is_remembered_while_no_message_has_its_name(t: Trial) -> None:
    q = t.queue(limits={"host:*": Rate(1, per=100)})
    for n in range(200):
        await q.put(n, limit=f"host:{n}")
        await (await q.one()).ack()
    await q.put("again", limit="host:7")
    await q.put("new", limit="host:new")
    assert await q.payloads() == ["new"]
    await t.advance(100)
    assert await q.payloads() == ["again"]


async def _passed(q: QueueFace, t: Trial) -> LeaseFace:
    """Let others pass a message of the rate and of the limit 63 times. Return the lease of the
    limit."""
    await q.put("bank", limit="bank")
    lease = await q.one()
    await q.put("both", keys="k", limit=["api", "bank"])
    await q.put_many(["api"] * 100, limit="api")
    await q.put_many(["bank"] * 100, limit="bank")
    for _ in range(32):
        # The rate allows one while no slot is free, and a slot becomes free while it allows none.
        assert (await q.one()).payload == "api"
        await lease.ack()
        lease = await q.one()
        assert lease.payload == "bank"
        await t.advance(10)
    return lease


@clause(27)
async def a_message_that_was_passed_64_times_gets_the_next_grant(t: Trial) -> None:
    q = t.queue(limits={"bank": 1, "api": Rate(1, per=10)})
    lease = await _passed(q, t)
    assert await q.payloads() == ["api"]
    await lease.ack()
    assert await q.payloads() == [], "the slot is kept, and the next grant"
    await t.advance(10)
    assert await q.payloads() == ["both"]


@clause(27)
async def a_lower_rate_counts_for_a_message_that_was_passed_too(t: Trial) -> None:
    q = t.queue(limits={"bank": 1, "api": Rate(1, per=10)})
    lease = await _passed(q, t)
    assert await q.payloads() == ["api"]
    await lease.ack()
    await q.configure(limits={"bank": 1, "api": Rate(1, per=1_000)})
    await t.advance(5)
    assert await q.payloads() == ["bank"], "it keeps nothing any more"
    await t.advance(5)
    assert await q.payloads() == ["api"], "what was granted counts as before, and no longer"


@clause(27)
async def a_handler_may_close_a_name_to_all_messages(t: Trial) -> None:
    q = t.queue(limits={"api": 1}, retry=AT_ONCE)
    await q.put_many(["first", "second"], limit="api")
    await q.put("elsewhere", limit="other")
    times: dict[str, list[float]] = {}

    async def handler(payload: str) -> None:
        times.setdefault(payload, []).append(t.clock.now())
        if payload == "first" and len(times["first"]) == 1:
            raise RetryAfter(30, limit="api")

    await t.handle_all(q, handler)
    first, again = times["first"]
    assert again - first >= 30 and times["second"][0] - first >= 30
    assert times["elsewhere"][0] - first < 30
    assert (await q.stats()).retries == 1


@clause(27)
async def a_name_may_be_closed_without_an_attempt_and_without_a_declaration(t: Trial) -> None:
    q = t.queue(limits={"one at a time": 1}, retry=Retry(attempts=1))
    await q.put("first", limit="one at a time")
    await q.put("second", limit=["one at a time", "api"])
    await q.put("third", limit="one at a time")
    handled: list[tuple[str, int]] = []
    times: list[float] = []

    async def handler(payload: str) -> None:
        handled.append((payload, current_lease().attempt))
        times.append(t.clock.now())
        if len(handled) == 1:
            raise RetryAfter(30, attempt=False, limit="api")

    await t.handle_all(q, handler)
    assert handled[:2] == [("first", 1), ("third", 1)]
    assert sorted(handled[2:]) == [("first", 1), ("second", 1)]
    assert min(times[2:]) - times[0] >= 30 > times[1] - times[0]
    assert (await q.stats()).dead == 0


@clause(27)
async def a_closed_name_is_told_and_opens_by_itself(t: Trial) -> None:
    q = t.queue(limits={"api": 1}, retry=AT_ONCE)
    await q.put("fails", limit="api")
    with raises(RetryAfter):
        async with await q.one():
            raise RetryAfter(20, limit="api")
    waits = await q.put("next", limit="api")
    await t.advance(5)
    assert await q.payloads() == []
    (closed,) = (await q.explain(waits)).nodes[0].limits
    assert (closed.name, closed.next_in, closed.holders) == ("api", 15, ())
    assert (await t.wakes(q.get(), t.advance(15))).payload in ("fails", "next")


@clause(27)
async def explain_tells_when_the_rate_allows_the_next(t: Trial) -> None:
    q = t.queue(limits={"api": Rate(1, per=10), "bank": 1})
    holder = await q.put("now", limit=["api", "bank"])
    lease = await q.one()
    waits = await q.put("next", limit=["api", "bank"])
    await t.advance(4)
    for _ in range(2):
        node, *others = (await q.explain(waits)).nodes
        assert node.state == "ready"
        told = [(one.name, one.most, one.leased, one.next_in) for one in node.limits]
        assert told == [("api", None, 1, 6), ("bank", 1, 1, None)]
        assert [one.holders for one in node.limits] == [(), (holder,)]
        assert [other.id for other in others] == [holder]
        assert await q.payloads() == []
    assert "waits for a rate: api, next in 6.0 s" in str(await q.explain(waits))
    await lease.ack()
    await t.advance(6)
    assert (await q.explain(waits)).nodes[0].limits == ()


@clause(27)
async def stats_count_the_ready_messages_that_were_found_waiting(t: Trial) -> None:
    q = t.queue(limits={"api": Rate(1, per=10)})
    await q.put_many(range(3), limit="api")
    await q.one()
    stats = await q.stats()
    assert (stats.ready, stats.limited, stats.leased) == (2, 2, 1)
    await t.advance(10)
    assert await q.payloads() == [1]
    assert (await q.stats()).limited == 1


@clause(27)
async def limits_tell_when_a_rate_grants_next_and_a_closed_name_opens(t: Trial) -> None:
    q = t.queue(limits={"api": Rate(2, per=3600, burst=3)})
    await q.put_many(range(4), limit="api")
    first, *_ = await q.ready()
    (use,) = await q.limits()
    assert (use.most, use.interval, use.burst) == (None, 1800, 3)
    assert (use.leased, use.waiting, use.closed_for) == (3, 1, 0)
    assert 0 < use.next_in <= 1800
    with raises(RetryAfter):
        async with first:
            raise RetryAfter(7200, limit="api")
    (use,) = await q.limits()
    assert 7000 < use.closed_for <= 7200
