"""More than one call may do: a hub and a Redis leave the same to the next calls (clause 21).

The naive model does all at once, so here the two servers are compared with one another only, byte
for byte; what each leaves is in test_large.py and in the tests of the core.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

import interlock
from interlock.testing import ManualClock
from tests.engine.calls import Argument, message
from tests.engine.timed import START, WIRE, timed_library
from tests.hub.servers import needs_hub


class Both:
    """One queue on each of two servers with a given time."""

    def __init__(self, clock: ManualClock, hub: redis.Redis, other: redis.Redis) -> None:
        self.clock, self.hub, self.redis = clock, hub, other
        self.key = f"il:{{{uuid.uuid4().hex}}}"
        self.now = START
        self.tick(0)

    def tick(self, span: int) -> None:
        self.clock.advance(dt.timedelta(microseconds=span))
        self.now += span
        self.redis.set(f"{self.key}:clock", self.now)

    def call(self, name: str, *arguments: Argument) -> list[bytes]:
        told: Any = self.hub.fcall(f"il1_{name}", 1, self.key, *arguments)
        assert told == self.redis.fcall(f"il{WIRE}_{name}", 1, self.key, *arguments)
        assert isinstance(told, list)
        return told

    def put(self, count: int, one: Callable[[int], list[Argument]]) -> None:
        """This number, 900 per call."""
        for start in range(0, count, 900):
            batch = [part for n in range(start, min(start + 900, count)) for part in one(n)]
            self.call("put", "", 0, 0, *batch)

    def lease(self, count: int, duration: int) -> list[bytes]:
        """Token and id of the first."""
        reply = self.call("lease", "", 0, 0, count, duration, "any")
        return [reply[0], reply[4]]

    def ack(self, lease: list[bytes]) -> None:
        assert self.call("settle", "", 0, "ACK", *lease) == [b"ACKED"]


@pytest.fixture
def both(engine_port: int) -> Iterator[Both]:
    needs_hub()
    hub = interlock.Hub(port=0, workers=1)
    clock = hub._clock = ManualClock(START // 1_000_000)
    with hub as running, redis.Redis(port=engine_port) as other:
        timed_library().load(other)
        port = int(running.addresses[0].rpartition(":")[2])
        with redis.Redis(port=port) as connection:
            yield Both(clock, connection, other)


def delays_that_end_together(both: Both) -> None:
    both.put(2_700, lambda _: message("", delay=10))
    both.tick(10)


def leases_that_run_out_together_after_which_messages_are_dead(both: Both) -> None:
    both.put(2_700, lambda _: message("", attempts=1))
    for _ in range(3):
        both.lease(1_024, 20)
    both.tick(20)


def readers_behind_a_writer(both: Both) -> None:
    both.put(1, lambda _: message("", ["a"]))
    both.put(2_700, lambda _: message("", [], ["a"]))
    both.ack(both.lease(1, 500))


def what_stands_behind_a_barrier(both: Both) -> None:
    both.put(1, lambda _: message("", barrier=1))
    both.put(2_700, lambda n: message("", [f"k{n % 7}"][: n % 2]))
    both.ack(both.lease(1, 500))


def messages_of_a_key_that_was_paused(both: Both) -> None:
    both.put(2_700, lambda _: message("", [], ["a"]))
    both.call("pause", "a")
    for _ in range(2):
        assert both.call("lease", "", 0, 0, 1, 500, "any")[3] == b"0"
    both.call("resume", "a")


def backoffs_that_end_while_delays_do(both: Both) -> None:
    both.put(1_800, lambda _: message("", first=30, jitter=0))
    for _ in range(2):
        both.lease(1_024, 20)
    both.put(900, lambda _: message("", delay=50))
    both.tick(20)
    for _ in range(2):
        both.call("lease", "", 0, 0, 1, 5, "keyed")
    both.tick(30)


def runs_that_expire_together(both: Both) -> None:
    both.put(2_100, lambda n: message("", [f"k{n % 3}"], run="1024:a"))
    for _ in range(3):
        assert both.call("lease", "", 0, 0, 1, 20, "any+")[3] == b"700"
    both.tick(20)


def runs_whose_messages_may_not_fit_into_a_call(both: Both) -> None:
    keys = [f"k{n}" for n in range(100)]
    for _ in range(2):
        both.put(30, lambda n: message("", keys if n % 2 else keys[::-1], run="1024:a"))
    assert both.call("lease", "", 0, 0, 9, 20, "any+")[3] == b"40"
    both.put(1_800, lambda _: message("", ["other"], run="1000:a"))
    both.put(3, lambda n: message("", [f"plain {n}"]))
    assert both.call("lease", "", 0, 0, 9, 20, "keyed+")[3] == b"1003"
    both.tick(20)


@pytest.mark.parametrize(
    "prepare",
    [
        delays_that_end_together,
        leases_that_run_out_together_after_which_messages_are_dead,
        readers_behind_a_writer,
        what_stands_behind_a_barrier,
        messages_of_a_key_that_was_paused,
        backoffs_that_end_while_delays_do,
        runs_that_expire_together,
        runs_whose_messages_may_not_fit_into_a_call,
    ],
)
def test_work_left_by_a_bounded_call_is_finished_alike_on_both_servers(
    both: Both, prepare: Callable[[Both], None]
) -> None:
    prepare(both)
    for _ in range(5):
        both.call("stats")
        both.call("lease", "", 0, 0, 1, 900, "any")
        both.tick(1)
        both.call("extend", 5, 6)


def test_unfinished_lanes_are_continued_in_the_same_order(both: Both) -> None:
    # Clause 20: one call readies 1,000 readers; the next begins with the last lane that was left.
    keys = [f"key {n}" for n in range(16)]
    both.call("put", "", 0, 0, *message("writer", keys))
    both.put(len(keys) * 200, lambda n: message("reader", [], [keys[n // 200]]))
    both.ack(both.lease(1, 60_000_000))
    finished: list[str] = []
    while len(finished) < len(keys):
        # Asks for a kind of which there is none, and continues with the lanes.
        both.call("lease", "", 0, 0, 1, 60_000_000, "unkeyed")
        told = {key: both.call("scan", 0, 1_024, "key", key).count(b"ready") for key in keys}
        finished += [key for key in reversed(keys) if told[key] == 200 and key not in finished]
    assert sorted(finished) == sorted(keys)
