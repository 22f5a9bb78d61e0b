"""One thread: what a put, a get and an ack cost by themselves."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from random import Random
from typing import Any

from benchmarks import peers
from benchmarks.drive import Clock
from benchmarks.row import Row, Sample, alternating
from interlock import KeyedQueue, Rate, Retry

LANES = 1_000
OURS = 600_000
PEER = 80_000
BATCH = 64
ACCOUNTS = 400
NEVER_REACHED = Rate(1_000_000, burst=1_000_000)


def without_keys(messages: int = OURS) -> Sample:
    """Measure cycles of one message without keys."""
    queue: KeyedQueue[int] = KeyedQueue()
    put, get = queue.put, queue.get
    lost = 0
    clock = Clock()
    for item in range(messages):
        put(item)
        lease = get()
        if lease.payload is not item:
            lost += 1
        lease.ack()
    return Sample.each(clock.seconds(), messages, lost=lost)


def with_keys(count: int) -> Callable[..., Sample]:
    """Return a run of cycles of one message that holds `count` of 1,000 keys."""
    names = [f"account:{number}" for number in range(LANES)]
    sets: list[str | tuple[str, ...]] = [
        names[first]
        if count == 1
        else tuple(names[(first + step * 251) % LANES] for step in range(count))
        for first in range(LANES)
    ]

    def run(messages: int = OURS) -> Sample:
        queue: KeyedQueue[int] = KeyedQueue()
        put, get = queue.put, queue.get
        lost = 0
        clock = Clock()
        for item, keys in zip(range(messages), cycle(sets), strict=False):
            put(item, keys=keys)
            lease = get()
            if lease.payload is not item:
                lost += 1
            lease.ack()
        return Sample.each(clock.seconds(), messages, lost=lost)

    return run


def limited(count: int, most: int | Rate = 4) -> Callable[..., Sample]:
    """Return a run of cycles of one message with a key and one of `count` limit names.

    The limit or rate is never reached; 0 names: the same without one.
    """
    keys = [f"account:{number}" for number in range(LANES)]
    names = [f"bank:{number}" for number in range(count)]

    def run(messages: int = OURS // 2) -> Sample:
        queue: KeyedQueue[int] = KeyedQueue(limits={"bank:*": most} if count else None)
        options: list[dict[str, Any]] = [{"limit": name} for name in names] or [{}]
        put, get = queue.put, queue.get
        lost = 0
        clock = Clock()
        for item, key, given in zip(range(messages), cycle(keys), cycle(options), strict=False):
            put(item, keys=key, **given)
            lease = get()
            if lease.payload is not item:
                lost += 1
            lease.ack()
        return Sample.each(clock.seconds(), messages, lost=lost)

    return run


def grouped(count: int) -> Callable[..., Sample]:
    """Return a run of cycles of one message with a key and one of `count` groups."""
    keys = [f"account:{number}" for number in range(LANES)]
    groups = [f"tenant:{number}" for number in range(count)]

    def run(messages: int = OURS // 2) -> Sample:
        queue: KeyedQueue[int] = KeyedQueue()
        put, get = queue.put, queue.get
        # The queue always has groups.
        put(-1, group=groups[0])
        lost = 0
        clock = Clock()
        expected = -1
        for item, key, group in zip(range(messages), cycle(keys), cycle(groups), strict=False):
            put(item, keys=key, group=group)
            lease = get()
            lost += lease.payload != expected
            expected = item
            lease.ack()
        return Sample.each(clock.seconds(), messages, lost=lost)

    return run


def transfers(stuck: bool) -> Callable[..., Sample]:
    """Return a run of cycles of one message with 2 of 400 keys, in a queue that parks.

    With `stuck` one key is that of a held message: messages with it are put, and park. The figure
    is that of a message that is handled.
    """
    chance = Random(1)
    pairs = [chance.sample(range(ACCOUNTS), 2) for _ in range(LANES)]
    accounts = [[f"account:{number}" for number in pair] for pair in pairs]
    parks = [stuck and 0 in pair for pair in pairs]

    def run(messages: int = OURS // 2) -> Sample:
        held = Retry(attempts=1, then="hold")
        queue: KeyedQueue[int] = KeyedQueue(behind="park", retry=held, warn_depth=0)
        if stuck:
            queue.put(-1, keys="account:0")
            queue.get().nack()
        put, get = queue.put, queue.get
        lost = 0
        clock = Clock()
        for item, keys, is_parked in zip(
            range(messages), cycle(accounts), cycle(parks), strict=False
        ):
            put(item, keys=keys)
            if is_parked:
                continue
            lease = get()
            if lease.payload is not item:
                lost += 1
            lease.ack()
        seconds = clock.seconds()
        stats = queue.stats()
        lost += stats.unsettled - stats.parked - stats.held
        return Sample.each(seconds, stats.acks, lost=lost)

    return run


def in_batches(messages: int = OURS) -> Sample:
    """Measure batches of 64 messages with a key each.

    The keys are all different within a batch, which is looked at by its payloads.
    """
    names = [f"account:{number}" for number in range(LANES)]
    starts = range(0, LANES - BATCH, BATCH)
    batches = [(list(range(at, at + BATCH)), names[at : at + BATCH]) for at in starts]
    queue: KeyedQueue[int] = KeyedQueue()
    put_many, get_many, ack_many = queue.put_many, queue.get_many, queue.ack_many
    lost = 0
    clock = Clock()
    for _, (items, keys) in zip(range(messages // BATCH), cycle(batches), strict=False):
        put_many(items, each_keys=keys)
        batch = get_many(BATCH)
        if batch.payloads != items:
            lost += BATCH
        ack_many(batch)
    return Sample.each(clock.seconds(), messages // BATCH * BATCH, lost=lost)


def _cycle(keys: int, bar: float, prototype: float) -> Row:
    return Row(
        name=f"single/{keys}-key" + ("" if keys == 1 else "s"),
        title=f"put+get+ack, {keys} str key" + ("" if keys == 1 else "s"),
        peer="queue.Queue put+get+task_done",
        bar=bar,
        prototype=prototype,
        pair=alternating(
            with_keys(keys) if keys else without_keys, lambda: peers.queue_cycle(PEER)
        ),
    )


ROWS = (
    _cycle(0, 0.12, 0.089),
    _cycle(1, 0.13, 0.099),
    _cycle(2, 0.16, 0.121),
    _cycle(4, 0.21, 0.158),
    Row(
        name="single/batches",
        title="the same, batches of 64, 1 key",
        peer="queue.Queue",
        bar=0.07,
        prototype=0.043,
        pair=alternating(in_batches, lambda: peers.queue_batches(PEER // BATCH * BATCH, BATCH)),
    ),
    *(
        Row(
            name=f"single/limited-{count}",
            title=f"put+get+ack, 1 str key and one of {count:,} limits",
            peer="the same without a limit",
            bar=1.2,
            pair=alternating(limited(count), limited(0)),
        )
        for count in (10, 10_000)
    ),
    *(
        Row(
            name=f"single/rated-{count}",
            title=f"put+get+ack, 1 str key and one of {count:,} rates",
            peer="the same without a rate",
            bar=1.5,
            pair=alternating(limited(count, NEVER_REACHED), limited(0)),
        )
        for count in (10, 10_000)
    ),
    *(
        Row(
            name=f"single/groups-{count}",
            title=f"put+get+ack, 1 str key, {count:,} group" + ("" if count == 1 else "s"),
            peer="the same with one more key instead",
            bar=1.3,
            pair=alternating(grouped(count), with_keys(2)),
        )
        for count in (1, 10_000)
    ),
    Row(
        name="single/stuck-key",
        title="put+get+ack, 2 of 400 str keys, one of them stuck, behind=park",
        peer="the same with no key stuck",
        bar=1.05,
        pair=alternating(transfers(True), transfers(False)),
    ),
    Row(
        name="single/simple-queue",
        title="put+get+ack, 1 str key",
        peer="queue.SimpleQueue, no keys, no ack",
        bar=4.5,
        prototype=3.35,
        pair=alternating(with_keys(1), lambda: peers.simple_queue_cycle(OURS * 2)),
    ),
)
