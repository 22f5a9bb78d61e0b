"""A numbered call that is sent again gets its first reply, whatever has happened to its messages
since.

Replies of plain calls are kept in a short form that is only good while all of the lease is out:
each test here ends some of one in another way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.calls import LONG, Argument, Handed, Queue, leased, message
from tests.engine.timed import TimedQueue

KEPT = 300_000_000
"""µs for which a reply is kept."""

Ends = Callable[[TimedQueue, Handed], object]


def run_out(queue: TimedQueue) -> None:
    queue.at(LONG)
    # Applies what is due.
    queue.call("extend", 7, 1)


ENDS: dict[str, Ends] = {
    "nothing": lambda queue, one: None,
    "acknowledged": lambda queue, one: queue.settle(one.ack()),
    "failed": lambda queue, one: queue.settle(one.nack()),
    "released": lambda queue, one: queue.settle(one.release()),
    "rejected": lambda queue, one: queue.settle(one.reject()),
    "given up": lambda queue, one: queue.settle(one.exhaust()),
    "acknowledged by a nameless call": lambda queue, one: queue.call("settle", "", 0, *one.ack()),
    "by another consumer": lambda queue, one: queue.call("settle", "d", 9, *one.ack()),
    "revoked": lambda queue, one: queue.call("revoke", one.id, "skip"),
    "ran out": lambda queue, one: run_out(queue),
    "extended": lambda queue, one: queue.call("extend", one.token, 3 * LONG),
}


@pytest.mark.parametrize("ends", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("keys", [[], ["a"], ["b", "c"]], ids=len)
def test_a_repeated_lease_call_gets_the_stored_reply(
    timed: TimedQueue, ends: Ends, keys: list[str]
) -> None:
    timed.put(*[message(f"m{n}", [f"{key}{n}" for key in keys]) for n in range(3)])
    before = timed.lease(1).messages[0]
    calls: list[tuple[str, list[Argument]]] = [
        ("next", ["c", 5, 0, 1, LONG, "any", *before.ack()]),
        ("lease", ["c", 6, 0, 100, LONG, "any"]),
    ]
    for name, arguments in calls:
        first = timed.call(name, *arguments)
        ends(timed, leased(first if name == "lease" else first[2:]).messages[0])
        assert timed.call(name, *arguments) == first
        assert timed.call(name, *arguments) == first


def test_a_reply_is_stored_for_five_minutes(timed: TimedQueue) -> None:
    timed.put(message("one"), message("two"))
    arguments: list[Argument] = ["c", 5, 0, 1, 10 * KEPT, "any"]
    first = timed.call("lease", *arguments)
    timed.at(KEPT - 1)
    assert timed.call("lease", *arguments) == first
    timed.at(KEPT)
    second = timed.call("lease", *arguments)
    assert second[0] not in ("", first[0])
    assert timed.call("lease", *arguments) == second
    # An older number is nothing old then, either.
    timed.at(2 * KEPT)
    assert timed.call("lease", "c", 4, 0, 1, LONG, "any")[0] == ""


def test_replies_of_consumers_that_left_are_dropped(timed: TimedQueue) -> None:
    def kept() -> set[bytes]:
        fields: Any = timed.connection.hkeys(f"{timed.key}:c")
        return {field for field in fields if field.startswith(b"k")}

    timed.call("put", "gone", 1, 0, *message("one"))
    timed.call("put", "stays", 1, 0, *message("two"))
    timed.at(KEPT - 1)
    timed.call("put", "stays", 2, 0, *message("three"))
    assert kept() == {b"kgone", b"kstays"}
    timed.at(KEPT)
    timed.put(message("four"))
    assert kept() == {b"kstays"}
    timed.at(2 * KEPT - 2)
    timed.put(message("five"))
    assert kept() == {b"kstays"}
    timed.at(2 * KEPT - 1)
    timed.put(message("six"))
    assert kept() == set()
    assert "ko" not in timed.parts()
    # A consumer that returns in the very call that forgets it is known again.
    timed.call("put", "stays", 3, 0, *message("seven"))
    timed.at(3 * KEPT - 1)
    first = timed.call("put", "stays", 4, 0, *message("eight"))
    assert timed.call("put", "stays", 4, 0, *message("eight")) == first
    timed.at(4 * KEPT - 1)
    timed.put(message("nine"))
    assert kept() == set()


def test_a_long_reply_is_stored_separately_and_repeated(timed: TimedQueue) -> None:
    parts: list[Argument] = []
    for n in range(200):
        parts += message(str(n), ["a"])
    # One is behind the other: that is not a plain put, and its reply is kept unchanged.
    first = timed.call("put", "p", 1, 0, *parts)
    assert "k:p" in timed.parts()
    assert 0 < int(str(timed.connection.pttl(f"{timed.key}:k:p"))) <= KEPT // 1_000
    assert timed.call("put", "p", 1, 0, *parts) == first
    assert timed.stats()["unsettled"] == 200


def test_a_repeated_put_gets_the_stored_reply(timed: TimedQueue) -> None:
    timed.at(50)
    first = timed.call("put", "p", 1, 0, *[part for n in range(200) for part in message(str(n))])
    timed.ack_all(timed.lease(1000).messages)
    assert timed.call("put", "p", 1, 0, *message("other")) == first
    assert len(set(first[::2])) == 200
    assert timed.stats()["unsettled"] == 0


def test_messages_acknowledged_by_one_call_are_counted(queue: Queue) -> None:
    queue.put(*[message("12345", [f"k{n}", f"l{n}"]) for n in range(20)], message("123"))
    queue.put(message("1", ["k3"]))
    one, two = queue.lease(3).messages, queue.lease(1).messages
    queue.ack_all(two)
    # In another order than they were leased in: that goes the general way.
    queue.ack_all(one[::-1])
    rest = queue.lease(100).messages
    queue.ack_all(rest)
    stats = queue.stats()
    assert (stats["unsettled"], stats["leased"], stats["bytes"], stats["lanes"]) == (0, 0, 0, 0)
    assert stats["acks"] == 22
    assert not queue.parts() - {"c"}
