"""Threads and an event loop on one queue: no overlap, no overtaking, nothing lost, nothing twice.

Overlap and order are looked for twice: by the handlers while they run, and afterwards from stamps.
Runs in rounds for INTERLOCK_STRESS_SECONDS, so that queues also end often.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from interlock import KeyedQueue, Lease, Retry, ShutDown
from interlock.message import AsyncLease
from tests import seeds

SECONDS = float(os.environ.get("INTERLOCK_STRESS_SECONDS", "5"))
PRODUCERS = CONSUMERS = TASKS = 4
KEYS = [f"key {number}" for number in range(20)]
PUTS = 1000
BOUND = 60.0
"""Seconds after which a wake-up counts as lost."""


@dataclass(frozen=True)
class Payload:
    keys: tuple[str, ...]
    shared: tuple[str, ...]
    failures: int


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class Table:
    """The messages handled now, by key; guarded by nothing, as handlers rely on the queue alone."""

    def __init__(self) -> None:
        self.writers: dict[str, list[int]] = {key: [] for key in KEYS}
        self.readers: dict[str, list[int]] = {key: [] for key in KEYS}

    def enter(self, id: int, payload: Payload) -> None:
        for key in payload.keys:
            self.writers[key].append(id)
        for key in payload.shared:
            self.readers[key].append(id)
        self.check(id, payload)

    def check(self, id: int, payload: Payload) -> None:
        for key in payload.keys:
            assert self.writers[key] == [id] and not self.readers[key], f"{id} on {key}"
        for key in payload.shared:
            assert not self.writers[key] and id in self.readers[key], f"{id} on {key}"

    def leave(self, id: int, payload: Payload) -> None:
        self.check(id, payload)
        for key in payload.keys:
            self.writers[key].remove(id)
        for key in payload.shared:
            self.readers[key].remove(id)


class Round:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.queue: KeyedQueue[Payload] = KeyedQueue(200, retry=Retry(None, first=0), warn_depth=0)
        self.table = Table()
        self.put: list[tuple[int, Payload]] = []
        self.cancelled: list[int] = []
        self.acked: list[int] = []
        self.stamps: list[tuple[int, int, int]] = []
        """Id, start and end of every attempt."""
        self.errors: list[BaseException] = []

    def run(self) -> None:
        producers = [self.thread(self.produce, number) for number in range(PRODUCERS)]
        consumers = [self.thread(self.consume, number) for number in range(CONSUMERS)]
        consumers.append(self.thread(self.run_loop, 0))
        for thread in producers:
            thread.join(BOUND)
        assert not self.errors, self.errors
        assert not any(thread.is_alive() for thread in producers)
        self.queue.join(BOUND)
        self.queue.shutdown()
        for thread in consumers:
            thread.join(BOUND)
        assert not self.errors, self.errors
        assert not any(thread.is_alive() for thread in consumers)

    def thread(self, work: Callable[[int], None], number: int) -> threading.Thread:
        def guarded() -> None:
            try:
                work(number)
            except BaseException as error:
                self.errors.append(error)

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        return thread

    def produce(self, number: int) -> None:
        rng = random.Random(self.seed * PRODUCERS + number)
        mine: list[int] = []
        for _ in range(PUTS):
            named = rng.sample(KEYS, rng.randint(0, 3))
            cut = rng.randint(0, len(named))
            failures = rng.choice([0] * 9 + [1, 2])
            payload = Payload(tuple(named[:cut]), tuple(named[cut:]), failures)
            id = self.queue.put(payload, timeout=BOUND, keys=payload.keys, shared=payload.shared)
            self.put.append((id, payload))
            mine.append(id)
            if rng.random() < 0.05:
                id = rng.choice(mine[-50:])
                if self.queue.cancel(id):
                    self.cancelled.append(id)

    def consume(self, _number: int) -> None:
        while True:
            try:
                lease = self.queue.get()
            except ShutDown:
                return
            start = self.begin(lease)
            # Lets another thread run in the middle of the handler.
            time.sleep(0)
            if self.finish(lease, start):
                lease.ack()
            else:
                lease.nack(0)

    def run_loop(self, _number: int) -> None:
        asyncio.run(self.consume_in_tasks())

    async def consume_in_tasks(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(TASKS):
                group.create_task(self.consume_async())

    async def consume_async(self) -> None:
        while True:
            try:
                lease = await self.queue.aio.get()
            except ShutDown:
                return
            start = self.begin(lease)
            # Lets another task run in the middle of the handler.
            await asyncio.sleep(0)
            if self.finish(lease, start):
                await lease.ack()
            else:
                await lease.nack(0)

    def begin(self, lease: Lease[Payload] | AsyncLease[Payload]) -> int:
        start = time.perf_counter_ns()
        self.table.enter(lease.id, lease.payload)
        return start

    def finish(self, lease: Lease[Payload] | AsyncLease[Payload], start: int) -> bool:
        """Note the attempt before it is settled, and return whether it handled the message."""
        self.table.leave(lease.id, lease.payload)
        handled = lease.attempt > lease.payload.failures
        if handled:
            self.acked.append(lease.id)
        self.stamps.append((lease.id, start, time.perf_counter_ns()))
        return handled

    def check(self) -> None:
        ids = sorted(id for id, _ in self.put)
        assert len(ids) == PRODUCERS * PUTS
        assert sorted(self.acked + self.cancelled) == ids, "each handled once, or cancelled"
        self.check_stamps()

    def check_stamps(self) -> None:
        # Each key's messages in the order of their puts, which is that of their ids.
        lanes: dict[str, list[tuple[int, bool]]] = defaultdict(list)
        for id, payload in sorted(self.put, key=lambda put: put[0]):
            for key in payload.keys:
                lanes[key].append((id, True))
            for key in payload.shared:
                lanes[key].append((id, False))
        attempts: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for id, start, end in self.stamps:
            attempts[id].append((start, end))
        for key, lane in lanes.items():
            # The latest end of what came before: of all, and of writers alone.
            all_ended = writers_ended = 0
            for id, writes in lane:
                if id not in attempts:
                    continue
                first = min(start for start, _ in attempts[id])
                last = max(end for _, end in attempts[id])
                before = all_ended if writes else writers_ended
                assert first >= before, f"{id} on {key} began before an earlier one had ended"
                all_ended = max(all_ended, last)
                if writes:
                    writers_ended = max(writers_ended, last)


@pytest.mark.watchdog(SECONDS + 4 * BOUND)
def test_threads_and_a_loop_on_one_queue() -> None:
    seed = seeds.seed()
    end = time.monotonic() + SECONDS
    rounds = 0
    while rounds == 0 or time.monotonic() < end:
        round = Round(seed + rounds)
        round.run()
        round.check()
        rounds += 1
    print(f"{rounds} rounds of {PRODUCERS * PUTS} messages")
