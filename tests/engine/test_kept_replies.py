"""A numbered call that is sent again gets its first reply, whatever became of its messages since.

Replies of plain calls are kept in a short form that is only good while all of the lease is out:
each test here ends some of one in another way.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.engine.calls import LONG, Argument, Handed, Queue, leased, message
from tests.engine.timed import TimedQueue

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
    "acknowledged by a nameless call": lambda queue, one: queue.call("settle", "", 0, *one.ack()),
    "by another consumer": lambda queue, one: queue.call("settle", "d", 9, *one.ack()),
    "revoked": lambda queue, one: queue.call("revoke", one.id, "skip"),
    "ran out": lambda queue, one: run_out(queue),
    "extended": lambda queue, one: queue.call("extend", one.token, 3 * LONG),
}


@pytest.mark.parametrize("ends", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("keys", [[], ["a"], ["b", "c"]], ids=len)
def test_a_lease_that_is_sent_again(timed: TimedQueue, ends: Ends, keys: list[str]) -> None:
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
        life = timed.connection.pttl(f"{timed.key}:k:c")
        assert isinstance(life, int) and 0 < life <= 300_000


def test_a_put_that_is_sent_again(timed: TimedQueue) -> None:
    timed.at(50)
    first = timed.call("put", "p", 1, 0, *[part for n in range(200) for part in message(str(n))])
    timed.ack_all(timed.lease(1000).messages)
    assert timed.call("put", "p", 1, 0, *message("other")) == first
    assert len(set(first[::2])) == 200
    assert timed.stats()["unsettled"] == 0


def test_what_one_call_acknowledges_at_once_is_counted(queue: Queue) -> None:
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
