"""The library on Redis beside what Redis has itself, as a program in Python uses them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from benchmarks import load
from benchmarks.pipelines import connected, cycle, memory, stream_cycle, stream_memory
from benchmarks.row import Pair, Row, Sample, also, alternating
from benchmarks.servers import started
from benchmarks.waiting import put_to_leased, put_to_popped

TABLE = "Redis engine"

TURNS = {1: 5_000, 16: 1_500, 100: 400}
"""By batch: a second or so of either side."""

MOST = 1_000_000
"""Pending messages; to put them and to take them out again takes a minute or two."""

DEEP = 10
"""Pending messages of a key: a message behind others takes twice the work of one alone."""

LONGEST = 280.0


def _cycle(keys: int, batch: int, bar: float, prototype: float) -> Row:
    """Return a row about time, in which Python has its part on both sides."""
    turns = TURNS[batch]
    plural = "" if keys == 1 else "s"
    return Row(
        name=f"engine/{keys}-key{plural}-{batch}",
        title=f"put, lease, ack in one pipeline; {keys} key{plural}, batch {batch}",
        table=TABLE,
        peer="streams",
        judged="times",
        bar=bar,
        prototype=prototype,
        unseen=False,
        pair=alternating(partial(cycle, keys, batch, turns), partial(stream_cycle, batch, turns)),
    )


def _cpu(row: Row, bar: float, prototype: float) -> Row:
    """Return the server's part of a row, with a ceiling where the row's own bar is a floor."""
    cpu = also(row, "cpu", "– server's CPU", "cpu_ns", bar, prototype)
    return replace(cpu, judged="ratio")


def _memory(keys: int, bar: float, prototype: float) -> Row:
    return Row(
        name=f"engine/memory-{keys}",
        title=f"memory of a pending message, {keys} key{'' if keys == 1 else 's'} of its own",
        table=TABLE,
        peer="an entry of a stream",
        bar=bar,
        prototype=prototype,
        unit="B",
        pairs=2,
        unseen=False,
        pair=alternating(partial(memory, keys), stream_memory),
    )


def _level(_: int) -> Pair:
    """Take each side from a server of its own, with as many messages on each key."""
    return Pair(_behind(MOST), _behind(1_000))


def _behind(pending: int) -> Sample:
    with started("redis") as server:
        connected(server).close()
        options = {"backlog": pending, "keys": pending // DEEP, "batch": 16, "each": 1}
        figures = load.run("levels-interlock", server, options, longest=LONGEST)
    return load.level(pending, figures)


_ONE, _SIXTEEN, _HUNDRED = (
    _cycle(1, 1, 0.65, 1.01),
    _cycle(1, 16, 0.8, 0.95),
    _cycle(1, 100, 0.65, 0.74),
)
_LEVEL = Row(
    name="engine/pending",
    title="put, lease, ack, batch 16, 10 messages a key: 1M pending against 1k",
    table=TABLE,
    peer="itself at 1k",
    bar=1.5,
    pairs=1,
    unseen=False,
    longest=LONGEST,
    pair=_level,
)

ROWS = (
    _ONE,
    _SIXTEEN,
    _cpu(_SIXTEEN, 2.5, 2.1),
    _HUNDRED,
    _cpu(_HUNDRED, 3.6, 3.2),
    _cycle(4, 16, 0.45, 0.55),
    _cycle(4, 100, 0.3, 0.31),
    _memory(1, 2.5, 2.2),
    _memory(4, 4.5, 4.2),
    Row(
        name="engine/wait",
        title="put to leased by another process that waits: p50",
        table=TABLE,
        peer="BLPOP",
        bar=2,
        prototype=1.4,
        unit="µs",
        unseen=False,
        pair=alternating(partial(put_to_leased, 1_000), partial(put_to_popped, 1_000)),
    ),
    _LEVEL,
    also(_LEVEL, "cpu", "– server's CPU", "cpu_ns", 1.5, None),
)
