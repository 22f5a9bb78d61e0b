"""The hub beside Redis: what topics cost, in time, in processor, in memory.

Every figure is a cost. Where a bar is a floor the ratio is Redis ÷ hub: of the time of a message it
is how many times the throughput, of its processor time how many times the work of one core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from benchmarks import load
from benchmarks.row import Row, Sample, also, alternating
from benchmarks.servers import Kind, kept, started

TABLE = "Hub: topics"


def closed(kind: Kind, options: dict[str, float]) -> Sample:
    """Measure a run as fast as the server lets it."""
    return load.throughput(load.run("closed", kept(kind), options))


def at_rate(kind: Kind, options: dict[str, float]) -> Sample:
    """Measure a run at a fixed rate, from a load that never sleeps."""
    return load.latency(load.run("rate", kept(kind), options))


def fresh(kind: Kind, mode: str, judge: Callable[[load.Figures], Sample]) -> Sample:
    """Measure a run on a server that has served nothing yet, for its memory."""
    with started(kind) as server:
        return judge(load.run(mode, server, {}))


def unpinned(mode: str, workers: int, options: dict[str, float]) -> Sample:
    """Measure a hub on all cores. The load sleeps where it can, for it has no core of its own."""
    figures = load.run(mode, kept("hub", workers, None), options | {"spin": 0}, None)
    return load.throughput(figures) if mode == "closed" else load.latency(figures)


def _throughput(
    name: str,
    title: str,
    bars: tuple[float, float],
    prototypes: tuple[float, float],
    **options: float,
) -> tuple[Row, Row]:
    """Return two rows of one load: time, and processor time of the server."""
    row = Row(
        name=f"hub/{name}",
        title=title,
        table=TABLE,
        peer="Redis",
        judged="times",
        bar=bars[0],
        prototype=prototypes[0],
        unseen=False,
        pair=alternating(partial(closed, "hub", options), partial(closed, "redis", options)),
    )
    return row, also(row, "cpu", "– server's CPU", "cpu_ns", bars[1], prototypes[1])


def _latency(
    name: str, title: str, p50: tuple[float, float], p99: tuple[float, float] | None, rate: float,
    subscribers: int,
) -> Iterator[Row]:  # fmt: skip
    """Yield the row of the median, and that of the 99th percentile where it is judged.

    Each is given by its bar and its prototype.
    """
    options: dict[str, float] = {"rate": rate, "subscribers": subscribers}
    row = Row(
        name=f"hub/{name}",
        title=f"latency at {title}: p50",
        table=TABLE,
        peer="Redis",
        bar=p50[0],
        prototype=p50[1],
        unit="µs",
        unseen=False,
        pair=alternating(partial(at_rate, "hub", options), partial(at_rate, "redis", options)),
    )
    yield row
    if p99 is not None:
        yield also(row, "p99", "– p99", "p99_us", *p99)


def _workers(
    name: str, title: str, figure: str, bar: float, prototype: float, mode: str, **options: float
) -> Row:
    return Row(
        name=f"hub/workers-{name}",
        title=f"2 workers: {title}",
        table=TABLE,
        peer="1 worker",
        bar=bar,
        prototype=prototype,
        unit="ns" if mode == "closed" else "µs",
        figure=figure,
        pairs=3,
        unseen=False,
        pair=alternating(partial(unpinned, mode, 2, options), partial(unpinned, mode, 1, options)),
    )


def _pipelined(subscribers: int, bars: tuple[float, float], prototypes: tuple[float, float]
) -> tuple[Row, Row]:  # fmt: skip
    title = f"fan-out {subscribers}, 4 connections, pipeline 64"
    options = {"publishers": 4, "pipeline": 64, "subscribers": subscribers}
    return _throughput(f"fan-out-{subscribers}", title, bars, prototypes, **options)


def _single(subscribers: int, bars: tuple[float, float], prototypes: tuple[float, float]
) -> tuple[Row, Row]:  # fmt: skip
    title = f"fan-out {subscribers}, 1 connection, pipeline 16"
    options = {"pipeline": 16, "subscribers": subscribers}
    return _throughput(f"single-{subscribers}", title, bars, prototypes, **options)


_IDLE = Row(
    name="hub/idle",
    title="10,000 idle connections: memory of each",
    table=TABLE,
    peer="Redis",
    judged="value",
    bar=1024,
    prototype=419,
    unit="B",
    pairs=2,
    unseen=False,
    pair=alternating(
        partial(fresh, "hub", "idle", load.idle), partial(fresh, "redis", "idle", load.idle)
    ),
)

ROWS = (
    *_throughput(
        "publish", "publish, 50 connections, no pipeline", (1.05, 1.1), (1.15, 1.22), publishers=50
    ),
    *_throughput(
        "publish-16", "publish, 50 connections, pipeline 16", (1.7, 2.0), (1.89, 2.32),
        publishers=50, pipeline=16,
    ),
    *_pipelined(1, (2.5, 2.7), (3.2, 4.3)),
    *_pipelined(10, (3.6, 3.6), (3.4, 5.1)),
    *_pipelined(100, (3.7, 4), (5.1, 8.8)),
    *_single(1, (1.15, 1.1), (1.27, 1.15)),
    *_single(10, (1.5, 1.5), (1.64, 1.64)),
    *_single(100, (3.5, 3.5), (3.9, 3.9)),
    *_throughput(
        "patterns", "1,000 patterns, a new topic each, pipeline 64", (10, 15), (15, 21),
        patterns=1000, pipeline=64,
    ),
    *_throughput(
        "patterns-ends", "– with the literal bytes at their end", (10, 15), (15, 21),
        patterns=1000, pipeline=64, ends=1,
    ),
    _IDLE,
    also(_IDLE, "topic", "– with a topic each", "subscribed", 2560, 1049),
    *_latency("latency-1", "10k/s to 1 subscriber", (1.1, 0.97), None, 10_000, 1),
    *_latency("latency-100", "1k/s to 100 subscribers", (1.1, 0.97), (1.1, 0.85), 1_000, 100),
    *(
        _workers(
            f"fan-out-{count}", f"CPU of a delivery, fan-out {count}", "cpu_ns", 1.8, 1.8, "closed",
            publishers=4, pipeline=64, subscribers=count,
        )
        for count in (1, 10, 100)
    ),
    _workers(
        "latency", "latency at 10k/s to 1 subscriber, p50", "value", 1.6, 1.5, "rate",
        rate=10_000, subscribers=1,
    ),
    Row(
        name="hub/paused",
        title="a paused subscriber is owed 8 MB, 1 topic of 64: growth of resident memory",
        table=TABLE,
        peer="Redis",
        bar=1.0,
        prototype=0.92,
        unit="MB",
        pairs=1,
        unseen=False,
        pair=alternating(
            partial(fresh, "hub", "paused", load.paused),
            partial(fresh, "redis", "paused", load.paused),
        ),
    ),
)  # fmt: skip
