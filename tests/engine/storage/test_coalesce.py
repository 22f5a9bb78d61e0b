"""Coalescing (clause 29): what Redis stores of it, what it costs there; and a hub that restarts."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

import interlock
from interlock.hub.client import Client
from tests import seeds
from tests.engine.calls import LONG, Argument, Queue, commands_of, message
from tests.engine.naive.model import Spec
from tests.engine.naive.watch import WatchedModel
from tests.engine.schedules.compare import difference
from tests.engine.schedules.director import Director
from tests.engine.schedules.servers import both
from tests.engine.schedules.steps import Step
from tests.engine.timed import START, TimedQueue
from tests.hub.servers import needs_hub

BESIDE, APART = "s" * 1024, "l" * 1025
"""The longest payload that is stored in the record, and the shortest one with a key of its own."""
BATCH = 16
MORE_COMMANDS = 4
"""Number of commands by which a call with names may exceed one without: it reads the rare counters,
the names, and the messages to replace, and writes nothing in addition."""


def put(queue: Queue, *messages: list[Any]) -> list[str]:
    """The reply as it is."""
    return queue.call("put", "", 0, 0, *(part for one in messages for part in one))


def one(queue: Queue) -> Any:
    (got,) = queue.lease(1).messages
    return got


def stay_ready(_: Queue) -> None:
    pass


def back_off(queue: Queue) -> None:
    queue.settle(one(queue).nack(LONG))


def be_held(queue: Queue) -> None:
    assert queue.settle(one(queue).exhaust()) == ["HELD"]


def be_paused(queue: Queue) -> None:
    queue.call("pause", "p")
    assert queue.payloads() == []


def be_refused(queue: Queue) -> None:
    queue.call("configure", "CHANGE", "LIMITS", "bank=1")
    queue.put(message("first", limit="bank", priority=1))
    assert queue.payloads() == ["first"]


STATES: dict[str, tuple[Callable[[Queue], None], dict[str, Any]]] = {
    "ready": (stay_ready, {}),
    "delayed": (stay_ready, {"delay": LONG}),
    "backing off": (back_off, {}),
    "held": (be_held, {"then": "hold"}),
    "paused": (be_paused, {}),
    "without room at its limit": (be_refused, {"limit": "bank"}),
}


def payloads_apart(queue: Queue) -> int:
    found: Any = queue.connection.hlen(f"{queue.key}:y")
    return int(found)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("first", [BESIDE, APART], ids=["beside first", "apart first"])
def test_a_payload_moves_between_the_record_and_a_key_of_its_own(
    queue: Queue, state: str, first: str
) -> None:
    become, options = STATES[state]
    queue.call("configure", "ATTEMPTS", 2)
    (id,) = queue.put(message(first, ["k"], ["r"], coalesce="p", **options))
    become(queue)
    others = queue.stats()["bytes"] - len(first)
    for payload in (APART, BESIDE, "", APART, APART, BESIDE):
        again = message(payload, ["k"], ["r"], coalesce="p", **options)
        assert put(queue, again) == [id, "2"]
        assert queue.call("peek", id)[9] == payload
        assert payloads_apart(queue) == (payload == APART)
        assert queue.stats()["bytes"] == others + len(payload)


def test_payloads_of_one_put_end_where_the_last_of_them_belongs(queue: Queue) -> None:
    a, b = (message(text, coalesce="p") for text in (APART, BESIDE))
    for batch, last in (([a, b], b), ([b, a], a), ([b, a, b, a], a), ([a, a, b], b)):
        put(queue, *batch)
        assert payloads_apart(queue) == (last is a)
        got = one(queue)
        assert got.payload == last[0]
        assert queue.settle(got.ack()) == ["ACKED"]
        assert payloads_apart(queue) == 0


def reject(queue: Queue, _: str) -> None:
    assert queue.settle(one(queue).reject()) == ["DEAD"]


def expire(queue: Queue, _: str) -> None:
    got = one(queue)
    assert queue.settle(["DROP", got.token, got.id, "too old"]) == ["DROPPED"]


def skip(queue: Queue, id: str) -> None:
    be_held(queue)
    assert queue.call("skip", id) == ["1"]


def bury(queue: Queue, id: str) -> None:
    be_held(queue)
    assert queue.call("bury", id) == ["1"]


def done(queue: Queue, _: str) -> None:
    got = one(queue)
    assert queue.settle(["DONE", got.token, got.id, "result"]) == ["ACKED"]


ENDS: dict[str, Callable[[Queue, str], object]] = {
    "acknowledged": lambda queue, _: queue.settle(one(queue).ack()),
    "done": done,
    "rejected": reject,
    "expired": expire,
    "skipped": skip,
    "buried": bury,
    "cancelled": lambda queue, id: queue.call("cancel", id),
    "purged": lambda queue, _: queue.call("purge", "pending"),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_name_of_a_message_that_ended_is_forgotten(queue: Queue, end: str) -> None:
    (id,) = queue.put(message("first", coalesce="p", then="hold"))
    assert "c.newest" in queue.parts()
    ENDS[end](queue, id)
    assert queue.stats()["unsettled"] == 0 and "c.newest" not in queue.parts()
    again, what = put(queue, message("second", coalesce="p"))
    assert (what, queue.payloads()) == ("0", ["second"]) and again != id


def test_names_are_forgotten_by_a_call_that_settles_messages_with_and_without_them(
    queue: Queue,
) -> None:
    plain = [message(str(n), [f"k{n}"]) for n in range(3)]
    named = [message(str(n), [f"k{n}"], coalesce=f"p{n}") for n in range(3, 6)]
    queue.put(*plain, *named)
    queue.ack_all(queue.lease().messages)
    assert "c.newest" not in queue.parts() and "c.lane" not in queue.parts()


def test_the_end_of_an_older_message_leaves_the_name_to_its_successor(queue: Queue) -> None:
    queue.put(message("older", coalesce="p"))
    older = one(queue)
    (successor,) = queue.put(message("successor", coalesce="p"))
    queue.settle(older.ack())
    assert put(queue, message("last", coalesce="p")) == [successor, "2"]
    assert queue.payloads() == ["last"]


def test_an_older_message_is_not_replaced_after_its_successor_was_cancelled(queue: Queue) -> None:
    queue.put(message("older", coalesce="p"))
    older = one(queue)
    (successor,) = queue.put(message("successor", coalesce="p"))
    queue.call("cancel", successor)
    queue.settle(older.release())
    assert put(queue, message("last", coalesce="p"))[1] == "0"
    assert one(queue).payload == "older"


def test_a_debounced_message_that_was_due_is_replaced_where_it_waits(timed: TimedQueue) -> None:
    debounced: dict[str, Any] = {"coalesce": "p", "debounce": 10, "within": 15}
    (id,) = timed.put(message("1", **debounced))
    for time, text in ((9, "2"), (14, "3")):
        timed.at(time)
        assert put(timed, message(text, **debounced)) == [id, "2"]
    assert timed.payloads() == []
    timed.at(15)
    # It takes another place, and keeps its id.
    assert put(timed, message("4", **debounced), message("behind", ["p"]))[:2] == [id, "2"]
    got = one(timed)
    assert (got.id, got.payload, got.attempt) == (id, "4", 1)
    timed.settle(got.ack())
    assert timed.payloads() == ["behind"]


# Many updates of few names, on model, hub and Redis.

OTHER_KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "p": ((), ()),
    "q": (("a",), ()),
    "r": (("a", "p"), ("b",)),
}


def steps_of_updates(chance: random.Random) -> list[Step]:
    """Few messages with large payloads in a queue with little room, which end in every way."""
    choice = chance.choice

    def pick() -> int:
        return chance.randrange(10**6)

    def spec() -> Spec:
        name = choice("pppqqr")
        exclusive, shared = OTHER_KEYS[name]
        options = [("COALESCE", name)]
        if chance.random() < 0.3:
            options.append(("DEBOUNCE", choice(["1", "5", "20"])))
            options += [("WITHIN", choice(["3", "30"]))] * (chance.random() < 0.7)
        options += [("RESULT", "9")] * (chance.random() < 0.1)
        options += [("PRIORITY", "1")] * (chance.random() < 0.05)
        options += [("THEN", "hold")] * (chance.random() < 0.3)
        if chance.random() < 0.1:
            shared, exclusive = exclusive, shared
        return Spec(choice(["", "u", BESIDE, APART]), exclusive, shared, tuple(options))

    def plain() -> Spec:
        return Spec(choice(["", "p", APART]), (choice("apz"),))

    def put() -> tuple[str, str, list[Spec]]:
        made = [spec() if chance.random() < 0.8 else plain() for _ in range(choice([1, 1, 2, 6]))]
        return "one", "0", made

    def picks() -> list[tuple[str, int, list[str]]]:
        verbs = {"ACK": [], "NACK": [choice(["0", "7", ""]), "e"], "RELEASE": [], "DROP": ["late"]}
        verbs |= {"DEFER": ["5"], "EXHAUST": ["e"], "REJECT": ["e"]}
        chosen = chance.choices(list(verbs), [5, 4, 1, 1, 1, 2, 1], k=choice([1, 1, 3]))
        return [(verb, pick(), verbs[verb]) for verb in chosen]

    def bounds() -> tuple[str, list[str]]:
        size, bytes = choice(["0", "2", "4"]), choice(["0", "1025", "2049", "4000"])
        return "configure", ["REPLACE", "MAXSIZE", size, "MAXBYTES", bytes, "ATTEMPTS", "3"]

    def wanted() -> list[str]:
        return ["0", choice(["1", "1", "3"]), choice(["4", "5000000"]), "any"]

    on_message = ["cancel", "skip", "retry", "bury", "requeue"]
    ways: dict[str, tuple[int, Callable[[], Any]]] = {
        "put": (30, put),
        "lease": (10, lambda: ("two", wanted())),
        "next": (12, lambda: (choice(["two", ""]), wanted(), picks())),
        "settle": (8, lambda: ("one", picks())),
        "tick": (8, lambda: choice([1, 4, 30])),
        "due": (5, lambda: (pick(), chance.randrange(2))),
        "operate": (6, lambda: (choice(on_message), pick(), [])),
        "revoke": (2, lambda: (pick(), choice(["retry", "hold", "dead"]))),
        "direct": (2, bounds),
        "again": (2, lambda: "one"),
        "read": (4, lambda: (pick(), 50, choice("apq"))),
    }
    weights = [weight for weight, _ in ways.values()]
    names = chance.choices(list(ways), weights, k=400)
    return [("direct", bounds()), *[(name, ways[name][1]()) for name in names]]


def test_updates_of_few_names_answer_alike_on_model_hub_and_redis(engine_port: int) -> None:
    chance = random.Random(seeds.seed())
    with both(engine_port) as servers:
        for _ in range(5):
            director = Director(WatchedModel(servers.now))
            for step in steps_of_updates(chance):
                director.take(step)
            wrong = difference(servers.ask(director.calls), servers.answered())
            assert wrong is None or wrong.startswith("left over"), wrong[-3_000:]
            assert director.model.counts["coalesced"] > 10


# Costs.


def batch(number: int, named: bool) -> list[Any]:
    arguments: list[Any] = ["", 0, 0]
    for n in range(number, number + BATCH):
        own = message("p", coalesce=f"k{n}") if named else message("p", [f"k{n}"])
        arguments += own
    return arguments


def commands(queue: Queue, named: bool) -> dict[str, int]:
    """The commands of calls with a batch each."""
    # As in a queue that was used before: its rare counters are read.
    queue.put(message("one", coalesce="one"), message("two", coalesce="one"))
    queue.ack_all(queue.lease().messages)
    counted = {"put": commands_of(queue, lambda: queue.call("put", *batch(0, named)))}
    if named:
        counted["replace"] = commands_of(queue, lambda: queue.call("put", *batch(0, named)))
    leased: list[Any] = []
    counted["lease"] = commands_of(queue, lambda: leased.extend(queue.lease(BATCH).messages))
    assert len(leased) == BATCH
    counted["settle"] = commands_of(queue, lambda: queue.ack_all(leased))
    return counted


def test_a_call_executes_few_more_commands_for_messages_with_names(
    connection: redis.Redis,
) -> None:
    plain = commands(Queue(connection, "without names"), False)
    named = commands(Queue(connection, "with names"), True)
    plain["replace"] = plain["put"]
    assert {
        call: count for call, count in named.items() if count > plain[call] + MORE_COMMANDS
    } == {}


def test_a_put_without_names_executes_as_many_commands_beside_messages_with_names(
    queue: Queue,
) -> None:
    queue.put(message("one", coalesce="one"), message("two", coalesce="one"))
    queue.ack_all(queue.lease().messages)
    alone = commands_of(queue, lambda: queue.call("put", *batch(0, False)))
    queue.put(message("one", coalesce="one"))
    assert commands_of(queue, lambda: queue.call("put", *batch(BATCH, False))) == alone


def test_messages_that_were_debounced_are_replaced_and_settled_by_few_commands(
    timed: TimedQueue,
) -> None:
    def taken(count: int) -> tuple[int, int]:
        batch = [message("1", coalesce=f"p{n}", debounce=10) for n in range(count)]
        put(timed, *batch)
        now = int(timed.call("stats")[-1]) - START
        timed.at(now + 10)
        # Any call that writes applies what is due.
        timed.call("extend", 5, 1)
        replaced = commands_of(timed, lambda: put(timed, *batch))
        leased = timed.lease(count).messages
        assert len(leased) == count
        return replaced, commands_of(timed, lambda: timed.ack_all(leased))

    few, many = taken(4), taken(16)
    assert [b - a < 4 for a, b in zip(few, many, strict=True)] == [True, True]


# A hub that restarts.


def asked(folder: Path, *calls: list[Argument]) -> list[Any]:
    """Ask a hub with this journal, which then stops."""
    hub = interlock.Hub(port=0, workers=1, queues={"journal": str(folder)})
    with hub, Client(f"127.0.0.1:{hub.port}", timeout=20) as client:
        return [client.call("FCALL", call[0], 1, "il:{q}", *call[1:]) for call in calls]


def test_a_hub_that_restarts_replaces_what_was_put_before(tmp_path: Path) -> None:
    needs_hub()

    def put_of(*texts: str, **options: Any) -> list[Argument]:
        parts = [part for text in texts for part in message(text, coalesce="p", **options)]
        return ["il1_put", "", 0, 0, *parts]

    debounced = {"debounce": LONG, "within": 2 * LONG}
    leasing: list[Argument] = ["il1_lease", "c", 0, 0, 1, LONG, "any"]
    first, _ = asked(tmp_path, put_of("1", APART), put_of(BESIDE))
    again, leased, later = asked(tmp_path, put_of("3"), leasing, put_of("4", **debounced))
    assert (again, leased[7]) == ([first[0], b"2"], b"3")
    assert later[1] == b"0"
    replaced, told = asked(tmp_path, put_of("5", **debounced), ["il1_peek", later[0]])
    assert replaced == [later[0], b"2"]
    assert (told[0], told[9]) == (b"delayed", b"5")
    assert told[told.index(b"REVISION") + 1] == b"1"


@pytest.mark.parametrize("option", ["coalesce", "dedup"])
def test_a_put_that_may_need_less_room_than_before_is_woken(queue: Queue, option: str) -> None:
    """The message of its name is not leased any more, or its string is known."""
    queue.call("configure", "MAXSIZE", 2)
    named = message("named", **{option: "p"})
    queue.put(message("other"), named)
    _, got = queue.lease(2).messages
    if option == "dedup":
        # Cancelled, so that its string is free; and there is room for another one.
        queue.settle(got.release())
        queue.call("cancel", got.id)
        queue.put(message("another"))
    for waiter, waiting in (("w", named), ("v", message("plain"))):
        with pytest.raises(redis.ResponseError, match="FULL"):
            queue.call("put", waiter, 1, LONG, *waiting)
    if option == "coalesce":
        queue.settle(got.release())
    else:
        queue.call("configure", "CHANGE", "MAXSIZE", 3)
        queue.connection.delete(f"{queue.key}:room:w", f"{queue.key}:room:v")
        queue.put(named)
    woken = [queue.connection.llen(f"{queue.key}:room:{waiter}") for waiter in "wv"]
    assert woken == [1, 0]
