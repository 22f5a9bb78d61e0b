"""A worker process beside those of other task queues: 100,000 tasks that do nothing.

Ours has a key for each task, and keeps their order; of the peers none does.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from benchmarks.row import Pair, Row, also, alternating
from benchmarks.workers.killed import killed
from benchmarks.workers.race import OURS, RACERS, Racer, race
from benchmarks.workers.rated import JOBS, RATE, WORKERS, rated

TABLE = "Workers"
SEEING = "Seeing"
"""Text about the cost of being watched."""
RATES = "Rates"

BARS = {"huey": 55.0, "bullmq": 9.0, "streams": 1.0, "jetstream": 1.0}
"""Times that ours takes less; a bare loop over messages is not a task queue."""

OTHERS = 10.0
"""The bar beside all other peers."""

ENQUEUE = {"huey": 0.85}
"""Of one task, where the peer does not do what ours does with it."""

PEERS = {racer.name: racer for racer in RACERS}

SERVERS = {"redis": "Redis", "hub": "the hub", "nats": "NATS", "postgresql": "PostgreSQL"}


def _row(name: str, what: str, ours: Racer, peer: Racer, bar: float) -> Row:
    beside = f"{peer.name} on {SERVERS[peer.broker]}" if ours.broker != peer.broker else peer.name
    return Row(
        name=f"worker/{name}",
        title=f"no-op tasks, one worker process, {what}",
        table=TABLE,
        peer=beside,
        judged="times",
        bar=bar,
        pairs=peer.pairs,
        unseen=False,
        longest=1_200,
        pair=alternating(partial(race, ours), partial(race, peer)),
    )


def _beside(peer: Racer) -> tuple[Row, Row]:
    row = _row(peer.name, "defaults", OURS, peer, BARS.get(peer.name, OTHERS))
    return row, also(
        row, "enqueue", "– to enqueue one", "enqueue", ENQUEUE.get(peer.name, 1.0), None
    )


def _asynchronous(peer: Racer) -> Row:
    ours = replace(OURS, asynchronous=True)
    return _row(f"async-{peer.name}", "async tasks in the asyncio pool", ours, peer, 5)


_ONE_AT_A_TIME = _row(
    "one-at-a-time",
    "concurrency 1 on both sides",
    replace(OURS, handlers=1, tasks=20_000),
    replace(PEERS["bullmq"], handlers=1, tasks=20_000),
    20,
)

_HUB = _row("hub", "ours on the hub", replace(OURS, broker="hub"), PEERS["bullmq"], 10)

_CONSUME = replace(
    _row("consume", "", Racer("consume", ours=True), PEERS["streams"], 0.6),
    title="`consume()` on Redis without tasks, one message: CPU of the client",
    peer="redis-py streams, 16 a read",
    judged="ratio",
    figure="cpu_ns",
)


def _busy(name: str, where: str, asynchronous: bool) -> Row:
    ours = replace(OURS, busy=200, tasks=10_000, asynchronous=asynchronous)
    return replace(
        _row(name, "", ours, replace(PEERS["streams"], busy=200, tasks=10_000), 1.0),
        title=f"handlers of 200 µs of CPU {where}: CPU of the worker beyond them",
        peer="redis-py streams, 16 a read",
        judged="ratio",
        figure="beyond_ns",
    )


def _watched(name: str, how: str, beside: str, bar: float) -> Row:
    """Return the row of a worker that is watched in some way, beside itself when it is not."""
    return replace(
        _row(name, "", replace(OURS, name=name), OURS, bar),
        title=f"no-op tasks on Redis with {how}",
        table=SEEING,
        peer=f"the same without {beside}",
        judged="ratio",
        pairs=5,
    )


_TRACED = _watched("traced", "traces, of which 1 % are sampled", "traces", 1.05)
_MEASURED = _watched("measured", "`--metrics`", "metrics", 1.03)


def _rated(name: str, burst: int) -> tuple[Row, Row, Row]:
    """Return the rows of jobs with a rate: their CPU, and how many began within some time."""
    row = Row(
        name=f"rate/{name}",
        title=f"{JOBS:,} jobs at {RATE}/s, burst {burst}, {WORKERS} workers: CPU of all processes",
        table=RATES,
        peer="bullmq",
        judged="times",
        bar=1.0,
        pairs=3,
        unseen=False,
        longest=600,
        pair=alternating(partial(rated, True, burst), partial(rated, False)),
    )
    most = also(row, "most", "– most that began in any second", "most", 1.0, None)
    tenth = also(row, "tenth", "– most that began in any tenth of a second", "tenth", 1.0, None)
    return row, replace(most, unit="jobs"), replace(tenth, unit="jobs")


_KILLED = Row(
    name="worker/killed",
    title="a worker is killed: from the end of its lease until another has its message",
    table=TABLE,
    peer="",
    bar=100,
    unit="ms",
    unseen=False,
    pair=lambda _: Pair(killed()),
)

ROWS = (
    *(row for racer in RACERS for row in _beside(racer)),
    _ONE_AT_A_TIME,
    _HUB,
    *(_asynchronous(PEERS[name]) for name in ("arq", "saq", "taskiq")),
    _CONSUME,
    _busy("busy", "on threads", asynchronous=False),
    _busy("busy-async", "in the asyncio pool", asynchronous=True),
    _TRACED,
    also(_TRACED, "enqueue", "– to enqueue one", "enqueue", 1.25, None),
    _MEASURED,
    also(_MEASURED, "cpu", "– CPU of the worker", "cpu_ns", 1.03, None),
    _KILLED,
    *_rated("bullmq", 1),
    *_rated("bullmq-burst", 20),
)
