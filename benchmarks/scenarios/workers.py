"""One worker process of ours beside one of each peer: tasks that do nothing.

Every bar is to be met against each of them, and so against the best.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from benchmarks.row import Pair, Row, Sample, also, alternating
from benchmarks.workers.killed import killed
from benchmarks.workers.race import OURS, RACERS, Racer, race

TABLE = "Workers"


def both() -> Sample:
    """Ours: the value is with one message a lease, `leased_16` with up to 16."""
    one, sixteen = (race(racer) for racer in OURS)
    details = one.details | {"leased_16": sixteen.value}
    return replace(one, lost=one.lost + sixteen.lost, details=details)


def alone(racer: Racer) -> Sample:
    """A peer has one figure, whatever ours is beside."""
    sample = race(racer)
    return replace(sample, details=sample.details | {"leased_16": sample.value})


def _beside(racer: Racer) -> tuple[Row, ...]:
    row = Row(
        name=f"worker/{racer.name}",
        title=f"{racer.tasks:,} no-op tasks, one worker process, one message a lease",
        table=TABLE,
        peer=racer.name,
        judged="times",
        bar=2,
        prototype=2.1,
        pairs=racer.pairs,
        unseen=False,
        longest=600,
        pair=alternating(both, partial(alone, racer)),
    )
    sixteen = also(row, "16", "– up to 16 messages a lease", "leased_16", 10, 21.6)
    return row, sixteen, also(row, "enqueue", "– to enqueue one", "enqueue", 1, None)


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

ROWS = (*(row for racer in RACERS for row in _beside(racer)), _KILLED)
