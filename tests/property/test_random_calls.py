"""Random calls get from a queue what the naive model says, call by call.

INTERLOCK_OPERATIONS says how many calls, INTERLOCK_SEED repeats a run.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable
from typing import Literal, get_args

import pytest

from interlock import InterlockError, KeyedQueue, Lease, Retry
from interlock.message import Kind
from interlock.testing import ManualClock
from tests import seeds
from tests.property.model import Model, Policy

OPERATIONS = int(os.environ.get("INTERLOCK_OPERATIONS", "40000"))
ROUND = 2000
SHOWN = 30
KEYS = "abcdef"
Then = Literal["retry", "hold", "dead", "skip"]
COUNTED = ["unsettled", "ready", "waiting", "leased", "backing_off", "held", "delayed", "dead"]


def outcome(call: Callable[[], object]) -> object:
    """Makes a call, and returns its value, or the name of the error it raised."""
    try:
        return call()
    except (InterlockError, KeyError) as error:
        return type(error).__name__


class Round:
    """A queue and its model, made alike, and the leases of both."""

    def __init__(self, rng: random.Random, calls: deque[str]) -> None:
        self.rng = rng
        self.calls = calls
        then: Literal["dead", "hold"] = rng.choice(["dead", "hold"])
        policy = Policy(
            maxsize=rng.choice([0, 6, 20]),
            maxdead=rng.choice([2, 50]),
            lease=rng.choice([None, 1.0, 4.0]),
            dedup_window=2.0,
            attempts=rng.choice([None, 1, 3]),
            first=rng.choice([0.0, 0.5]),
            factor=2.0,
            longest=3.0,
            then=then,
        )
        self.clock = ManualClock()
        retry = Retry(
            policy.attempts,
            first=policy.first,
            factor=policy.factor,
            longest=policy.longest,
            jitter=False,
            then=then,
        )
        self.queue: KeyedQueue[str] = KeyedQueue(
            policy.maxsize,
            maxdead=policy.maxdead,
            lease=policy.lease,
            dedup_window=policy.dedup_window,
            retry=retry,
            clock=self.clock,
            warn_depth=0,
            warn_lane_depth=0,
        )
        self.model = Model(policy)
        self.leases: deque[tuple[Lease[str], int]] = deque()
        self.puts = 0
        calls.append(f"new queue: {policy}")
        self.ways: list[tuple[int, Callable[[], None]]] = [
            (30, self.put),
            (30, self.get),
            (36, self.settle),
            (16, self.operate),
            (5, self.requeue),
            (2, self.discard),
            (6, self.pause),
            (12, self.advance),
        ]

    def step(self) -> None:
        weights = [weight for weight, _ in self.ways]
        self.rng.choices([way for _, way in self.ways], weights)[0]()
        self.look()

    def both(self, call: str, real: Callable[[], object], modelled: Callable[[], object]) -> None:
        self.calls.append(call)
        got, expected = outcome(real), outcome(modelled)
        self.calls[-1] += f" -> {got!r}"
        assert got == expected, f"{call}: the queue said {got!r}, the model {expected!r}"

    def put(self) -> None:
        rng = self.rng
        barrier = rng.random() < 0.04
        named = [] if barrier else rng.choices(KEYS, k=rng.choice([0, 1, 1, 2, 3]))
        cut = rng.randint(0, len(named))
        keys, shared = named[:cut], named[cut:]
        priority = rng.choice([0, 0, 0, 1, -1, 100])
        delay = rng.choice([0, 0, 0, 0, 0.5, 2.0])
        dedup = rng.choice([None, None, None, "x", "y", "z"])
        # Without a bound the line would grow, and the model's scans with it.
        if len(self.model.line) >= 40:
            return
        self.puts += 1
        payload = f"payload {self.puts}"
        self.both(
            f"put({payload!r}, {keys=}, {shared=}, {priority=}, {delay=}, {dedup=}, {barrier=})",
            lambda: self.queue.put_nowait(
                payload,
                keys=keys,
                shared=shared,
                priority=priority,
                delay=delay,
                dedup=dedup,
                barrier=barrier,
            ),
            lambda: self.model.put(payload, keys, shared, priority, delay, dedup, barrier),
        )

    def get(self) -> None:
        kind: Kind = self.rng.choice(get_args(Kind))
        leases: list[Lease[str]] = []

        def real() -> object:
            lease = self.queue.get_nowait(kind=kind)
            leases.append(lease)
            return lease.id, lease.payload, lease.attempt

        def modelled() -> object:
            entry = self.model.get(kind)
            return entry.id, entry.payload, entry.attempt

        self.both(f"get({kind=})", real, modelled)
        if leases:
            self.leases.append((leases[0], self.model.grants))

    def settle(self) -> None:
        """Settle a lease that is held, or was."""
        if not self.leases:
            return
        lease, grant = self.rng.choice(self.leases)
        model, seconds = self.model, self.rng.choice([0.0, 0.5, 2.0])
        delay = self.rng.choice([None, seconds])
        call, real, modelled = self.rng.choice(
            [
                ("ack()", lease.ack, lambda: model.ack(grant)),
                ("ack()", lease.ack, lambda: model.ack(grant)),
                (
                    f"nack({delay=})",
                    lambda: lease.nack(delay, "broken"),
                    lambda: model.nack(grant, delay, "broken"),
                ),
                ("release()", lease.release, lambda: model.release(grant)),
                (
                    f"extend({seconds})",
                    lambda: lease.extend(seconds),
                    lambda: model.extend(grant, seconds),
                ),
                ("reject()", lambda: lease.reject("bad"), lambda: model.reject(grant, "bad")),
            ]
        )
        self.both(f"lease {grant} of message {lease.id}: {call}", real, modelled)

    def operate(self) -> None:
        queue, model, id = self.queue, self.model, self.some_id()
        then: Then = self.rng.choice(get_args(Then))
        call, real, modelled = self.rng.choice(
            [
                ("cancel", lambda: queue.cancel(id), lambda: model.cancel(id)),
                (
                    f"revoke {then=}",
                    lambda: queue.revoke(id, then),
                    lambda: model.revoke(id, then),
                ),
                ("retry", lambda: queue.retry(id), lambda: model.retry(id)),
                ("skip", lambda: queue.skip(id), lambda: model.skip(id)),
                ("bury", lambda: queue.bury(id), lambda: model.bury(id)),
            ]
        )
        self.both(f"{call}({id})", real, modelled)

    def some_id(self) -> int:
        """Mostly of an unsettled message, else of any, or of none."""
        unsettled = [entry.id for entry in self.model.unsettled()]
        if unsettled and self.rng.random() < 0.9:
            return self.rng.choice(unsettled)
        return self.rng.randint(1, self.model.number + 2)

    def requeue(self) -> None:
        dead = [entry.id for entry in self.model.dead]
        id = self.rng.choice(dead) if dead and self.rng.random() < 0.9 else self.some_id()
        self.both(f"requeue({id})", lambda: self.queue.requeue(id), lambda: self.model.requeue(id))
        self.both(
            "dead_letters()",
            lambda: [
                (letter.id, letter.payload, letter.attempts, letter.error)
                for letter in self.queue.dead_letters()
            ],
            lambda: [
                (entry.id, entry.payload, entry.attempt, entry.error) for entry in self.model.dead
            ],
        )

    def discard(self) -> None:
        """Drops a dead letter; lists all that is left, page by page."""
        queue, model = self.queue, self.model
        dead = [entry.id for entry in model.dead]
        id = self.rng.choice(dead) if dead and self.rng.random() < 0.8 else self.some_id()
        self.both(f"discard({id})", lambda: queue.discard(id), lambda: model.discard(id))

        def pages() -> list[tuple[int, object, int]]:
            found: list[tuple[int, object, int]] = []
            while page := queue.messages(3, after=found[-1][0] if found else None):
                found += [(one.id, one.payload, one.attempt) for one in page]
            return found

        self.both("messages(3)", pages, model.messages)

    def pause(self) -> None:
        queue, model = self.queue, self.model
        key = self.rng.choice([None, *KEYS])
        # Resumed more often than paused, so that most of the time most keys are open.
        if self.rng.random() < 0.3:
            self.both(f"pause({key!r})", lambda: queue.pause(key), lambda: model.pause(key))
        else:
            self.both(f"resume({key!r})", lambda: queue.resume(key), lambda: model.resume(key))

    def advance(self) -> None:
        # Quarters of a second: exact as floats and in µs.
        seconds = self.rng.choice([0.25, 0.5, 1.0, 5.0])
        self.both(
            f"advance({seconds})",
            lambda: self.clock.advance(seconds),
            lambda: self.model.advance(seconds),
        )

    def look(self) -> None:
        stats = self.queue.stats()
        got = {name: getattr(stats, name) for name in COUNTED} | {"qsize": self.queue.qsize()}
        expected = self.model.counts()
        assert got == expected, f"the queue counts {got}, the model {expected}"
        # Lost and settled leases are kept for a while, to be used wrongly.
        live = {entry.grant for entry in self.model.line if entry.state == "leased"}
        if len(self.leases) > len(live) + 4:
            gone = next(pair for pair in self.leases if pair[1] not in live)
            self.leases.remove(gone)

    def end(self) -> None:
        for lease, _ in self.leases:
            outcome(lease.release)


@pytest.mark.watchdog(60 + OPERATIONS / 1000)
def test_random_calls_get_what_the_model_says() -> None:
    seed = seeds.seed()
    rng = random.Random(seed)
    calls: deque[str] = deque(maxlen=SHOWN)
    for start in range(0, OPERATIONS, ROUND):
        round = Round(rng, calls)
        try:
            for _ in range(min(ROUND, OPERATIONS - start)):
                round.step()
        except AssertionError as error:
            last = "\n  ".join(calls)
            pytest.fail(f"{error}\nINTERLOCK_SEED={seed}, the last calls:\n  {last}")
        finally:
            round.end()
