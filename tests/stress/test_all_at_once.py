"""Everything at once on one queue: leases that run out, operators, cancelled tasks, loops that end.

What must hold whatever happens: nothing is lost, nothing is handled twice, no two conflicting
leases stand at the same time, and none begins before all that stood before it is settled. That is
looked for twice, by the handlers while they run (who owns a key) and afterwards from stamps.
Runs in rounds for INTERLOCK_STRESS_SECONDS.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import pytest

from interlock import AsyncLease, Empty, Full, KeyedQueue, Lease, LeaseLost, Retry, ShutDown
from tests import seeds

SECONDS = float(os.environ.get("INTERLOCK_STRESS_SECONDS", "5"))
KEYS = [f"key {number}" for number in range(12)]
PRODUCERS = CONSUMERS = 3
LOOPS = TASKS = 2
PUTS = 600
BOUND = 60.0
"""Seconds after which a wake-up counts as lost."""
LEASE = 0.005
"""Seconds; a handler now and then freezes for longer."""
SEEN = ("acked", "cancel", "skip", "revoked", "leases_expired")
"""Events that must each have happened at least once."""


@pytest.fixture(autouse=True)
def _switch_often_and_say_little() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    logging.getLogger("interlock").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("interlock").setLevel(logging.NOTSET)
    sys.setswitchinterval(before)


@dataclass(eq=False)
class Work:
    """A payload; each thread writes what it knows about it here."""

    keys: tuple[str, ...]
    shared: tuple[str, ...]
    delayed: bool
    barrier: bool
    id: int = 0
    begun: list[int] = field(default_factory=list)
    """The times at which its leases were given, ns."""
    settled: int = 0
    """The time at which the settling thread was about to settle it, ns."""
    ends: int = 0
    """The number of settlements reported successful."""


class Round:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.queue: KeyedQueue[Work] = KeyedQueue(
            40,
            maxbytes=4000,
            sizeof=lambda work: 50 + len(work.keys),
            keys=lambda work: work.keys,
            shared=lambda work: work.shared,
            retry=Retry(None, first=0.0005, longest=0.002),
            lease=LEASE,
            warn_depth=0,
            warn_lane_depth=0,
        )
        self.all: list[Work] = []
        self.owners: dict[str, list[int]] = {key: [] for key in KEYS}
        """Tokens of the holders of each exclusive key, about in the order of their starts."""
        self.errors: list[BaseException] = []
        self.closing = threading.Event()
        self.acked: list[Work] = []
        self.counts: dict[str, int] = defaultdict(int)
        """Counts of what the operator did."""

    # The parts that run at once.

    def run(self) -> None:
        producers = [self.thread(self.produce, number) for number in range(PRODUCERS)]
        others = [self.thread(self.consume, number) for number in range(CONSUMERS)]
        others += [self.thread(self.run_loops, number) for number in range(LOOPS)]
        others += [self.thread(self.operate, number) for number in range(1)]
        for thread in producers:
            thread.join(BOUND)
        assert not self.errors, self.errors
        assert not any(thread.is_alive() for thread in producers), self.queue.stats()
        self.closing.set()
        self.queue.resume()
        for key in KEYS:
            self.queue.resume(key)
        self.queue.join(BOUND)
        self.queue.shutdown()
        for thread in others:
            thread.join(BOUND)
        assert not self.errors, self.errors
        assert not any(thread.is_alive() for thread in others), self.queue.stats()

    def thread(self, work: Callable[[random.Random], None], number: int) -> threading.Thread:
        rng = random.Random(f"{self.seed} {work.__name__} {number}")

        def guarded() -> None:
            try:
                work(rng)
            except BaseException as error:
                self.errors.append(error)

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        return thread

    def produce(self, rng: random.Random) -> None:
        left = PUTS
        while left > 0:
            works = [self.some_work(rng) for _ in range(rng.choice([1, 1, 1, 3]))]
            plain = not any(work.barrier or work.delayed for work in works)
            left -= len(works)
            if len(works) > 1 and plain:
                ids = self.queue.put_many(works, timeout=BOUND)
            else:
                ids = [self.put(rng, work) for work in works]
            for work, id in zip(works, ids, strict=True):
                work.id = id
            self.all += works

    def some_work(self, rng: random.Random) -> Work:
        barrier = rng.random() < 0.01
        named = [] if barrier else rng.sample(KEYS, rng.choice([0, 1, 1, 2, 3]))
        cut = rng.randint(0, len(named))
        return Work(tuple(named[:cut]), tuple(named[cut:]), rng.random() < 0.05, barrier)

    def put(self, rng: random.Random, work: Work) -> int:
        delay = rng.choice([0.0005, 0.003]) if work.delayed else 0
        while True:
            with suppress(Full):
                return self.queue.put(
                    work,
                    timeout=rng.choice([0.001, BOUND]),
                    priority=rng.choice([0, 0, 0, 5, -5]),
                    delay=delay,
                    barrier=work.barrier,
                )

    def consume(self, rng: random.Random) -> None:
        while True:
            try:
                leases = self.some_leases(rng)
            except ShutDown:
                return
            except Empty:
                continue
            for lease in leases:
                self.begin(lease)
            for lease in leases:
                # Beyond the deadline, now and then.
                time.sleep(LEASE * 1.5 if rng.random() < 0.01 else 0)
                self.finish(rng, lease)

    def some_leases(self, rng: random.Random) -> list[Lease[Work]]:
        turn = rng.random()
        if turn < 0.1:
            return list(self.queue.get_many(4, timeout=BOUND))
        if turn < 0.3:
            return [self.queue.get(timeout=0.0005)]
        return [self.queue.get()]

    def run_loops(self, rng: random.Random) -> None:
        # One loop after the other, each ended in the middle of what it does.
        while not self.closing.is_set():
            with suppress(TimeoutError):
                asyncio.run(self.consume_for(rng, rng.uniform(0.01, 0.1)))
        asyncio.run(self.consume_for(rng, None))

    async def consume_for(self, rng: random.Random, seconds: float | None) -> None:
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
            for _ in range(TASKS):
                group.create_task(self.consume_async(rng))

    async def consume_async(self, rng: random.Random) -> None:
        while True:
            lease = None
            try:
                if rng.random() < 0.5:
                    lease = await asyncio.wait_for(self.queue.aio.get(), 0.001)
                else:
                    lease = await self.queue.aio.get()
                self.begin(lease)
                await asyncio.sleep(LEASE * 1.5 if rng.random() < 0.01 else 0)
                self.finish(rng, lease)
            except TimeoutError:
                continue
            except ShutDown:
                return
            except asyncio.CancelledError:
                if lease is not None and not lease.lost:
                    with suppress(LeaseLost):
                        await lease.release()
                raise

    def operate(self, rng: random.Random) -> None:
        queue = self.queue
        while not self.closing.is_set():
            time.sleep(0.0002)
            if not self.all:
                continue
            work = rng.choice(self.all[-30:])
            turn = rng.random()
            if turn < 0.3:
                self.count("cancel", work, partial(queue.cancel, work.id))
            elif turn < 0.4:
                self.count("skip", work, partial(queue.revoke, work.id, "skip"))
            elif turn < 0.6:
                self.counts["revoked"] += queue.revoke(work.id)
            elif turn < 0.7:
                queue.retry(work.id)
            elif turn < 0.9:
                key = rng.choice([*KEYS, None])
                queue.pause(key)
                time.sleep(0.0005)
                queue.resume(key)
            else:
                with suppress(KeyError):
                    str(queue.explain(key=rng.choice(KEYS)))

    def count(self, what: str, work: Work, settle: Callable[[], bool]) -> None:
        """Settles from outside. Stamped before, for what stood behind it may begin at once."""
        before = time.perf_counter_ns()
        if settle():
            work.settled = before
            work.ends += 1
            self.counts[what] += 1

    # Work of a handler.

    def begin(self, lease: Lease[Work] | AsyncLease[Work]) -> None:
        work = lease.payload
        for key in work.keys:
            self.owners[key].append(lease.token)
        work.begun.append(time.perf_counter_ns())

    def finish(self, rng: random.Random, lease: Lease[Work] | AsyncLease[Work]) -> None:
        work = lease.payload
        # A few are not in their order: a lease may run out before its handler began.
        owned = all(max(self.owners[key][-20:]) == lease.token for key in work.keys)
        # In this order: who lost a key to somebody else must have lost the lease before.
        assert owned or lease.lost, f"message {work.id} is handled twice at once"
        before = time.perf_counter_ns()
        turn = rng.random()
        with suppress(LeaseLost):
            if turn < 0.05:
                lease.nack()
            elif turn < 0.1:
                lease.release()
            else:
                lease.ack()
                work.settled = before
                work.ends += 1
                # Appended to, for to count up takes two steps.
                self.acked.append(work)

    # Afterwards.

    def check(self) -> None:
        assert len(self.all) >= PRODUCERS * PUTS
        twice = [work.id for work in self.all if work.ends != 1]
        assert not twice, f"not settled once: {twice[:10]}"
        stats = self.queue.stats()
        assert stats.unsettled == 0
        assert stats.acks == len(self.acked)
        # Ids are the places in line of all that was not delayed.
        line = sorted((work for work in self.all if not work.delayed), key=lambda work: work.id)
        # None: what all share and a barrier has alone, for that conflicts with the unkeyed too.
        for key in [*KEYS, None]:
            ended = {True: 0, False: 0}
            for work in line:
                alone = work.barrier or key in work.keys
                if alone or key is None or key in work.shared:
                    before = max(ended.values()) if alone else ended[True]
                    assert all(begun >= before for begun in work.begun), (
                        f"message {work.id} on {key} began before what stood before it was settled"
                    )
                    ended[alone] = max(ended[alone], work.settled)


@pytest.mark.watchdog(SECONDS + 4 * BOUND)
def test_everything_at_once() -> None:
    seed = seeds.seed()
    end = time.monotonic() + SECONDS
    totals: dict[str, int] = defaultdict(int)
    for number in itertools.count():
        round = Round(seed + number)
        round.run()
        round.check()
        for what, count in round.counts.items():
            totals[what] += count
        totals["acked"] += len(round.acked)
        totals["leases_expired"] += round.queue.stats().leases_expired
        # A round that saw no operator act proves little: on a busy machine some more are run.
        if time.monotonic() > end and all(totals[what] for what in SEEN):
            break
    print(f"{number + 1} rounds, {dict(totals)}")
