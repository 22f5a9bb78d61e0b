"""Threads that hand messages to each other."""

from __future__ import annotations

import threading
from collections.abc import Callable

from benchmarks import peers
from benchmarks.drive import Clock, faults, interleaved, on_one_core, together
from benchmarks.row import Row, Sample, alternating
from interlock import KeyedQueue

LANES = 1_000
KEYS = [f"account:{number}" for number in range(LANES)]
OURS = 200_000
PEER = 60_000
ROUNDS = 20_000


def producers_and_consumers(capacity: int) -> Sample:
    """Measure two producers and two consumers, each key put by one producer only."""
    queue: KeyedQueue[int] = KeyedQueue(capacity)
    log: list[int] = []

    def producer(mine: range) -> Callable[[], None]:
        def loop() -> None:
            put = queue.put
            for number in mine:
                put(number, keys=KEYS[number % LANES])

        return loop

    def consume() -> None:
        get, note = queue.get, log.append
        for _ in range(OURS // 2):
            lease = get()
            # While the key is held: a later message of it cannot be noted first.
            note(lease.payload)
            lease.ack()

    seconds = together([*map(producer, interleaved(OURS, 2)), consume, consume])
    lost, misordered = faults(log, OURS, lambda number: number % LANES)
    return Sample.each(seconds, OURS, lost=lost, misordered=misordered)


def hand_off() -> Sample:
    """Measure a message to another thread and back, two hand-offs a round, all with one key."""
    there: KeyedQueue[int] = KeyedQueue()
    back: KeyedQueue[int] = KeyedQueue()

    def answer() -> None:
        for _ in range(ROUNDS):
            lease = there.get()
            back.put(lease.payload, keys="room")
            lease.ack()

    other = threading.Thread(target=answer, daemon=True)
    other.start()
    lost = 0
    clock = Clock()
    for item in range(ROUNDS):
        there.put(item, keys="room")
        lease = back.get()
        if lease.payload is not item:
            lost += 1
        lease.ack()
    seconds = clock.seconds()
    other.join()
    return Sample.each(seconds, ROUNDS * 2, lost=lost)


def _two_and_two(name: str, title: str, capacity: int, bar: float, prototype: float) -> Row:
    return Row(
        name=f"threads/{name}",
        title=f"2 producers + 2 consumers, {title}",
        peer="queue.Queue",
        bar=bar,
        prototype=prototype,
        pair=alternating(
            lambda: producers_and_consumers(capacity),
            lambda: peers.queue_threads(PEER, capacity, LANES),
        ),
    )


ROWS = (
    _two_and_two("unbounded", "unbounded", 0, 0.22, 0.16),
    _two_and_two("capacity-64", "capacity 64", 64, 0.30, 0.22),
    Row(
        name="threads/hand-off",
        title="hand-off between two threads, pinned to one core",
        peer="queue.Queue",
        bar=0.75,
        prototype=0.74,
        pair=alternating(on_one_core(hand_off), on_one_core(lambda: peers.queue_hand_off(ROUNDS))),
    ),
)
