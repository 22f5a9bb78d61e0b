"""More than one command, one call or Lua's stack takes: the next calls do the rest."""

from __future__ import annotations

import pytest

from tests.engine.calls import LONG, Argument, Queue, message
from tests.engine.timed import TimedQueue

KEYS = [f"key {n}" for n in range(1_024)]


def test_messages_with_the_maximum_of_keys_run_one_after_another(queue: Queue) -> None:
    for name in ("one", "two"):
        queue.put(*[message(f"{name} {n}", KEYS) for n in range(4)])
    for name in ("one", "two"):
        for n in range(4):
            (got,) = queue.lease().messages
            assert got.payload == f"{name} {n}" and list(got.exclusive) == KEYS
            queue.ack_all([got])
    assert queue.parts() == {"c"}


def test_a_lease_stops_before_its_messages_have_too_many_keys_in_total(queue: Queue) -> None:
    own = [[f"{n} {key}" for key in KEYS] for n in range(6)]
    for n, keys in enumerate(own):
        queue.put(message(str(n), keys))
    assert [queue.payloads(6), queue.payloads(6)] == [["0", "1", "2", "3"], ["4", "5"]]


def test_a_writer_with_many_keys_waits_for_many_lanes(queue: Queue) -> None:
    for n in range(4):
        queue.put(*[message(key, [key]) for key in KEYS[256 * n : 256 * (n + 1)]])
    queue.put(message("all", KEYS))
    queue.put(*[message(f"reads {key}", [], [key]) for key in KEYS])
    first = queue.lease(1_024).messages
    assert [one.payload for one in first] == KEYS
    queue.ack_all(first[:-1])
    assert queue.payloads() == []
    queue.ack_all(first[-1:])
    (writer,) = queue.lease().messages
    assert writer.payload == "all"
    queue.ack_all([writer])
    readers = queue.lease(1_024).messages
    assert [one.payload for one in readers] == [f"reads {key}" for key in KEYS]
    queue.ack_all(readers)
    assert queue.parts() == {"c"}


def test_one_call_readies_at_most_a_thousand_readers(queue: Queue) -> None:
    queue.put(message("writer", ["a"]))
    for _ in range(3):
        queue.put(*[message("reader", [], ["a"]) for _ in range(700)])
    queue.put(message("last", ["a"]))
    writer = queue.lease().messages
    queue.ack_all(writer)
    assert queue.stats()["ready"] == 1_000
    # While some of the readers are still to be readied: behind the writer that waits for them.
    queue.put(message("late", [], ["a"]))
    seen: set[str] = set()
    while seen != {"last"}:
        got = queue.lease(1_024).messages
        seen = {one.payload for one in got}
        assert seen in ({"reader"}, {"last"}), "the writer waits for all readers"
        queue.ack_all(got)
    (late,) = queue.lease().messages
    assert late.payload == "late"
    queue.ack_all([late])
    assert queue.parts() == {"c"}


def test_an_empty_lease_reports_that_more_readers_will_become_ready(queue: Queue) -> None:
    queue.put(message("writer", ["a"]))
    for _ in range(3):
        queue.put(*[message("reader", [], ["a"]) for _ in range(1_000)])
    queue.ack_all(queue.lease().messages)
    # This call readies another thousand, but asks for a kind of which there is none.
    assert queue.lease(1, kind="unkeyed").next == "0"
    assert queue.stats()["ready"] == 2_000


@pytest.mark.share(2)
def test_one_call_takes_back_at_most_a_thousand_expired_leases(
    timed: TimedQueue,
) -> None:
    ids = []
    for n in range(3):
        ids += timed.put(*[message("x", [f"{n} {key}"], first=0) for key in KEYS[:700]])
    tokens = [timed.lease(700, 10).token for _ in range(3)]
    timed.at(10)
    # The third is lost as well, though this call does not come to it.
    late: list[list[Argument]] = [["ACK", tokens[2], id] for id in ids[1_400:]]
    assert set(timed.settle(*late)) == {"LEASELOST"}
    assert timed.stats()["leased"] == 1_100
    assert timed.call("extend", tokens[2], 5) == ["LEASELOST"]
    assert (timed.stats()["leased"], timed.stats()["ready"]) == (100, 2_000)
    assert timed.lease(1, kind="unkeyed").messages == []
    assert (timed.stats()["leased"], timed.stats()["ready"]) == (0, 2_100)
    # Their first lease that ran out is not charged, and each is leased alone.
    got = [one for _ in ids for one in timed.lease(700).messages]
    assert [one.id for one in got] == ids
    assert {one.attempt for one in got} == {1}
    # The second one is charged where the handler began, and taken back a thousand a call as well.
    for one in got:
        timed.call("extend", one.token, LONG)
    timed.at(10 + LONG)
    for leased in (1_100, 100, 0):
        timed.lease(1, kind="unkeyed")
        assert timed.stats()["leased"] == leased
    again = [one for _ in ids for one in timed.lease(700).messages]
    assert [(one.id, one.attempt) for one in again] == [(id, 2) for id in ids]
    for start in range(0, 2_100, 700):
        timed.ack_all(again[start : start + 700])
    assert timed.parts() == {"c", "clock"}


