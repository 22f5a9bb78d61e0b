"""Clause 20: every call first applies everything due; the same calls get the same answers."""

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

from interlock import Full, InterlockError, LeaseLost, Retry
from interlock.testing.contract.faces import LeaseFace, QueueFace
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial, raises

_Call = tuple[str, tuple[Any, ...], dict[str, Any]]


@clause(20)
async def a_put_comes_after_what_fell_due_before_it(t: Trial) -> None:
    q = t.queue()
    await q.put("delayed", keys="a", delay=5)
    await t.advance(50)
    await q.put("put at 50", keys="a")
    assert await q.handle() == ["delayed", "put at 50"]


@clause(20)
async def a_put_finds_the_room_that_an_expiry_made(t: Trial) -> None:
    q = t.queue(maxsize=1, lease=10, retry=Retry(attempts=1))
    await q.put("poison")
    await t.suspected(q)
    await t.advance(9.999)
    with raises(Full):
        await q.put_nowait("next")
    await t.advance(0.001)
    await q.put_nowait("next")
    assert await q.payloads() == ["next"]


@clause(20)
async def a_dedup_string_is_free_once_its_settlement_is_due(t: Trial) -> None:
    q = t.queue(lease=10, dedup_window=0, retry=Retry(attempts=1))
    id = await q.put(dedup="x")
    await t.suspected(q)
    await t.advance(10)
    assert await q.put(dedup="x") != id


@clause(20)
async def stats_show_what_is_due_as_applied(t: Trial) -> None:
    q = t.queue(lease=10, retry=Retry(first=5, jitter=False))
    await q.put(keys="a")
    await t.suspected(q)
    await q.put(delay=10)
    await t.advance(10)
    stats = await q.stats()
    assert (stats.leased, stats.backing_off, stats.leases_expired) == (0, 1, 2)
    assert (stats.delayed, stats.ready) == (0, 1)


@clause(20)
async def a_cancel_sees_what_is_due(t: Trial) -> None:
    q = t.queue(lease=10, retry=Retry(first=5, jitter=False))
    id = await q.put(keys="a")
    await q.one()
    assert not await q.cancel(id)
    await t.advance(10)
    assert await q.cancel(id)


@clause(20)
async def expiries_are_applied_by_deadline_then_id(t: Trial) -> None:
    q = t.queue(lease=10, retry=Retry(attempts=1))
    ids = await q.put_many(["a", "b", "c", "d"])
    await q.ready()
    await t.advance(10)
    # Each is leased alone now.
    for seconds in [3, 2, 3, 1]:
        lease = await q.get_nowait()
        await lease.extend(seconds)
    await t.advance(5)
    assert [letter.id for letter in await q.dead_letters()] == [ids[3], ids[1], ids[0], ids[2]]


@clause(20)
async def thousands_that_fall_due_at_once_keep_their_order(t: Trial) -> None:
    # One call applies a thousand of them; the number of calls in a clock step is left to the clock.
    q = t.queue()
    ids = await q.put_many(range(2_500), keys="a", delay=5)
    soon = await q.put("first of all", delay=4)
    await t.advance(5)
    late = await q.put("last of all", keys="a")
    handed = []
    for _ in range(len(ids) + 2):
        lease = await q.get()
        handed.append(lease.id)
        await lease.ack()
    assert handed == [soon, *ids, late]


@clause(20)
async def a_recorded_schedule_gets_the_same_answers_again(t: Trial) -> None:
    options: dict[str, Any] = {
        "maxsize": 40,
        "lease": 8,
        "maxdead": 5,
        "dedup_window": 20,
        "retry": Retry(attempts=3, first=1, then="dead"),
    }
    calls = list(_schedule(Random(20), 1_500))
    first = await _play(t, t.queue(**options), calls)
    # The second run begins at another time; tokens follow the time, everything else must be the
    # same.
    second = await _play(t, t.queue(**options), calls)
    for call, one, other in zip(calls, first, second, strict=True):
        assert one == other, f"{call} answered {one}, then {other}"


def _schedule(random: Random, length: int) -> list[_Call]:
    def put() -> _Call:
        keys = random.sample("abcdef", random.choice([0, 1, 1, 2]))
        shared = random.sample("abcdef", random.choice([0, 0, 1]))
        options = {
            "keys": keys,
            "shared": shared,
            "priority": random.choice([0, 0, 5, -5]),
            "delay": random.choice([0, 0, 0, 3]),
            "dedup": random.choice([None, None, None, "x", "y"]),
        }
        if random.random() < 0.05:
            options |= {"barrier": True, "keys": (), "shared": ()}
        return "put", (), options

    def on_message(name: str) -> Callable[[], _Call]:
        return lambda: (name, (random.randint(1, length // 3),), {})

    def plain(name: str, **options: Any) -> Callable[[], _Call]:
        return lambda: (name, (), options)

    makers: list[tuple[int, Callable[[], _Call]]] = [
        (30, put),
        (24, plain("get")),
        (14, plain("ack")),
        (6, plain("nack")),
        (3, plain("release")),
        (2, plain("reject")),
        (8, plain("advance")),
        (2, plain("stats")),
        (2, on_message("cancel")),
        (2, on_message("explain")),
        (1, on_message("revoke")),
        (1, on_message("retry")),
        (1, on_message("requeue")),
        (1, lambda: ("pause", (random.choice("ab"),), {})),
        (2, lambda: ("resume", (random.choice("ab"),), {})),
    ]
    weights, choices = zip(*makers, strict=True)
    return [random.choices(choices, weights)[0]() for _ in range(length)]


async def _play(t: Trial, q: QueueFace, calls: list[_Call]) -> list[Any]:
    """Make the calls, one after the other, and return the answer of each."""
    leases: list[LeaseFace] = []
    answers: list[Any] = []
    for name, args, options in calls:
        answer: Any = None
        try:
            match name:
                case "advance":
                    await t.advance(1)
                case "get":
                    lease = await q.get_nowait()
                    leases.append(lease)
                    answer = (lease.id, lease.attempt, lease.keys, lease.shared)
                case "ack" | "nack" | "release":
                    if leases:
                        await getattr(leases.pop(0), name)()
                case "reject":
                    if leases:
                        await leases.pop().reject("no")
                case "put":
                    answer = await q.put(block=False, **options)
                case "explain":
                    answer = str(await q.explain(*args))
                case _:
                    answer = await getattr(q, name)(*args, **options)
        except (InterlockError, KeyError) as error:
            answer = type(error).__name__
        answers.append(answer)
    for lease in leases:
        with suppress(LeaseLost):
            await lease.ack()
    return answers
