"""Runs (clause 30): what Redis stores of them, and what they cost there."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.calls import Argument, Handed, Leased, Queue, commands_of, message
from tests.engine.timed import TimedQueue

MOST = 1_024
"""Messages of a run."""


def put_run(queue: Queue, count: int, keys: tuple[str, ...] = ("k",), **options: Any) -> None:
    """Put messages that may all be in one run; their payloads are their numbers."""
    for start in range(0, count, 500):
        numbers = range(start, min(start + 500, count))
        queue.put(*[message(str(n), keys, run=f"{MOST}:a", **options) for n in numbers])


def take_run(queue: Queue, count: int = 1) -> list[Handed]:
    return queue.lease(count, kind="any+").messages


@pytest.mark.parametrize("keys", [("k",), ("k", "l")], ids=["one key", "two keys"])
def test_a_run_has_all_of_its_messages_however_many_are_read_at_a_time(
    queue: Queue, keys: tuple[str, ...]
) -> None:
    for count in (2, 5, 6, 17, 21, 22, 85, 86, 149, MOST):
        put_run(queue, count, keys)
        run = take_run(queue)
        assert [int(one.payload) for one in run] == list(range(count))
        assert [one.rides for one in run] == [False] + [True] * (count - 1)
        queue.ack_all(run)
        assert queue.stats()["unsettled"] == queue.stats()["riding"] == 0


def test_nothing_of_a_run_is_left_when_its_messages_are_settled(queue: Queue) -> None:
    queue.put(message("before", ["k"]))
    queue.ack_all(queue.lease().messages)
    before = queue.parts()
    put_run(queue, 20, ("k", "l"), limit="bank", group="acme")
    run = take_run(queue)
    assert queue.settle(*[one.ack() for one in run[:7]], run[7].nack()) == [
        *["ACKED"] * 7,
        "RETRIED",
    ]
    (alone,) = take_run(queue, 2)
    assert (alone.payload, alone.attempt) == ("7", 2)
    queue.ack_all([alone])
    queue.ack_all(take_run(queue))
    stats = queue.stats()
    assert (stats["unsettled"], stats["leased"], stats["riding"], stats["acks"]) == (0, 0, 0, 21)
    assert queue.parts() <= before


def test_a_settlement_that_names_a_rider_before_its_head_changes_nothing(queue: Queue) -> None:
    put_run(queue, 3)
    first, second, third = take_run(queue)
    before = queue.call("peek", second.id)
    lost = [second.ack(), third.nack(), second.release()]
    assert queue.settle(*lost) == ["LEASELOST"] * 3
    assert queue.call("peek", second.id) == before
    # The one in front is settled by then.
    made = [third.ack(), first.ack(), first.ack(), second.ack(), second.nack(), third.ack()]
    told = ["LEASELOST", "ACKED", "LEASELOST", "ACKED", "LEASELOST", "ACKED"]
    assert queue.settle(*made) == told
    assert queue.stats()["unsettled"] == 0


def test_one_call_settles_messages_of_several_runs_of_one_lease_and_ends_it(queue: Queue) -> None:
    for key in "abc":
        put_run(queue, 4, (key,))
    queue.put(message("plain", ["d"]))
    leased = take_run(queue, 4)
    runs = [leased[:4], leased[4:8], leased[8:12]]
    assert [one.rides for one in leased] == [False, True, True, True] * 3 + [False]
    made = [runs[0][0].nack(), leased[12].ack()]
    made += [
        part
        for pair in zip(runs[1], runs[2], strict=True)
        for part in (pair[0].ack(), pair[1].ack())
    ]
    assert queue.settle(*made) == ["RETRIED", *["ACKED"] * 9]
    stats = queue.stats()
    assert (stats["leased"], stats["riding"], stats["unsettled"]) == (0, 0, 4)
    assert "c.lease" not in queue.parts()


def test_a_repeated_call_gets_the_run_as_it_was_though_another_consumer_settled_its_head(
    queue: Queue,
) -> None:
    put_run(queue, 3)
    asked: list[Argument] = ["me", 7, 0, 1, 60_000_000, "any+"]
    reply = queue.call("lease", *asked)
    token, first = reply[0], reply[4]
    assert queue.settle(["ACK", token, first]) == ["ACKED"]
    assert queue.call("lease", *asked) == reply


def test_an_expired_run_returns_and_its_head_is_leased_alone(timed: TimedQueue) -> None:
    put_run(timed, 40, limit="bank")
    timed.call("configure", "LIMITS", "bank=40")
    timed.lease(1, duration=10, kind="any+")
    timed.at(10)
    alone = timed.lease(5, kind="any+")
    assert [one.payload for one in alone.messages] == ["0"] and alone.next == "alone"
    stats = timed.stats()
    assert (stats["leases_expired"], stats["leased"], stats["riding"]) == (1, 1, 0)
    timed.ack_all(alone.messages)
    # All slots are free again.
    assert [int(one.payload) for one in take_run(timed)] == list(range(1, 40))


UNLIKE: dict[str, tuple[Any, ...]] = {
    "label": (["k"], ["r"], {"run": "9:b"}),
    "number": (["k"], ["r"], {"run": "8:a"}),
    "group": (["k"], ["r"], {"run": "9:a", "group": "acme"}),
    "priority": (["k"], ["r"], {"run": "9:a", "priority": 1}),
    "shared key": (["k"], ["s"], {"run": "9:a"}),
    "mode of a key": (["k", "r"], [], {"run": "9:a"}),
    "number of keys": (["k"], [], {"run": "9:a"}),
    "run": (["k"], ["r"], {}),
}


@pytest.mark.parametrize("what", UNLIKE)
def test_a_message_unlike_the_head_ends_its_run(queue: Queue, what: str) -> None:
    keys, shared, options = UNLIKE[what]
    alike = [message(str(n), ["k"], ["r"], run="9:a") for n in (1, 2, 4)]
    queue.put(*alike[:2], message("3", keys, shared, **options), alike[2])
    assert [one.payload for one in take_run(queue)] == ["1", "2"]


@pytest.mark.parametrize("between", ["a writer", "a reader"])
def test_a_rider_is_right_behind_the_message_before_it_in_all_of_its_lanes(
    queue: Queue, between: str
) -> None:
    alike = [message(str(n), ["k", "l"], ["r"], run="9:a") for n in (1, 2, 4)]
    other = message("3", ["l"]) if between == "a writer" else message("3", [], ["r"])
    queue.put(*alike[:2], other, alike[2])
    run = take_run(queue)
    assert [one.payload for one in run] == ["1", "2"]
    # A reader is ready; a writer waits for both.
    assert queue.payloads() == ([] if between == "a writer" else ["3"])


def test_a_full_name_ends_a_run(queue: Queue) -> None:
    queue.call("configure", "LIMITS", "bank=3")
    put_run(queue, 5, limit="bank")
    run = take_run(queue)
    assert [one.payload for one in run] == ["0", "1", "2"]
    queue.put(message("other", ["l"], limit="bank"))
    assert queue.payloads() == []
    queue.ack_all(run[:1])
    assert queue.payloads() == ["other"]


def test_riders_use_turns_of_their_group(queue: Queue) -> None:
    put_run(queue, 3, ("k",), group="a")
    queue.put(*[message(f"a{n}", group="a") for n in range(2)])
    queue.put(*[message(f"b{n}", group="b") for n in range(4)])
    queue.call("configure", "WEIGHTS", "a=3")
    # The whole turn of the group is used by the run.
    assert [one.payload for one in take_run(queue, 2)] == ["0", "1", "2", "b0"]
    assert queue.payloads(3) == ["a0", "a1", "b1"]


def test_an_operator_ends_a_run_at_its_head_only(queue: Queue) -> None:
    queue.call("configure", "BEHIND", "park")
    pair = [
        message(str(n), keys, run="9:a", coalesce=keys[0]) for n, keys in enumerate(["kl", "lk"])
    ]
    queue.put(*pair)
    head, rider = take_run(queue)
    assert rider.rides
    assert queue.call("cancel", rider.id) == ["0"]
    assert queue.call("revoke", rider.id, "dead") == ["0"]
    assert queue.call("pause", "l") == ["1"]
    # A purge ends once it has cancelled all that are not leased.
    queue.put(*[message("pending", ["m"]) for _ in range(40)])
    assert queue.call("purge", "pending") == ["40"]
    assert queue.call("put", "", 0, 0, *message("successor", ["k"], coalesce="l"))[1] == "0"
    told = [queue.call("peek", one.id)[:2] for one in (head, rider)]
    assert told == [["leased", head.token]] * 2
    assert queue.call("revoke", head.id, "hold") == ["1"]
    # Behind a held message, on a paused key.
    assert queue.call("peek", rider.id)[:2] == ["parked", ""]
    stats = queue.stats()
    assert (stats["leased"], stats["riding"], stats["held"], stats["parked"]) == (0, 0, 1, 2)
    assert queue.settle(rider.ack()) == ["LEASELOST"]


COMMANDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "of a limit": {"limit": "bank"},
    "of a group": {"group": "acme"},
}


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_consumer_of_runs_costs_nothing_more_in_a_queue_without_them(
    queue: Queue, kind: str
) -> None:
    taken = []
    for words in ("any", "any+", "any", "any+"):
        queue.put(*[message(str(n), [f"k{n}"], **COMMANDS[kind]) for n in range(20)])
        got: list[Leased] = []
        taken.append(commands_of(queue, lambda: got.append(queue.lease(20, kind=words))))  # noqa: B023
        assert len(got[0].messages) == 20
        queue.ack_all(got[0].messages)
    assert taken[0] == taken[1] and taken[2] == taken[3]


def test_a_message_of_a_run_is_settled_with_as_few_commands_as_one_that_is_leased_by_itself(
    queue: Queue,
) -> None:
    put_run(queue, 200)
    first, *rest = take_run(queue)
    few = commands_of(queue, lambda: queue.ack_all([first]))
    many = commands_of(queue, lambda: queue.ack_all(rest[:100]))
    assert many <= few + 2