def test_a_lease_of_more_than_a_thousand_messages_is_taken_back_by_two_calls(
    timed: TimedQueue,
) -> None:
    timed.put(*[message("x", [key], first=0) for key in KEYS])
    first = timed.lease(1_024, 10).messages
    # Messages settled in time need not be reclaimed.
    timed.ack_all(first[:20])
    timed.at(10)
    for leased in (4, 0):
        timed.lease(1, kind="unkeyed")
        assert timed.stats()["leased"] == leased
    # Not charged, and each is leased alone.
    again = [one for _ in first[20:] for one in timed.lease(1_024).messages]
    assert [(one.id, one.attempt) for one in again] == [(one.id, 1) for one in first[20:]]
    timed.ack_all(again)
    assert timed.parts() == {"c", "clock"}


def test_one_call_applies_at_most_a_thousand_due_events(timed: TimedQueue) -> None:
    for n in range(2):
        timed.put(*[message("x", [f"{n} {key}"], first=0) for key in KEYS[:700]])
    timed.settle(*[one.nack(10) for one in timed.lease(700).messages])
    timed.lease(700, 10)
    timed.put(*[message("later", ["a"], delay=10) for _ in range(900)])
    timed.at(10)
    # First the lease that ran out, then what backs off, then what is delayed (clause 20).
    for left in ((0, 400, 900), (0, 0, 300), (0, 0, 0)):
        timed.call("extend", 5, 1)
        stats = timed.stats()
        assert (stats["leased"], stats["backing_off"], stats["delayed"]) == left
    assert stats["ready"] == 1_401
    while got := timed.lease(1_024, LONG).messages:
        timed.ack_all(got)
    assert timed.parts() == {"c", "clock"}


def test_one_call_opens_at_most_a_thousand_gates(queue: Queue) -> None:
    queue.put(message("alone", barrier=1))
    for n in range(3):
        queue.put(*[message("behind", [f"{n} {key}"]) for key in KEYS[:700]])
    (barrier,) = queue.lease(1_024).messages
    queue.settle(barrier.ack())
    assert queue.stats()["ready"] == 1_000
    queue.put(message("late"))
    assert queue.stats()["ready"] == 2_001
    seen = 0
    while got := queue.lease(1_024).messages:
        queue.ack_all(got)
        seen += len(got)
    assert seen == 2_101
    assert queue.parts() == {"c"}


def test_one_call_returns_at_most_a_thousand_messages_of_a_resumed_key(queue: Queue) -> None:
    queue.call("pause", "a")
    for _ in range(2):
        queue.put(*[message("reads", [], ["a"]) for _ in range(900)])
    assert (queue.stats()["ready"], queue.stats()["waiting"]) == (0, 1_800)
    while queue.lease(1).next == "0":
        pass
    assert queue.call("resume", "a") == ["1"]
    assert queue.stats()["ready"] == 1_000
    assert queue.lease(1, kind="unkeyed").messages == []
    assert queue.stats()["ready"] == 1_800


def test_one_settlement_readies_at_most_a_thousand_messages(queue: Queue) -> None:
    for n in range(2):
        keys = [f"{n} {key}" for key in KEYS[:700]]
        queue.put(message("all", keys), *[message("one", [key]) for key in keys])
    got = queue.lease(2).messages
    assert [one.payload for one in got] == ["all", "all"]
    queue.ack_all(got)
    assert queue.stats()["ready"] == 1_000
    seen = 0
    while got := queue.lease(1_024).messages:
        queue.ack_all(got)
        seen += len(got)
    assert seen == 1_400
    assert queue.parts() == {"c"}


def test_stale_entries_of_the_ready_list_are_removed(queue: Queue) -> None:
    ids = queue.put(*[message("x") for _ in range(300)])
    for id in ids[1:]:
        assert queue.call("cancel", id) == ["1"]
    entries: int = queue.connection.llen(f"{queue.key}:fu")
    assert entries < 100
    assert [one.id for one in queue.lease().messages] == ids[:1]


def test_one_call_purges_at_most_a_thousand_pending_messages(queue: Queue) -> None:
    for n in range(2):
        queue.put(*[message("x", [f"{n} {key}"]) for key in KEYS[:700]])
    out = queue.lease(10).messages
    assert [queue.call("purge", "pending") for _ in range(3)] == [["1000"], ["390"], ["0"]]
    queue.ack_all(out)
    assert queue.parts() == {"c"}
