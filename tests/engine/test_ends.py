"""A wait until a message is settled, or all are, ends with the call that settles; on Redis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.calls import LONG, Handed, Queue, message
from tests.engine.test_waiting import WAIT, Sleeper, elements, sleeper
from tests.engine.timed import TimedQueue

__all__ = ["sleeper"]

Sleepers = Callable[[str], Sleeper]


def test_join_returns_the_number_of_unsettled_messages_and_the_next_due_time(
    timed: TimedQueue,
) -> None:
    assert timed.call("join", 0) == ["0", ""]
    late, first = timed.put(message("late", delay=70), message("first"))
    assert timed.call("join", 0) == ["2", "70"]
    timed.at(30)
    assert timed.call("join", 0, first) == ["1", "40"]
    (one,) = timed.lease(1, 20).messages
    assert timed.call("join", 0, first) == ["1", "20"]
    timed.settle(one.ack())
    assert timed.call("join", 0, first) == ["0", ""]
    assert timed.call("join", 0, late) == ["1", "40"]


def test_join_applies_due_events_when_no_other_call_arrives(timed: TimedQueue) -> None:
    timed.put(message("one", attempts=1))
    timed.lease(1, 50)
    timed.at(50)
    # The first lease to run out is not charged: the message is ready again.
    assert timed.call("join", WAIT) == ["1", ""]
    assert (timed.stats()["ready"], timed.stats()["dead"]) == (1, 0)
    timed.call("extend", timed.lease(1, 50).token, 50)  # its handler begins
    timed.at(100)
    assert timed.call("join", WAIT) == ["0", ""]
    assert timed.stats()["dead"] == 1


ENDS: dict[str, Callable[[Queue, Handed], Any]] = {
    "an acknowledgement": lambda queue, one: queue.settle(one.ack()),
    "one among others": lambda queue, one: queue.settle(one.ack(), one.nack()),
    "a result": lambda queue, one: queue.settle(["DONE", one.token, one.id, "r"]),
    "il1_next": lambda queue, one: queue.call("next", "n", 0, 0, 1, LONG, "any", *one.ack()),
    "a rejection": lambda queue, one: queue.settle(one.reject()),
    "what is not retried": lambda queue, one: queue.settle(one.exhaust()),
    "a revocation": lambda queue, one: queue.call("revoke", one.id, "skip"),
    "cancelling": lambda queue, one: (queue.settle(one.release()), queue.call("cancel", one.id)),
    "purging": lambda queue, one: (queue.settle(one.release()), queue.call("purge", "pending")),
}


@pytest.mark.parametrize("options", [{}, {"result": LONG}], ids=["plain", "with a result"])
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_every_way_a_message_ends_wakes_its_waiter(
    queue: Queue, sleeper: Sleepers, end: Callable[[Queue, Handed], Any], options: Any
) -> None:
    (id,) = queue.put(message("one", ["a"], **options))
    (one,) = queue.lease().messages
    assert queue.call("join", WAIT, id)[0] == "1"
    assert queue.call("join", WAIT)[0] == "1"
    asleep = [sleeper(f"settled:{id}"), sleeper("settled:all")]
    end(queue, one)
    assert all(each.wakes() for each in asleep)
    assert queue.connection.exists(f"{queue.key}:w:settled") == 0


def test_a_message_whose_last_lease_expires_wakes_its_waiter(
    timed: TimedQueue,
) -> None:
    (id,) = timed.put(message("one", attempts=1))
    timed.lease(1, 50)
    assert timed.call("join", WAIT, id) == ["1", "50"]
    timed.at(50)
    timed.call("extend", 5, 1)
    # The first lease to run out is not charged.
    assert elements(timed, f"settled:{id}") == 0
    timed.call("extend", timed.lease(1, 50).token, 50)  # its handler begins
    timed.at(100)
    timed.call("extend", 5, 1)
    assert elements(timed, f"settled:{id}") == 1


def test_a_delayed_message_can_be_waited_for_by_id(timed: TimedQueue) -> None:
    (id,) = timed.put(message("late", delay=10))
    timed.call("join", WAIT, id)
    timed.at(10)
    (one,) = timed.lease().messages
    assert one.sequence != id
    timed.settle(one.ack())
    assert elements(timed, f"settled:{id}") == 1


def test_the_end_of_a_message_wakes_all_its_waiters_and_no_others(
    queue: Queue, sleeper: Sleepers
) -> None:
    first, second = queue.put(message("one"), message("two"))
    queue.call("join", WAIT, first)
    queue.call("join", WAIT, second)
    queue.call("join", WAIT)
    asleep = [sleeper(f"settled:{first}") for _ in range(3)]
    (one, _) = queue.lease().messages
    queue.settle(one.ack())
    assert all(each.wakes() for each in asleep)
    assert [elements(queue, f"settled:{id}") for id in (second, "all")] == [0, 0]
    # A late reader finds it, and it does not stay for ever.
    assert sleeper_would_wake(queue, f"settled:{first}")
    assert 0 < queue.connection.pttl(f"{queue.key}:settled:{first}") <= WAIT // 1_000 + 1


def sleeper_would_wake(queue: Queue, part: str) -> bool:
    name = f"{queue.key}:{part}"
    return queue.connection.lmove(name, name, "LEFT", "LEFT") is not None


def test_a_new_join_does_not_use_an_earlier_wake_up(queue: Queue) -> None:
    queue.put(message("one"))
    queue.call("join", WAIT)
    queue.ack_all(queue.lease().messages)
    assert elements(queue, "settled:all") == 1
    queue.put(message("two"))
    queue.call("join", WAIT)
    assert elements(queue, "settled:all") == 0


def test_a_shorter_wait_does_not_drop_a_longer_one(timed: TimedQueue) -> None:
    (id,) = timed.put(message("one"))
    timed.call("join", WAIT, id)
    timed.call("join", 1, id)
    timed.at(100)
    timed.ack_all(timed.lease().messages)
    assert elements(timed, f"settled:{id}") == 1


def test_a_wait_that_is_over_leaves_no_waiter(timed: TimedQueue) -> None:
    ids = timed.put(message("one"), message("two"))
    timed.call("join", 5, ids[0])
    timed.at(5)
    timed.call("join", WAIT, ids[1])
    timed.ack_all(timed.lease().messages)
    assert [elements(timed, f"settled:{id}") for id in ids] == [0, 1]


def test_a_settlement_without_waiters_does_no_extra_work(queue: Queue) -> None:
    def looked() -> int:
        stats: Any = queue.connection.info("commandstats")
        return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in LOOKS)

    queue.put(message("one"), message("two", result=LONG))
    before = looked()
    queue.ack_all(queue.lease().messages)
    assert looked() == before
    # Nor does who has waited long enough, or does not wait at all.
    queue.put(message("one"))
    queue.call("join", 0)
    queue.ack_all(queue.lease().messages)
    assert looked() == before
    assert not [part for part in queue.parts() if "settled" in part]


LOOKS = ("zmscore", "zremrangebyscore")
