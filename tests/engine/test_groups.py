"""Groups (clause 28): long lists and weights answer alike on model, hub and Redis.

On Redis they cost few commands.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from tests import seeds
from tests.engine.calls import Queue, commands_of, message
from tests.engine.naive.model import Spec
from tests.engine.naive.watch import WatchedModel
from tests.engine.schedules.compare import difference
from tests.engine.schedules.director import Director
from tests.engine.schedules.servers import Servers, both
from tests.engine.schedules.steps import Step

BATCH = 16
MORE_COMMANDS = 18
"""Number of commands that a call of a batch may execute on Redis because of groups."""
CALLS = 16
LONG = "5000000"
GROUPS = ["a", "b", "c", "", "long" * 20, "\xff"]


@pytest.fixture(scope="module")
def servers(engine_port: int) -> Iterator[Servers]:
    with both(engine_port) as servers:
        yield servers


def grouped(group: str, *names: str, priority: int = 0, keys: tuple[str, ...] = ()) -> Spec:
    own = {"PRIORITY": str(priority), "LIMIT": "\x1f".join(names), "GROUP": group}
    given = tuple((name, text) for name, text in own.items() if text not in ("", "0"))
    return Spec("p", keys, (), given)


def same(servers: Servers, director: Director) -> None:
    wrong = difference(servers.ask(director.calls), servers.answered())
    assert wrong is None or wrong.startswith("left over"), wrong[-3_000:]


def steps_of_long_groups(chance: random.Random, values: list[str]) -> list[Step]:
    """Many messages of few groups, so that their lists are long; limits have these values."""
    choice = chance.choice
    keys = "abcdefgh"[: choice([1, 4, 8])]
    priorities = choice([[0], [0, 0, 0, 1, -1], [5, 0, -100, 100]])
    groups = chance.sample(GROUPS, choice([1, 2, 4, 6]))
    most_names = choice([1, 2, 3]) if values else 0
    some_keys = [0, 0, 0, 1, 2]
    if not values and choice([True, False]):
        # As plain as most are in life.
        priorities, some_keys = [0], choice([[0], [1], [1, 1, 1, 2, 0]])
        groups = [f"{group}{n}" for group in groups for n in range(choice([1, 3]))]
        keys = "".join(map(chr, range(0x20, 0xFF)))

    def pick() -> int:
        return chance.randrange(10**6)

    def weights() -> list[str]:
        tried = {"a": "137", "b": "12", "l*": "25", "*": "13"}
        chosen = [f"{name}={choice(some)}" for name, some in tried.items() if chance.random() < 0.5]
        return ["WEIGHTS", "\x1f".join(chosen)]

    def limits() -> list[str]:
        names = ("x", "y", "z", "x*", "*")
        chosen = [f"{name}={choice(values)}" for name in names if chance.random() < 0.6]
        return ["LIMITS", "\x1f".join(chosen)]

    def configured() -> tuple[str, list[str]]:
        return "configure", ["CHANGE", *(limits() if values and pick() % 2 else weights())]

    def spec() -> Spec:
        names = chance.choices(["x", "y", "z", "xx"], k=chance.randrange(most_names + 1))
        held = tuple(chance.choices(keys, k=choice(some_keys)))
        return grouped(choice(groups), *names, priority=choice(priorities), keys=held)

    def specs() -> list[Spec]:
        count = choice([1, 8, 40])
        return [spec()] * count if pick() % 5 == 0 else [spec() for _ in range(count)]

    def wanted() -> list[str]:
        kind = choice(["any", "any", "keyed", "unkeyed"])
        return ["0", choice(["1", "2", "4", "30"]), choice(["20", "1000", LONG]), kind]

    def picks() -> list[tuple[str, int, list[str]]]:
        verbs: dict[str, list[str]] = {"ACK": [], "NACK": ["0", "e"], "RELEASE": [], "DEFER": ["5"]}
        chosen = chance.choices(list(verbs), [8, 1, 1, 1], k=choice([1, 2, 4, 8, 20]))
        return [(verb, pick(), verbs[verb]) for verb in chosen]

    on_queue: list[Callable[[], tuple[str, list[str]]]] = [
        configured,
        lambda: ("pause", [choice(keys)]),
        lambda: ("resume", list(keys)),
    ]
    ways: dict[str, tuple[float, Callable[[], Any]]] = {
        "put": (12, lambda: ("one", "0", specs())),
        "lease": (14, lambda: ("two", wanted())),
        "next": (24, lambda: (choice(["two", ""]), wanted(), picks())),
        "settle": (8, lambda: ("one", picks())),
        "tick": (5, lambda: choice([1, 9, 40])),
        "due": (3, lambda: (pick(), chance.randrange(2))),
        "operate": (5, lambda: (choice(["cancel", "cancel", "skip"]), pick(), [])),
        "revoke": (1, lambda: (pick(), "retry")),
        "direct": (4, lambda: choice(on_queue)()),
        "read": (4, lambda: (pick(), 5, choice(keys))),
    }
    # The model is slow where many messages wait for limits, or have keys.
    count = 120 if values or len(keys) > 8 else 250
    names = chance.choices(list(ways), [weight for weight, _ in ways.values()], k=count)
    first: Step = ("direct", ("configure", ["REPLACE", *(limits() if values else weights())]))
    return [first, *[(name, ways[name][1]()) for name in names]]


NUMBERS = ["1", "1", "2", "3"]
RATES = ["1/5:1", "3/10:1", "1/40:1", "2/50:5"]


@pytest.mark.parametrize("values", [[], NUMBERS, [*NUMBERS, *RATES]], ids=["", "n", "n+r"])
def test_long_groups_answer_alike_on_model_hub_and_redis(
    servers: Servers, values: list[str]
) -> None:
    chance = random.Random(seeds.seed())
    for _ in range(3):
        director = Director(WatchedModel(servers.now))
        for step in steps_of_long_groups(chance, values):
            director.take(step)
        same(servers, director)


@pytest.mark.parametrize("keys", [(), ("k",)], ids=["without keys", "with keys"])
def test_a_message_that_limits_let_through_before_there_were_groups_takes_its_turn(
    servers: Servers, keys: tuple[str, ...]
) -> None:
    """The first message with a group changes how lines are kept on Redis."""
    director = Director(WatchedModel(servers.now))

    def put(*specs: Spec) -> Step:
        return "put", ("", "0", list(specs))

    lease: Step = ("lease", ("", ["0", "1", LONG, "any"]))

    def message(group: str, n: int) -> Spec:
        return grouped(group, "x", keys=tuple(f"{key}{group}{n}" for key in keys))

    director.take(("direct", ("configure", ["REPLACE", "LIMITS", "x=1"])))
    director.take(put(*[message("", n) for n in range(40)]))
    for _ in range(2):
        director.take(lease)
    director.take(("direct", ("configure", ["CHANGE", "LIMITS", "x=30"])))
    for _ in range(3):
        director.take(put(*[message(group, n) for group in "ab" for n in range(20)]))
        for _ in range(50):
            director.take(lease)
        # Then all with groups are settled.
        director.drain()
        director.take(put(*[message("", n) for n in range(3)]))
    same(servers, director)


def test_an_explanation_counts_the_ready_messages_without_a_group_beside_cancelled_ones(
    servers: Servers,
) -> None:
    director = Director(WatchedModel(servers.now))
    model = director.model
    barrier = Spec("p", options=(("BARRIER", "1"),))
    specs = [grouped(group) for group in ("", "", "acme", "")]
    director.take(("put", ("", "0", [*specs, barrier])))
    first, *_, last = [str(entry.id) for entry in model.line]
    director._ask("cancel", [first], lambda: model.cancel(first))
    director._call("explain", ["id", last, "10"], model.explain("id", last, 10))
    same(servers, director)


# Redis alone.


def batch(number: int, groups: int) -> list[Any]:
    """Messages of one put, each with its own key; with groups, one group each."""
    arguments: list[Any] = ["", 0, 0]
    for n in range(number, number + BATCH):
        own = ["GROUP", f"g{n % groups}"] if groups else []
        arguments += ["payload", 1, 0, len(own) // 2, f"k{n}", *own]
    return arguments


def ids_of(reply: list[str]) -> list[str]:
    ids, at = [], 4
    for _ in range(int(reply[3])):
        ids.append(reply[at])
        at += 6 + int(reply[at + 4]) + int(reply[at + 5])
    return ids


def commands_per_call(queue: Queue, groups: int, waiting: int) -> dict[str, int]:
    """The most commands of a put and of a call that settles and leases, of a batch each."""
    number = 0
    for _ in range(2 + waiting // BATCH):
        queue.call("put", *batch(number, groups))
        number += BATCH
    reply = queue.call("lease", "", 0, 0, BATCH, 10**9, "any")
    most = {"put": 0, "next": 0}
    for _ in range(CALLS):
        ids = ids_of(reply)
        acks = [part for id in ids for part in ("ACK", reply[0], id)]
        replies: list[list[str]] = []
        most["next"] = max(
            most["next"],
            commands_of(
                queue,
                lambda acks=acks, replies=replies: replies.append(  # type: ignore[misc]
                    queue.call("next", "", 0, 0, BATCH, 10**9, "any", *acks)
                ),
            ),
        )
        put = batch(number, groups)
        most["put"] = max(
            most["put"],
            commands_of(
                queue,
                lambda put=put: queue.call("put", *put),  # type: ignore[misc]
            ),
        )
        number += BATCH
        reply = replies[0][1 + len(ids) :]
    return most


@pytest.mark.parametrize(("groups", "waiting"), [(1, 600), (16, 600), (16, 64), (10_000, 10_000)])
def test_a_call_executes_few_more_commands_for_groups(
    connection: redis.Redis, groups: int, waiting: int
) -> None:
    plain = commands_per_call(Queue(connection, f"free{groups}-{waiting}"), 0, waiting)
    told = commands_per_call(Queue(connection, f"grouped{groups}-{waiting}"), groups, waiting)
    assert all(told[call] <= plain[call] + MORE_COMMANDS for call in plain), (told, plain)


def test_a_queue_without_groups_executes_the_same_commands_as_before_it_had_some(
    connection: redis.Redis,
) -> None:
    plain = commands_per_call(Queue(connection, "never"), 0, 64)
    queue = Queue(connection, "once")
    queue.call("put", *batch(0, 3))
    leased = queue.call("lease", "", 0, 0, BATCH, 10**9, "any")
    queue.call("settle", "", 0, *[p for id in ids_of(leased) for p in ("ACK", leased[0], id)])
    assert commands_per_call(queue, 0, 64) == plain


def test_a_turn_that_is_longer_than_a_lower_weight_ends_with_its_next_message(queue: Queue) -> None:
    queue.call("configure", "WEIGHTS", "a=5")
    queue.put(*[message(f"a{n}", group="a") for n in range(8)])
    assert len(queue.payloads(4)) == 4
    queue.call("configure", "CHANGE", "WEIGHTS", "a=2")
    assert queue.payloads(2) == ["a4", "a5"]
    queue.put(*[message(f"b{n}", group="b") for n in range(2)])
    # One message of the next turn is used, and not one more.
    assert queue.payloads(4) == ["a6", "b0", "a7", "b1"]


def test_parked_messages_use_no_turn_of_those_without_a_group(queue: Queue) -> None:
    queue.call("configure", "BEHIND", "park")
    queue.put(
        *[message(text, [key]) for text, key in (("first", "a"), ("second", "a"), ("third", "b"))]
    )
    queue.put(message("grouped", ["c"], group="acme"))
    queue.call("pause", "a")
    assert queue.payloads(1) == ["third"]


def test_cancelled_messages_without_a_group_leave_its_turn_to_those_behind_them(
    queue: Queue,
) -> None:
    ids = queue.put(*[message(f"free{n}") for n in range(4)])
    queue.put(*[message(f"grouped{n}", group="acme") for n in range(3)])
    for id in ids[:2]:
        queue.call("cancel", id)
    # Redis reads three of its list, of which two are skipped.
    assert queue.payloads(3) == ["free2", "grouped0", "free3"]


def test_an_edited_dead_letter_takes_the_slots_and_the_turn_of_its_new_names(queue: Queue) -> None:
    queue.call("configure", "CHANGE", "LIMITS", "bank:*=1")
    queue.put(message("dies", limit="bank:a", group="a"))
    (dead,) = queue.lease(1).messages
    queue.settle(dead.reject())
    queue.put(*[message(text, limit="bank:a", group="a") for text in ("first", "second")])
    assert [one.payload for one in queue.lease(2).messages] == ["first"]
    # The slot of bank:a is taken, and that of bank:b is free.
    queue.call("requeue", dead.id, "edited", 0, 0, "bank:b", "b", "3:run")
    assert [one.payload for one in queue.lease(2).messages] == ["edited"]
    told = queue.call("scan", 0, 10)
    assert told[told.index("RUN") + 1] == "3:run"
    names = [told[at + 1] for at, part in enumerate(told) if part in ("LIMIT", "GROUP")]
    assert sorted(names) == ["a", "a", "b", "bank:a", "bank:a", "bank:b"]


def test_an_edited_dead_letter_loses_the_names_that_are_empty(queue: Queue) -> None:
    queue.put(message("dies", limit="bank:a", group="a"))
    (dead,) = queue.lease(1).messages
    queue.settle(dead.reject())
    queue.call("requeue", dead.id, "edited", 0, 0, "", "", "")
    told = queue.call("scan", 0, 10)
    assert not {"LIMIT", "GROUP", "RUN"} & set(told)
    assert (queue.stats()["limited"], queue.stats()["groups"]) == (0, 0)


def test_a_restored_message_and_a_dead_letter_keep_their_groups(queue: Queue) -> None:
    item = ["mark", "waiting", 1, 0, "", *message("one", group="acme")]
    queue.call("restore", 10**9, *item)
    told = queue.call("scan", 0, 10)
    assert told[told.index("GROUP") + 1] == "acme"
    leased = queue.lease(1).messages[0]
    queue.settle(leased.reject())
    queue.call("requeue", leased.id)
    assert queue.stats()["groups"] == 1
    told = queue.call("scan", 0, 10)
    assert told[told.index("GROUP") + 1] == "acme"
