"""Keyed queues of the hub beside streams and lists of Redis, which know no keys.

The cost of one message is: it is put, leased and settled. All of that goes in one write a batch, on
both sides, and the next one follows when it is answered.
"""

from __future__ import annotations

from functools import partial

from benchmarks import load
from benchmarks.row import Row, Sample, also, alternating
from benchmarks.servers import Kind, Sync, kept

TABLE = "Hub: keyed queues"
DURABLE = "Hub: journal"

WAIT = 100_000
"""µs for which a lease waits where messages are few."""

DECLARED: dict[Sync, float] = {"no": 0, "everysec": 1, "always": 2}
"""The durability that a queue of the hub is declared with, as a number."""

Options = dict[str, float]


def closed(kind: Kind, side: str, options: Options, sync: Sync = "no") -> Sample:
    """Measure a run as fast as the server lets it."""
    return load.throughput(load.run(f"queue-{side}", kept(kind, sync=sync), options))


def handled(kind: Kind, side: str, options: Options) -> Sample:
    """Measure a run at a fixed rate: from when a message was due until a consumer has it."""
    return load.latency(load.run(f"handled-{side}", kept(kind), options))


def _beside(
    peer: str,
    batch: int,
    bars: tuple[float, float],
    prototypes: tuple[float, float],
) -> tuple[Row, Row]:
    """Return two rows of one load: time, and processor time of the server."""
    options: Options = {"batch": batch}
    row = Row(
        name=f"queue/{peer}-{batch}",
        title=f"put, lease, ack; 2 keys of 100,000; 8 connections, batch {batch}",
        table=TABLE,
        peer=f"Redis {peer}",
        judged="times",
        bar=bars[0],
        prototype=prototypes[0],
        unseen=False,
        pair=alternating(
            partial(closed, "hub", "interlock", options), partial(closed, "redis", peer, options)
        ),
    )
    return row, also(row, "cpu", "– server's CPU", "cpu_ns", bars[1], prototypes[1])


_HOT = Row(
    name="queue/hot-200",
    title="200 hot keys, 2 a message; 8 connections, batch 100, leases wait: server's CPU",
    table=TABLE,
    peer="Redis streams",
    judged="times",
    bar=2,
    figure="cpu_ns",
    unseen=False,
    pair=alternating(
        partial(closed, "hub", "interlock", {"batch": 100, "keys": 200, "wait": WAIT}),
        partial(closed, "redis", "streams", {"batch": 100}),
    ),
)

_ONE = Row(
    name="queue/hot-1",
    title="one hot key, 8 consumers, one message a lease",
    table=TABLE,
    peer="a Redis list, 1 consumer",
    judged="times",
    bar=0.8,
    unseen=False,
    pair=alternating(
        partial(closed, "hub", "interlock", {"keys": 1, "each": 1, "wait": WAIT}),
        partial(closed, "redis", "lists", {"clients": 1}),
    ),
)

_AT_RATE: Options = {"rate": 1_000, "wait": WAIT, "seconds": 2}
_HANDLED = Row(
    name="queue/handled",
    title="put to handled at 1k/s, 8 consumers wait: p50",
    table=TABLE,
    peer="Redis BLMOVE",
    bar=1.1,
    unit="µs",
    unseen=False,
    pair=alternating(
        partial(handled, "hub", "interlock", _AT_RATE), partial(handled, "redis", "lists", _AT_RATE)
    ),
)


def _durable(sync: Sync, connections: int, batch: int, bar: float, prototype: float) -> Row:
    """Return a row whose sides both sync alike."""
    options: Options = {"clients": connections, "batch": batch, "each": 1, "seconds": 2}
    return Row(
        name=f"journal/{sync}-{connections}x{batch}",
        title=f"{sync}: put, lease, ack; 1 key; {connections} connections, batch {batch}",
        table=DURABLE,
        peer="Redis streams",
        judged="times",
        bar=bar,
        prototype=prototype,
        unseen=False,
        pair=alternating(
            partial(closed, "hub", "interlock", options | {"durable": DECLARED[sync]}, sync),
            partial(closed, "redis", "streams", options, sync),
        ),
    )


ROWS = (
    *_beside("streams", 1, (1.8, 1.9), (2.1, 2.6)),
    *_beside("streams", 16, (5.5, 5.7), (7.7, 9.0)),
    *_beside("streams", 100, (7, 7.2), (12, 12.6)),
    *_beside("lists", 1, (1.2, 1.2), (1.5, 1.6)),
    *_beside("lists", 16, (2.2, 2.3), (3.5, 4.0)),
    *_beside("lists", 100, (3.5, 3.6), (5.0, 5.2)),
    _HOT,
    _ONE,
    _HANDLED,
    also(_HANDLED, "p99", "– p99", "p99_us", 1.2, None),
    _durable("everysec", 8, 1, 2.3, 3.2),
    _durable("everysec", 50, 1, 2.3, 3.3),
    _durable("everysec", 8, 16, 5, 7.5),
    _durable("everysec", 50, 16, 5, 7.7),
    _durable("everysec", 8, 100, 6, 8.8),
    _durable("always", 8, 1, 1.1, 1.44),
    _durable("always", 50, 1, 1.9, 2.6),
    _durable("always", 8, 16, 3, 4.4),
    _durable("always", 50, 16, 4.5, 6.7),
    _durable("always", 8, 100, 5, 9.9),
)
