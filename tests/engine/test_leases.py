"""Leases, attempts and repeats by the server's own clock (clauses 8 to 10)."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
import redis
from redis.exceptions import ResponseError

from tests.engine.calls import LONG, Queue, leased, message
from tests.engine.timed import TimedQueue


def test_a_deadline_is_the_server_s_time_plus_the_lease_duration(queue: Queue) -> None:
    def time() -> int:
        seconds, micros = queue.connection.time()
        return int(seconds) * 1_000_000 + int(micros)

    queue.put(message("one"))
    before = time()
    lease = queue.lease(1, LONG)
    assert before <= int(lease.deadline) - LONG <= time()
    assert before <= int(lease.token) <= time()
    (extended,) = queue.call("extend", lease.token, 2 * LONG)
    assert before <= int(extended) - 2 * LONG <= time()


def test_an_expired_message_is_redelivered_before_its_successors(queue: Queue) -> None:
    queue.put(*[message(str(n), ["a"], first=0) for n in range(3)])
    first = queue.lease(1, 1).messages[0]
    again = first
    while again is first:
        again = next(iter(queue.lease(1).messages), first)
    assert (again.payload, again.attempt) == ("0", 1)
    # It was leased alone: once its holder has said that it begins an attempt is counted.
    queue.call("extend", again.token, 1)
    while again.attempt == 1:
        again = next(iter(queue.lease(1).messages), again)
    assert (again.payload, again.attempt) == ("0", 2)
    assert queue.settle(first.ack(), again.ack()) == ["LEASELOST", "ACKED"]
    assert queue.payloads() == ["1"]


def test_a_message_without_attempts_left_becomes_a_dead_letter(queue: Queue) -> None:
    (id,) = queue.put(message("poison", ["a"], ["b"], attempts=2))
    queue.put(message("next", ["a"]))
    for answer in ("RETRIED", "DEAD"):
        (got,) = queue.lease(1).messages
        assert queue.settle(got.nack(error="it broke")) == [answer]
    letter = queue.call("dead_letters", 10, "")
    assert letter[:2] == [id, "2"]
    failures = [entry.split("\x1f")[:2] for entry in letter[3].split("\x1e")]
    assert failures == [["it broke", "2"], ["it broke", "1"]]
    assert letter[4:] == ["0", "poison", "1", "1", "a", "b"]
    assert queue.payloads() == ["next"]


def test_an_empty_lease_reports_when_the_next_message_falls_due(queue: Queue) -> None:
    queue.put(message("one", ["a"]), message("two", ["a"]))
    assert queue.lease().deadline
    first = int(queue.lease().next)
    assert 0 < first < LONG
    queue.put(message("later", delay=LONG // 2))
    assert 0 <= int(queue.lease().next) <= LONG // 2


def test_tokens_and_ids_rise_even_if_the_counters_are_lost(queue: Queue) -> None:
    (early,) = queue.put(message("one"))
    first = queue.lease().token
    queue.connection.hdel(f"{queue.key}:c", "c", "d")
    (late,) = queue.put(message("two"))
    second = queue.lease().token
    assert int(early) < int(late) and int(first) < int(second)


def test_tokens_and_ids_rise_even_if_the_clock_goes_back(timed: TimedQueue) -> None:
    timed.at(LONG)
    (early,) = timed.put(message("one"))
    first = timed.lease().token
    timed.at(0)
    (late,) = timed.put(message("two"))
    assert late == str(int(early) + 1)
    assert timed.lease().token == str(int(first) + 1)


def test_a_repeated_call_is_answered_as_the_first_time(queue: Queue) -> None:
    put = queue.call("put", "p", 1, 0, *message("one", ["a"]))
    assert queue.call("put", "p", 1, 0, *message("one", ["a"])) == put
    assert queue.stats()["unsettled"] == 1
    lease = queue.call("lease", "w", 1, 0, 5, LONG, "any")
    assert queue.call("lease", "w", 1, 0, 5, LONG, "any") == lease
    (got,) = leased(lease).messages
    for _ in range(2):
        assert queue.call("settle", "w", 2, *got.ack()) == ["ACKED"]
    # The same settlement in a call of another number is another call.
    assert queue.call("settle", "w", 3, *got.ack()) == ["LEASELOST"]


def test_a_call_from_before_the_last_is_refused(queue: Queue) -> None:
    queue.call("put", "p", 7, 0, *message("one"))
    with pytest.raises(ResponseError, match="STALECALL il1_put: call 6 comes after call 7"):
        queue.call("put", "p", 6, 0, *message("two"))
    with pytest.raises(ResponseError, match="STALECALL il1_lease: call 7 was il1_put"):
        queue.call("lease", "p", 7, 0, 1, LONG, "any")
    # Another consumer counts for itself, and a call without a number is not counted.
    queue.call("put", "other", 1, 0, *message("three"))
    queue.call("put", "p", 0, 0, *message("four"))
    assert queue.payloads() == ["one", "three", "four"]


def test_a_repeated_call_whose_reply_was_lost_is_applied_once(queue: Queue) -> None:
    queue.put(*[message(str(n), ["a"]) for n in range(2)])
    arguments: list[Any] = ["il1_lease", 1, queue.key, "w", 1, 0, 1, LONG, "any"]
    port = queue.connection.connection_pool.connection_kwargs["port"]
    with redis.Redis(port=port, single_connection_client=True) as lost:
        assert lost.connection is not None
        lost.connection.send_command("FCALL", *arguments)
        # The connection is closed with the reply unread. Whether the call was done before the next
        # one comes or not at all, it is done once.
    again = leased(queue.call("lease", "w", 1, 0, 1, LONG, "any"))
    assert [one.payload for one in again.messages] == ["0"]
    assert queue.stats()["leased"] == 1
    assert queue.settle(again.messages[0].ack()) == ["ACKED"]


def test_an_empty_queue_stores_only_its_counters(connection: redis.Redis) -> None:
    queue = Queue(connection, uuid.uuid4().hex)
    for n in range(50):
        queue.put(
            message("a", [f"k{n}", "hot"], ["read"], dedup=f"{n}", window=0, priority=n % 3),
            message("b", ["hot"], [f"k{n}"]),
            message("c"),
        )
    while got := queue.lease(40).messages:
        middle = len(got) // 2
        queue.settle(*[one.release() for one in got[:middle]], *[one.ack() for one in got[middle:]])
    assert queue.parts() == {"c"}


def test_the_successors_of_acknowledged_messages_become_ready(queue: Queue) -> None:
    queue.put(message("one", ["a"]), message("two", ["b", "c"]), message("three", ["d"]))
    first = queue.lease()
    # While these are out: now some of their lanes have more than one node, and some have not.
    queue.put(message("behind one", ["a"]), message("behind two", ["c"]))
    queue.ack_all(first.messages)
    assert queue.payloads() == ["behind one", "behind two"]
    assert queue.stats()["lanes"] == 2


DAY = 86_400_000_000
MINUTE = 60_000_000


def test_a_clock_that_is_briefly_ahead_drops_no_dead_letter(timed: TimedQueue) -> None:
    timed.put(message("one"))
    timed.settle(timed.lease(1, LONG).messages[0].reject())
    times = [31 * DAY, 31 * DAY + 2_000_000, 2_000_000]
    # Behind it the clock is right, and then as wrong as before.
    times += [20 * MINUTE, 31 * DAY + 20 * MINUTE, 31 * DAY + 30 * MINUTE - 1]
    # It is due, and the clock was right when it came to be.
    times += [30 * DAY, 30 * DAY + 10 * MINUTE - 1]
    for time in times:
        timed.at(time)
        timed.put(message("next"))
        assert timed.stats()["dead"] == 1
    timed.at(30 * DAY + 10 * MINUTE)
    timed.put(message("next"))
    assert (timed.stats()["dead"], timed.stats()["dead_expired"]) == (0, 1)


def test_a_clock_jump_while_one_dead_letter_expires_drops_only_that_one(timed: TimedQueue) -> None:
    for time in (0, 15 * DAY):
        timed.at(time)
        timed.put(message("one"))
        timed.settle(timed.lease(1, LONG).messages[0].reject())
    for time, left in ((30 * DAY, 2), (60 * DAY, 1), (30 * DAY + MINUTE, 1), (60 * DAY, 1)):
        timed.at(time)
        timed.put(message("next"))
        timed.lease(1, 1)
        assert timed.stats()["dead"] == left
    timed.at(60 * DAY + 10 * MINUTE)
    timed.put(message("next"))
    assert timed.stats()["dead"] == 0
