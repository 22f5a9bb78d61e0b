"""Messages behind a failure (clause 31), as Redis stores them: queues that ask nothing of it pay
nothing for it, and what older releases leave does no harm."""

from __future__ import annotations

from typing import Any

import redis

from tests.engine.calls import Queue, commands_of, message
from tests.engine.naive.behind import MOVES

COMMANDS_PER_MOVE = 40
"""Number of commands that one message may take on Redis that is parked, or returns."""


def commands_of_calls(queue: Queue) -> list[int]:
    """The commands of puts, leases and acknowledgements."""
    found = []
    for n in range(8):
        some = [message("p", [f"k{n}.{i}"]) for i in range(16)]
        found.append(commands_of(queue, lambda some=some: queue.put(*some)))  # type: ignore[misc]
        taken: list[Any] = []
        found.append(commands_of(queue, lambda taken=taken: taken.append(queue.lease(16))))  # type: ignore[misc]
        found.append(
            commands_of(queue, lambda taken=taken: queue.ack_all(taken[0].messages))  # type: ignore[misc]
        )
    return found


def test_calls_cost_one_command_more_while_no_key_is_shut(connection: redis.Redis) -> None:
    plain, asked = Queue(connection, "plain"), Queue(connection, "asked")
    plain.call("configure", "MAXDEAD", 9_999)
    asked.call("configure", "MAXDEAD", 9_999, "BEHIND", "park")
    # The rare counters are read.
    assert commands_of_calls(asked) == [count + 1 for count in commands_of_calls(plain)]


def test_parking_and_returning_cost_the_same_per_message_however_many_there_are(
    connection: redis.Redis,
) -> None:
    for count in (100, 900):
        queue = Queue(connection, f"costs{count}")
        queue.call("configure", "BEHIND", "park")
        queue.put(*[message("p", ["a", f"b{n}"]) for n in range(count)])
        parks = commands_of(queue, lambda: queue.call("pause", "a"))  # noqa: B023
        assert queue.stats()["parked"] == count
        returns = commands_of(queue, lambda: queue.call("resume", "a"))  # noqa: B023
        assert queue.stats()["parked"] == 0
        assert max(parks, returns) < COMMANDS_PER_MOVE * count


def test_the_hold_of_a_reader_costs_the_same_however_many_are_stuck(
    connection: redis.Redis,
) -> None:
    queue = Queue(connection, "readers")
    costs = []
    for _ in range(60):
        queue.put(message("p", [], ["a"], attempts=1, then="hold"))
        (leased,) = queue.lease().messages
        costs.append(commands_of(queue, lambda leased=leased: queue.settle(leased.nack())))  # type: ignore[misc]
    assert max(costs[2:]) == min(costs[2:])


def test_nothing_is_left_of_a_queue_that_is_dropped_in_the_middle_of_everything(
    connection: redis.Redis,
) -> None:
    queue = Queue(connection, "dropped")
    queue.call("configure", "BEHIND", "park")
    # Two messages that die, of which more than one call buries what is behind them.
    for key in ("d", "e"):
        queue.put(message("dies", [key], attempts=1, then="dead"))
        queue.put(*[message("p", [key], behind="bury") for _ in range(MOVES - 400)])
    queue.put(message("held", ["h"], attempts=1, then="hold"), *[message("p", ["h"])] * 9)
    queue.call("pause", "k", "l")
    queue.put(*[message("p", ["k", "l"])] * 9, *[message("p", ["l"])] * 9)
    queue.settle(*[one.nack() for one in queue.lease().messages])
    queue.call("resume", "k")
    queue.call("drop", "FORCE")
    left = {name for name in queue.parts() if not name.startswith(("series", "k:", "w:", "ko"))}
    assert not left


def test_what_an_older_release_has_held_is_stuck(connection: redis.Redis) -> None:
    queue = Queue(connection, "older")
    queue.put(message("held", ["a"], attempts=1, then="hold"), message("p", ["a"]))
    (leased,) = queue.lease().messages
    queue.settle(leased.nack())
    # As that stores it: without the last counters, and without stuck messages.
    text: Any = connection.hget(f"{queue.key}:c", "d")
    connection.hset(f"{queue.key}:c", "d", text[: -7 * 8])
    connection.delete(f"{queue.key}:ck", f"{queue.key}:st:a")
    queue.call("configure", "BEHIND", "park")
    assert queue.stats()["parked"] == 1
    queue.call("skip", leased.id)
    assert queue.payloads() == ["p"]


def test_what_an_older_release_leaves_of_stuck_messages_is_forgotten(
    connection: redis.Redis,
) -> None:
    queue = Queue(connection, "settled")
    # As if it had settled a stuck message of the key.
    connection.hset(f"{queue.key}:ck", "a", 1)
    connection.zadd(f"{queue.key}:st:a", {"1000000000000000": 0})
    queue.call("configure", "BEHIND", "park")
    queue.put(message("held", ["a"], attempts=1, then="hold"))
    (leased,) = queue.lease().messages
    queue.settle(leased.nack())
    queue.put(message("p", ["a"]))
    assert queue.stats()["parked"] == 1
    queue.call("skip", leased.id)
    assert queue.payloads() == ["p"]
