"""One run: a cluster under load, faults by a seed, and what must hold when they are over."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import interlock
from interlock.errors import EngineUnavailable
from interlock.hub.resp import ReplyError
from tests.cluster.faults import checker, ending, quiet
from tests.cluster.faults.chaos import (
    CUTTING,
    DEADLY,
    GATED,
    KINDS,
    LOSING,
    Chaos,
    Fault,
    drawn,
)
from tests.cluster.faults.checker import Promise, Violation
from tests.cluster.faults.cluster import Cluster, Layout
from tests.cluster.faults.history import OK, READ, UNKNOWN, Recorder
from tests.cluster.faults.rows import TABLE, State
from tests.cluster.faults.servers import CAPACITY
from tests.cluster.faults.workload import Guest, Known, MemoryReader, Numbered, Reader, Writer

WRITERS = 2
"""In each data centre; beside them are clients of the whole cluster."""
LOSES = "entries that readers of its table have seen"
"""So a node says in its log that its readers go back."""
SERVED_SECONDS = 30.0
BEHIND = 1.5
"""Seconds that an entry may take to a node that hears of its primary: what packets that are lost
cost, and a machine that is busy."""
AGREED_SECONDS = 30.0
OFTEN = ("late appends", "unheard", "started apart")
"""Each in a fourth of all runs at least: few others show whether late writes are done."""


@dataclass(frozen=True)
class Plan:
    """The choices of a seed."""

    seed: int
    layout: Layout
    seconds: float
    kinds: Sequence[str]
    faults: Sequence[Fault]

    def __str__(self) -> str:
        layout = self.layout
        nodes = "+".join(str(count) for count in layout.nodes.values())
        more = "replicated" if layout.replica else "alone"
        more += " and databases" if layout.database else ""
        more += f", trimmed ({layout.pace})" if layout.pace else ""
        more += f", {layout.rows} rows" if layout.rows else ""
        kinds = Counter(fault.kind for fault in self.faults)
        drawn = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        return (
            f"{nodes} nodes, {layout.engine} {more}, ack {layout.ack}, "
            f"timeout {layout.timeout:g} s, in {self.seconds:.1f} s {drawn}"
        )

    @property
    def loses(self) -> bool:
        """An engine may lose what it had."""
        return any(fault.kind in LOSING for fault in self.faults)


@dataclass
class Result:
    """The outcome of a run."""

    seed: int
    plan: str
    violations: list[Violation]
    figures: Counter[str] = field(default_factory=Counter)
    converged: float = 0.0
    """Seconds from the last operation until all nodes agreed."""

    def line(self) -> str:
        said = f"{len(self.violations)} VIOLATIONS" if self.violations else "held"
        figures = self.figures
        return (
            f"seed {self.seed}: {said}; {self.plan}; {figures['writes']} writes "
            f"({figures['writes unknown']} unknown), {figures['reads']} reads, "
            f"agreed after {self.converged:.1f} s"
        )


def plan_of(seed: int, only: Sequence[str] = ()) -> Plan:
    """The plan of a seed; with `only` these kinds of fault instead of those that it would draw."""
    chance = random.Random(seed)
    east = chance.choice((2, 3, 3, 3))
    west = chance.choice((0, 0, 1, 2))
    nodes = {"east": east, "west": west} if west else {"east": east}
    # Entries lost by an engine come from nodes: the machines that have it must not lose it as well.
    # Nor may a log be cut before the lost entries are restored.
    nature = chance.choice(("losing", "cutting", "", ""))
    impossible = {
        "losing": (*DEADLY, *CUTTING),
        "cutting": (*LOSING, "disk lost", "kill all"),
        "": (*LOSING, *CUTTING),
    }[nature]
    possible = [kind for kind in KINDS if kind not in (*impossible, *OFTEN)]
    kinds = chance.sample(possible, chance.randrange(2, 6))
    kinds += random.Random(f"some {seed}").choice((*([one] for one in OFTEN), []))
    if nature:
        kinds += [chance.choice(LOSING if nature == "losing" else CUTTING)]
    kinds = list(only) or kinds
    acknowledges = min(nodes.values()) > 1 and "late appends" not in kinds
    cuts = any(kind in CUTTING for kind in kinds)
    layout = Layout(
        nodes=nodes,
        engine=chance.choice(("redis", "valkey")),
        replica="promote" in kinds,
        # An acknowledgement by others must not wait for one that is not there, or only read.
        ack=chance.choice(("0", "0", "1")) if acknowledges else "0",
        timeout=chance.choice((1.0, 2.0)),
        gated=bool({*GATED} & set(kinds)),
        clocked=bool({"clock", "engine clock", "promote"} & set(kinds)),
        pace=chance.choice(("20,500", "100,0", "50,2000")) if cuts else "",
        database="full disk" in kinds or chance.random() < 0.3,
        rows=chance.choice((0, 3000)) if cuts else 0,
        max_staleness=chance.choice((None, None, 2.0)),
    )
    seconds = chance.uniform(5.0, 9.0)
    every = chance.choice((0.4, 0.8, 1.5))
    faults = drawn(chance, kinds, list(nodes), seconds, every, layout.timeout)
    return Plan(seed, layout, seconds, kinds, faults)


def run(plan: Plan, folder: Path) -> Result:
    """Everything of it is in the folder, which exists, and stays there."""
    load()
    recorder = Recorder(folder / "history.jsonl")
    guests: list[Guest] = []
    known = Known()
    violations: list[Violation] = []
    counts: Counter[str] = Counter()
    promise = Promise()
    seen, took = quiet.Seen(), 0.0
    try:
        with Cluster(plan.layout, folder) as cluster:
            try:
                cluster.start()
                cluster.fill()
            except (AssertionError, OSError, ReplyError) as error:
                return Result(plan.seed, str(plan), [Violation("start", str(error))])
            guests += guests_of(cluster, recorder, known, plan.seed)
            chaos = Chaos(cluster, recorder.note)
            with quiet.watched(cluster) as watch:
                chaos.rage(plan.faults, plan.seconds)
            violations += watch.violations
            counts = chaos.counts
            late = ending.settle(guests, time.monotonic() + SERVED_SECONDS)
            violations += [Violation("unserved", f"{who}, when all was healed") for who in late]
            ending.end(guests, known)
            seen, took = quiet.wait(cluster, known.keys, AGREED_SECONDS)
            promise = promise_of(plan, cluster)
            violations += [
                Violation("ended", f"{node.host} with {node.code}: {node.said()}")
                for node in cluster.nodes.values()
                if not node.runs
            ]
            if seen.trouble or not seen.settled():
                violations += quiet.violations(seen)
            for status in seen.status.values():
                for name in ("went_back", "put_back", "merged_rows"):
                    counts[name] += status[name]
    finally:
        known.stop.set()
        recorder.close()
    violations += checker.all_of(recorder.operations, seen.rows, promise)
    for one in recorder.operations:
        counts["reads" if one.reads else "writes"] += 1
        if one.answer != OK:
            counts[f"{'reads' if one.kind == READ else 'writes'} {one.answer}"] += 1
    assert UNKNOWN not in counts
    return Result(plan.seed, str(plan), violations, counts, took)


def load() -> None:
    """Import all that clients import at their first use.

    Under pytest the import of a module parses its source, which Python 3.11 cannot do in two
    threads at once (SystemError).
    """
    assert callable(interlock.SharedTable)
    nobody = "interlock+cluster://127.0.0.1:1?timeout=0.1"
    with suppress(EngineUnavailable), interlock.connect(nobody) as connected:
        connected.table(TABLE, State).get("a")

    async def ask() -> None:
        async with interlock.connect(nobody) as connected:
            await connected.table(TABLE, State).get("a")

    with suppress(EngineUnavailable):
        asyncio.run(ask())


def guests_of(cluster: Cluster, recorder: Recorder, known: Known, seed: int) -> list[Guest]:
    """Writers at a machine of each data centre, and readers at the machine of each node."""
    guests: list[Guest] = []
    chance = random.Random(seed)
    for dc in cluster.dcs:
        places = cluster.places(dc)

        def enter(host: str = f"{dc}-client") -> None:
            cluster.network.enter(host)

        for number in range(WRITERS):
            name = f"{dc[0]}w{number}"
            guests.append(Writer(name, places, recorder, known, f"{seed} {name}", enter=enter))
        for name, linear, lanes in (("n", False, 0), ("l", True, 0), ("a", False, 3)):
            name = f"{dc[0]}{name}0"
            guests.append(Numbered(
                name, dc, cluster.url(dc), recorder, known, f"{seed} {name}", enter,
                timeout=chance.choice((2.0, 4.0)), linear=linear, lanes=lanes,
            ))  # fmt: skip
        for place in places:

            def there(host: str = place.name) -> None:
                cluster.network.enter(host)

            name = f"r-{place.name}"
            guests.append(Reader(name, [place], recorder, known, f"{seed} {name}", enter=there))
            table, name = cluster.nodes[place.name].table, f"m-{place.name}"
            guests.append(
                MemoryReader(name, place, table, CAPACITY, recorder, known, f"{seed} {name}")
            )
    return guests


def promise_of(plan: Plan, cluster: Cluster) -> Promise:
    stale = plan.layout.max_staleness
    excused = {
        node.host for node in cluster.nodes.values() if node.forgot or LOSES in node.all_said()
    }
    lost = cluster.damaged() | {fault.dc for fault in plan.faults if fault.kind in LOSING}
    return Promise(
        lost=frozenset(lost),
        excused=frozenset(excused) if lost else frozenset(),
        staleness=None if stale is None else stale + BEHIND,
    )
