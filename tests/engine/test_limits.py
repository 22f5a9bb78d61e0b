"""Limits and rates (clauses 26, 27): long lines and keepers answer alike on model, hub and Redis.

On Redis they cost few commands.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from tests import seeds
from tests.engine.calls import LONG, Queue, commands_of, leased, message
from tests.engine.naive.limits import PASSES
from tests.engine.naive.model import LEASED, Entry, Spec
from tests.engine.naive.watch import WatchedModel
from tests.engine.schedules.compare import difference
from tests.engine.schedules.director import Director
from tests.engine.schedules.servers import Servers, both
from tests.engine.schedules.steps import Pick, Step
from tests.engine.timed import TimedQueue

BATCH = 16
MORE_COMMANDS = 7
"""Number of commands that a call may execute on Redis because of limits, on average.

The options and the slots of many names take three. The times of rates take three, and one more that
drops past times while names are new.
"""
CALLS = 32
NOT_UTF_8 = "z\xff"
"""A limit name: it may be any bytes."""
NAMES = ("x", "y", NOT_UTF_8)


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


def steps_of_long_lines(chance: random.Random, values: list[str]) -> list[Step]:
    """Many messages of few names, so that lines are long and many calls move messages."""
    choice = chance.choice
    keys = "abcdefgh"[: choice([1, 4, 8])]
    rated = any("/" in value for value in values)

    def pick() -> int:
        return chance.randrange(10**6)

    def limits() -> str:
        names = (*NAMES, "x*", "*")
        return "\x1f".join(f"{n}={choice(values)}" for n in names if chance.random() < 0.6)

    def spec() -> Spec:
        names = chance.choices([*NAMES, "xx"], k=choice([0, 1, 1, 1, 2, 3]))
        held = tuple(chance.choices(keys, k=choice([0, 0, 1, 2])))
        return limited(*names, priority=choice([0, 0, 0, 1, -1]), keys=held)

    def wanted() -> list[str]:
        kind = choice(["any", "any", "keyed", "unkeyed"])
        return ["0", choice(["1", "2", "4", "30"]), choice(["20", "1000", "5000000"]), kind]

    def picks() -> list[tuple[str, int, list[str]]]:
        verbs: dict[str, list[str]] = {"ACK": [], "NACK": ["0", "e"], "RELEASE": [], "DEFER": ["5"]}
        verbs["CLOSE"] = [
            choice(["0", "3", "20"]),
            "e",
            choice(NAMES),
            choice("01"),
        ]
        chosen = chance.choices(list(verbs), [8, 1, 1, 1, 0.5 * rated], k=choice([1, 2, 4, 8]))
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
        "tick": (5, lambda: choice([1, 9, 40] if rated else [1, 9])),
        "due": (4 if rated else 2, lambda: (pick(), chance.randrange(1 + rated))),
        "operate": (4, lambda: (choice(["cancel", "skip"]), pick(), [])),
        "revoke": (1, lambda: (pick(), "retry")),
        "direct": (4, lambda: choice(on_queue)()),
        "read": (3, lambda: (pick(), 50, choice(keys))),
    }
    weights = [weight for weight, _ in ways.values()]
    # The model is slow where many messages wait for a time.
    names = chance.choices(list(ways), weights, k=200 if rated else 400)
    first: Step = ("direct", ("configure", ["REPLACE", "LIMITS", limits() or "x=1"]))
    return [first, *[(name, ways[name][1]()) for name in names]]


NUMBERS = ["1", "1", "2", "3"]
RATES = ["1/5:1", "3/10:1", "1/40:1", "2/50:5"]


@pytest.mark.parametrize("values", [NUMBERS, [*NUMBERS, *RATES], RATES], ids=["n", "n+r", "r"])
def test_long_lines_answer_alike_on_model_hub_and_redis(
    servers: Servers, values: list[str]
) -> None:
    director = Director(WatchedModel(servers.now))
    for step in steps_of_long_lines(random.Random(seeds.seed()), values):
        director.take(step)
    same(servers, director)


def ask(director: Director, *calls: tuple[Any, ...]) -> list[int]:
    """Take these steps. Return how many messages each lease call got."""
    got: list[int] = []
    for name, *arguments in calls:
        before = director.model.counts["leases"]
        director.take((name, arguments[0] if len(arguments) == 1 else tuple(arguments)))
        if name == "lease":
            got.append(director.model.counts["leases"] - before)
    return got


def configured(limits: str) -> tuple[Any, ...]:
    return "direct", "configure", ["REPLACE", "LIMITS", limits]


def put(*specs: Spec) -> tuple[Any, ...]:
    return "put", "", "0", list(specs)


LEASE = ("lease", "", ["0", "30", "5000000", "any"])


@pytest.mark.parametrize("keys", [("k",), ()])
def test_a_rate_grants_a_burst_and_then_one_per_interval_on_model_hub_and_redis(
    servers: Servers, keys: tuple[str, ...]
) -> None:
    def message(n: int, name: str = "r") -> Spec:
        return limited(name, keys=tuple(f"{key}{n}" for key in keys))

    director = Director(WatchedModel(servers.now))
    ask(director, configured("n=2\x1fr=1/100:3"))
    assert ask(director, put(*[message(n, "n") for n in (20, 21, 22)]), LEASE) == [2]
    # Without a line, and then with one.
    few = ask(director, put(message(1), message(2)), LEASE, put(message(3)), LEASE)
    assert few == [2, 1]
    late = ask(director, put(*map(message, range(4, 12))), LEASE, ("tick", 99), LEASE)
    assert late == [0, 0]
    assert ask(director, ("tick", 1), LEASE, LEASE, ("tick", 250), LEASE, LEASE) == [1, 0, 2, 0]
    assert ask(director, ("due", 0, 1), LEASE, ("due", 0, 0), LEASE) == [0, 1]
    # Grants of the former rate delay the next one by a burst of the new rate at most.
    changed = configured("n=2\x1fr=1/10:1")
    assert ask(director, changed, LEASE, ("tick", 10), LEASE) == [0, 1]
    assert ask(director, configured("n=2\x1fr=2"), LEASE) == [0]
    same(servers, director)


def test_a_closed_name_grants_nothing_until_it_opens_on_model_hub_and_redis(
    servers: Servers,
) -> None:
    director = Director(WatchedModel(servers.now))
    ask(director, configured("r=5"), put(limited("r"), limited("q"), limited("r")))
    close: Pick = ("CLOSE", 4, ["1000", "busy", "r", "1"])
    one = ("lease", "", ["0", "1", "5000000", "any"])
    assert ask(director, one, ("settle", "", [close]), LEASE, LEASE) == [1, 1, 0]
    assert ask(director, ("tick", 999), LEASE, ("read", 2, 50, "k")) == [0]
    assert ask(director, ("tick", 1), LEASE) == [2]
    same(servers, director)


def test_a_rate_charged_while_the_clock_of_redis_was_ahead_opens_with_another_rate(
    timed: TimedQueue,
) -> None:
    hour = 3_600_000_000
    timed.call("configure", "REPLACE", "LIMITS", "api=1/1000:1")
    timed.put(*[message(text, limit="api") for text in "abc"])
    timed.at(hour)
    timed.ack_all(timed.lease().messages)
    for passed in (0, 10_000, hour - 1):
        timed.at(passed)
        assert timed.payloads() == []
    timed.at(20_000)
    for rate in ("1/999:1", "1/1000:1"):
        timed.call("configure", "CHANGE", "LIMITS", f"api={rate}")
    timed.at(21_000)
    assert timed.payloads() == ["b"]
    timed.at(22_000)
    assert timed.payloads() == ["c"]


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


@pytest.mark.parametrize(
    "then",
    [
        "granted",
        "cancelled",
        "paused",
        "raised",
        "closed",
        "closed late",
        "rated",
        "rated, cancelled",
    ],
)
def test_a_message_that_was_passed_often_becomes_a_keeper_on_model_hub_and_redis_alike(
    servers: Servers, then: str
) -> None:
    director = Director(WatchedModel(servers.now))
    model = director.model

    def take(*step: Any) -> None:
        director.take((step[0], step[1] if len(step) == 2 else step[1:]))

    def settlement(name: str, verb: str, *more: str) -> list[str]:
        holder = next(e for e in model.line if e.state == LEASED and e.names == [name])
        return [verb, str(holder.token), str(holder.id), *more]

    def settle(name: str, verb: str = "ACK", *more: str) -> None:
        """The message of a name is settled."""
        one = settlement(name, verb, *more)
        director._call("settle", ["", "0", *one], model.settle([one]))

    def go_on(name: str, verb: str = "ACK", *more: str) -> None:
        """The message of a name is settled, and the next is leased."""
        one = settlement(name, verb, *more)
        arguments = ["", "0", "0", "1", "5000000", "any", *one]
        answers = model.settle([one])
        granted = model.grant("", 1, 5_000_000, "any")
        director._call("next", arguments, ["1", *answers, *granted])

    def cancel(entry: Entry) -> None:
        director._call("cancel", [str(entry.id)], model.cancel(str(entry.id)))

    burst = 2 if then == "rated, cancelled" else 1
    take("direct", ("configure", ["REPLACE", "LIMITS", f"*=1\x1fr=1/1000:{burst}"]))
    names = ("r", "x", "y") if "rated" in then else ("x", "y")
    take("put", ("", "0", [limited("x"), limited("y"), limited("r"), limited("q")]))
    take("lease", ("", ["0", "4", "5000000", "any"]))
    take("put", ("", "0", [limited(*names, keys=("k",))]))
    for turn in range(2 * PASSES):
        if model.keeper("x"):
            break
        name = "xy"[turn % 2]
        take("put", ("", "0", [limited(name)]))
        go_on(name)
    keeper = model.keeper("x")
    assert keeper is not None and keeper.slots is not None
    if then == "cancelled":
        cancel(keeper)
    elif then == "paused":
        take("direct", ("pause", ["k"]))
    elif then == "raised":
        take("direct", ("configure", ["CHANGE", "LIMITS", "*=2"]))
    # The other slot is kept.
    if then == "closed":
        go_on("y", "CLOSE", "1000", "busy", "y", "0")
    elif then == "closed late":
        settle("y")
        settle("q", "CLOSE", "1000", "busy", "x", "0")
        cancel(next(entry for entry in model.line if entry.names == ["q"]))
        take("read", (3, 50, "k"))
        take("lease", ("", ["0", "1", "5000000", "any"]))
    elif then == "rated, cancelled":
        settle("y", "CLOSE", "5000", "busy", "y", "0")
        # The next grant is the keeper's, until it is cancelled.
        take("put", ("", "0", [limited("r")] * 3))
        take("lease", ("", ["0", "30", "5000000", "any"]))
        cancel(keeper)
        take("tick", 1_000)
    else:
        go_on("y")
    assert (keeper.state == LEASED) == (then in ("granted", "raised"))
    if then in ("closed", "closed late", "rated"):
        take("read", (2, 50, "k"))
        take("tick", 1_000)
        take("lease", ("", ["0", "2", "5000000", "any"]))
        assert keeper.state == LEASED
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


def commands_per_call(queue: Queue, names: int, limit: str, waiting: int) -> dict[str, float]:
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


RATE = "1000/1000000:1000000"
"""A rate that always has room, whose times each call reads and writes."""


@pytest.mark.parametrize(
    ("names", "limit"), [(1, "64"), (10, "64"), (1000, "64"), (10, RATE), (1000, RATE)]
)
def test_a_call_executes_few_more_commands_for_limits_that_have_room(
    connection: redis.Redis, names: int, limit: str
) -> None:
    plain = commands_per_call(Queue(connection, f"plain{names}"), 0, "", 64)
    told = commands_per_call(Queue(connection, f"limited{names}{limit}"), names, limit, 64)
    assert all(told[call] <= plain[call] + MORE_COMMANDS for call in plain)


@pytest.mark.parametrize(("names", "limit"), [(1, "16"), (4, "4"), (16, "1")])
def test_a_call_executes_few_more_commands_while_all_messages_wait_for_limits(
    connection: redis.Redis, names: int, limit: str
) -> None:
    plain = commands_per_call(Queue(connection, f"free{names}"), 0, "", 600)["next"]
    told = commands_per_call(Queue(connection, f"full{names}"), names, limit, 600)["next"]
    assert told <= plain + MORE_COMMANDS


def test_a_change_of_limits_reads_the_names_that_messages_wait_for_at_once(
    connection: redis.Redis,
) -> None:
    queue, names = Queue(connection, "changed"), 400
    queue.call("configure", "LIMITS", "n*=1")
    for number in range(0, 2 * names, BATCH):
        queue.call("put", *batch(number, names))
    queue.call("lease", "", 0, 0, 1000, 10**9, "any")
    told = commands_of(queue, lambda: queue.call("configure", "CHANGE", "LIMITS", "n*=2"))
    assert told < names / 10
    assert queue.call("lease", "", 0, 0, 1000, 10**9, "any")[3] == str(names)


def test_a_grant_that_waited_for_its_rate_executes_few_commands(timed: TimedQueue) -> None:
    timed.call("configure", "LIMITS", "n=1/10:1")
    timed.put(*[message("", limit="n") for _ in range(30)])
    # It asks for more than the rate allows, so that the others wait in line.
    (handed,) = timed.lease(2).messages
    executed = []
    for now in range(10, 200, 10):
        timed.at(now)
        reply: list[str] = []
        call = ["next", "", 0, 0, 1, LONG, "any", *handed.ack()]
        executed.append(
            commands_of(timed, lambda call=call, reply=reply: reply.extend(timed.call(*call)))  # type: ignore[misc]
        )
        (handed,) = leased(reply[2:]).messages
    assert max(executed) <= 20, executed
