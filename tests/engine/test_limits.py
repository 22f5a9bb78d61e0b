"""Concurrency limits (clause 26): long lines and keepers answer alike on model, hub and Redis.

On Redis they cost few commands.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from tests import seeds
from tests.engine.calls import Queue
from tests.engine.naive.limits import PASSES
from tests.engine.naive.model import LEASED, Spec
from tests.engine.naive.watch import WatchedModel
from tests.engine.schedules.compare import difference
from tests.engine.schedules.director import Director
from tests.engine.schedules.servers import Servers, both
from tests.engine.schedules.steps import Pick, Step

BATCH = 16
MORE_COMMANDS = 6
"""Number of commands that a call may execute on Redis because of limits, on average."""
CALLS = 32


@pytest.fixture(scope="module")
def servers(engine_port: int) -> Iterator[Servers]:
    with both(engine_port) as servers:
        yield servers


def limited(*names: str, priority: int = 0, keys: tuple[str, ...] = ()) -> Spec:
    own = (("PRIORITY", str(priority)),) if priority else ()
    return Spec("p", keys, (), (*own, ("LIMIT", "\x1f".join(names))) if names else own)


def same(servers: Servers, director: Director) -> None:
    wrong = difference(servers.ask(director.calls), servers.answered())
    assert wrong is None or wrong.startswith("left over"), wrong[-3_000:]


def steps_of_long_lines(chance: random.Random) -> list[Step]:
    """Many messages of few names, so that lines are long and many calls move messages."""
    choice = chance.choice
    keys = "abcdefgh"[: choice([1, 4, 8])]

    def pick() -> int:
        return chance.randrange(10**6)

    def limits() -> str:
        names = ("x", "y", "z", "x*", "*")
        return "\x1f".join(f"{n}={choice('1123')}" for n in names if chance.random() < 0.6)

    def spec() -> Spec:
        names = chance.choices(["x", "y", "z", "xx"], k=choice([0, 1, 1, 1, 2, 3]))
        held = tuple(chance.choices(keys, k=choice([0, 0, 1, 2])))
        return limited(*names, priority=choice([0, 0, 0, 1, -1]), keys=held)

    def wanted() -> list[str]:
        kind = choice(["any", "any", "keyed", "unkeyed"])
        return ["0", choice(["1", "2", "4", "30"]), choice(["20", "1000", "5000000"]), kind]

    def picks() -> list[tuple[str, int, list[str]]]:
        verbs: dict[str, list[str]] = {"ACK": [], "NACK": ["0", "e"], "RELEASE": [], "DEFER": ["5"]}
        chosen = chance.choices(list(verbs), [8, 1, 1, 1], k=choice([1, 2, 4, 8]))
        return [(verb, pick(), verbs[verb]) for verb in chosen]

    on_queue: list[Callable[[], tuple[str, list[str]]]] = [
        lambda: ("configure", ["CHANGE", "LIMITS", limits()]),
        lambda: ("pause", [choice(keys)]),
        lambda: ("resume", list(keys)),
    ]
    ways: dict[str, tuple[int, Callable[[], Any]]] = {
        "put": (16, lambda: ("one", "0", [spec() for _ in range(choice([1, 8]))])),
        "lease": (12, lambda: ("two", wanted())),
        "next": (22, lambda: (choice(["two", ""]), wanted(), picks())),
        "settle": (8, lambda: ("one", picks())),
        "tick": (5, lambda: choice([1, 9])),
        "due": (2, lambda: (pick(), 0)),
        "operate": (4, lambda: (choice(["cancel", "skip"]), pick(), [])),
        "revoke": (1, lambda: (pick(), "retry")),
        "direct": (4, lambda: choice(on_queue)()),
        "read": (3, lambda: (pick(), 50, choice(keys))),
    }
    weights = [weight for weight, _ in ways.values()]
    names = chance.choices(list(ways), weights, k=400)
    first: Step = ("direct", ("configure", ["REPLACE", "LIMITS", limits() or "x=1"]))
    return [first, *[(name, ways[name][1]()) for name in names]]


@pytest.mark.parametrize("seed", [seeds.seed(), seeds.seed() + 1])
def test_long_lines_answer_alike_on_model_hub_and_redis(servers: Servers, seed: int) -> None:
    director = Director(WatchedModel(servers.now))
    for step in steps_of_long_lines(random.Random(seed)):
        director.take(step)
    same(servers, director)


def test_messages_of_higher_priority_come_first_from_a_line_of_hundreds(servers: Servers) -> None:
    chance = random.Random(seeds.seed())
    director = Director(WatchedModel(servers.now))
    director.take(("direct", ("configure", ["REPLACE", "LIMITS", "x=2"])))
    acks: list[Pick] = [("ACK", 5, []), ("ACK", 6, [])]
    acknowledged: Step = ("next", ("", ["0", "2", "5000000", "any"], acks))
    for _ in range(10):
        made = [limited("x", priority=chance.choice([0, 0, 0, 1, -1])) for _ in range(40)]
        director.take(("put", ("", "0", made)))
        director.take(("lease", ("", ["0", "30", "5000000", "any"])))
        for _ in range(4):
            director.take(("operate", ("cancel", chance.randrange(10**6), [])))
            director.take(acknowledged)
    assert director.model.counts["leases"] > 20
    while director.model.line:
        director.take(acknowledged)
    same(servers, director)


@pytest.mark.parametrize("then", ["granted", "cancelled", "paused", "raised"])
def test_a_message_that_was_passed_often_becomes_a_keeper_on_model_hub_and_redis_alike(
    servers: Servers, then: str
) -> None:
    director = Director(WatchedModel(servers.now))
    model = director.model

    def take(*step: Any) -> None:
        director.take((step[0], step[1] if len(step) == 2 else step[1:]))

    def settle(name: str) -> None:
        """The message of a name is acknowledged, and the next is leased."""
        holder = next(e for e in model.line if e.state == LEASED and e.names == [name])
        ack = ["ACK", str(holder.token), str(holder.id)]
        arguments = ["", "0", "0", "1", "5000000", "any", *ack]
        answers = model.settle([ack])
        granted = model.grant("", 1, 5_000_000, "any")
        director._call("next", arguments, ["1", *answers, *granted])

    take("direct", ("configure", ["REPLACE", "LIMITS", "*=1"]))
    take("put", ("", "0", [limited("x"), limited("y"), limited("x", "y", keys=("k",))]))
    take("lease", ("", ["0", "2", "5000000", "any"]))
    for turn in range(2 * PASSES):
        if model.keeper("x"):
            break
        name = "xy"[turn % 2]
        take("put", ("", "0", [limited(name)]))
        settle(name)
    keeper = model.keeper("x")
    assert keeper is not None and keeper.slots is not None
    if then == "cancelled":
        director._call("cancel", [str(keeper.id)], model.cancel(str(keeper.id)))
    elif then == "paused":
        take("direct", ("pause", ["k"]))
    elif then == "raised":
        take("direct", ("configure", ["CHANGE", "LIMITS", "*=2"]))
    # The other slot is kept.
    settle("y")
    assert (keeper.state == LEASED) == (then in ("granted", "raised"))
    take("direct", ("resume", ["k"]))
    take("read", (5, 50, "k"))
    take("lease", ("", ["0", "30", "5000000", "any"]))
    same(servers, director)


# Costs.


def batch(number: int, names: int) -> list[Any]:
    """Messages of one put, each with its own key; with names, one limit name each."""
    arguments: list[Any] = ["", 0, 0]
    for n in range(number, number + BATCH):
        own = ["LIMIT", f"n{n % names}"] if names else []
        arguments += ["payload", 1, 0, len(own) // 2, f"k{n}", *own]
    return arguments


def commands_of(queue: Queue, call: Callable[[], object]) -> int:
    def count() -> int:
        found: Any = queue.connection.info("commandstats")
        own = ("cmdstat_info", "cmdstat_fcall")
        return sum(one["calls"] for name, one in found.items() if not name.startswith(own))

    before = count()
    call()
    return count() - before


def commands_per_call(queue: Queue, names: int, limit: int, waiting: int) -> dict[str, float]:
    """The commands of a put and of a call that settles and leases, of a batch each."""
    if limit:
        queue.call("configure", "LIMITS", f"n*={limit}")
    number = 0
    total = {"put": 0, "next": 0}
    for _ in range(2 + waiting // BATCH):
        queue.call("put", *batch(number, names))
        number += BATCH
    reply = queue.call("lease", "", 0, 0, BATCH, 10**9, "any")
    # Messages without room are set aside once.
    queue.call("lease", "", 0, 0, BATCH, 10**9, "any")
    for _ in range(CALLS):
        token, *_, count = reply[:4]
        ids = []
        at = 4
        for _ in range(int(count)):
            ids.append(reply[at])
            at += 6 + int(reply[at + 4]) + int(reply[at + 5])
        acks = [part for id in ids for part in ("ACK", token, id)]
        put = batch(number, names)
        replies: list[list[str]] = []
        total["next"] += commands_of(
            queue,
            lambda acks=acks, replies=replies: replies.append(  # type: ignore[misc]
                queue.call("next", "", 0, 0, BATCH, 10**9, "any", *acks)
            ),
        )
        total["put"] += commands_of(
            queue,
            lambda put=put: queue.call("put", *put),  # type: ignore[misc]
        )
        number += BATCH
        reply = replies[0][1 + len(ids) :]
    return {name: count / CALLS for name, count in total.items()}


@pytest.mark.parametrize(("names", "limit"), [(1, 64), (10, 64), (1000, 64)])
def test_a_call_executes_few_more_commands_for_limits_that_have_room(
    connection: redis.Redis, names: int, limit: int
) -> None:
    plain = commands_per_call(Queue(connection, f"plain{names}"), 0, 0, 64)
    told = commands_per_call(Queue(connection, f"limited{names}"), names, limit, 64)
    assert all(told[call] <= plain[call] + MORE_COMMANDS for call in plain)


@pytest.mark.parametrize(("names", "limit"), [(1, 16), (4, 4), (16, 1)])
def test_a_call_executes_few_more_commands_while_all_messages_wait_for_limits(
    connection: redis.Redis, names: int, limit: int
) -> None:
    plain = commands_per_call(Queue(connection, f"free{names}"), 0, 0, 600)["next"]
    told = commands_per_call(Queue(connection, f"full{names}"), names, limit, 600)["next"]
    assert told <= plain + MORE_COMMANDS
