"""One run: a cluster under load, faults by a seed, and what must hold when they are over."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from interlock.hub.resp import ReplyError
from tests.cluster.faults import checker, quiet, workload
from tests.cluster.faults.chaos import DEADLY, KINDS, LOSING, Chaos, Fault, drawn
from tests.cluster.faults.checker import Promise, Violation
from tests.cluster.faults.cluster import Cluster, Layout
from tests.cluster.faults.history import OK, READ, UNKNOWN, Recorder
from tests.cluster.faults.workload import Guest, Known, Reader, Writer

WRITERS = 3
"""In each data centre."""
SERVED_SECONDS = 30.0
BEHIND = 1.5
"""Seconds that an entry may take to a node that hears of its primary: what packets that are lost
cost, and a machine that is busy."""
AGREED_SECONDS = 40.0


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
        more += f" keeping {layout.keep}, {layout.rows} rows" if layout.keep else ""
        return (
            f"{nodes} nodes, {layout.engine} {more}, ack {layout.ack}, lease {layout.lease:g} s, "
            f"{len(self.faults)} faults in {self.seconds:.1f} s"
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


def plan_of(seed: int, only: Sequence[str] = (), mutant: str = "") -> Plan:
    """The plan of a seed; with `only` these kinds of fault instead of those that it would draw, and
    nodes that are a mutant."""
    chance = random.Random(seed)
    east = chance.choice((2, 3, 3))
    west = chance.choice((0, 1, 2, 2))
    nodes = {"east": east, "west": west} if west else {"east": east}
    # An acknowledgement by others must not wait for one that is not there.
    ack = chance.choice(("0", "1", "1", "all")) if min(nodes.values()) > 1 else "0"
    losing = chance.random() < 0.25
    keep = chance.choice((None, None, None, 100))
    # An engine that loses its end and the death of all who have it are more than is promised; that
    # of a primary is not, if others were to have it too. So it is with a stream that keeps little.
    impossible = (*(DEADLY if losing or keep else ()), *(() if losing else LOSING))
    possible = [kind for kind in KINDS if kind not in impossible]
    kinds = chance.sample(possible, chance.randrange(2, 7))
    if losing:
        kinds += [chance.choice(LOSING)]
    kinds = list(only) or kinds
    layout = Layout(
        nodes=nodes,
        engine=chance.choice(("redis", "valkey")),
        replica="promote" in kinds,
        ack=ack,
        lease=chance.choice((1.0, 1.5)),
        gated="late stream" in kinds,
        clocked="clock" in kinds,
        keep=keep,
        database="full disk" in kinds or chance.random() < 0.3,
        rows=chance.choice((0, 3000)) if keep else 0,
        max_staleness=chance.choice((None, None, 1.5)),
        mutant=mutant,
    )
    seconds = chance.uniform(4.0, 8.0)
    faults = drawn(chance, kinds, list(nodes), seconds, chance.choice((0.4, 0.8, 1.5)))
    return Plan(seed, layout, seconds, kinds, faults)


def run(plan: Plan, folder: Path) -> Result:
    """Everything of it is in the folder, which exists, and stays there."""
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
            chaos.rage(plan.faults, plan.seconds)
            counts = chaos.counts
            late = workload.settle(guests, time.monotonic() + SERVED_SECONDS)
            violations += [Violation("unserved", f"{who}, when all was healed") for who in late]
            workload.end(guests, known)
            seen, took = quiet.wait(cluster, known.keys, AGREED_SECONDS)
            promise = promise_of(plan, cluster)
            violations += [
                Violation("ended", f"{node.host} with {node.code}: {node.said()}")
                for node in cluster.nodes.values()
                if not node.runs
            ]
            if seen.trouble or not seen.settled():
                violations += quiet.violations(seen)
                for node in cluster.nodes.values():
                    violations.append(Violation("status", f"{cluster.status(node)}"))
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


def guests_of(cluster: Cluster, recorder: Recorder, known: Known, seed: int) -> list[Guest]:
    """Writers at a machine of each data centre, and a reader at the machine of each node."""
    guests: list[Guest] = []
    for dc in cluster.dcs:
        places = cluster.places(dc)
        for number in range(WRITERS):
            name = f"{dc[0]}w{number}"

            def enter(host: str = f"{dc}-client") -> None:
                cluster.network.enter(host)

            guests.append(Writer(name, places, recorder, known, f"{seed} {name}", enter=enter))
        for place in places:

            def there(host: str = place.name) -> None:
                cluster.network.enter(host)

            name = f"r-{place.name}"
            guests.append(Reader(name, [place], recorder, known, f"{seed} {name}", enter=there))
    return guests


def promise_of(plan: Plan, cluster: Cluster) -> Promise:
    stale = plan.layout.max_staleness
    weak = plan.loses and plan.layout.ack == "0"
    return Promise(
        lasting=not weak,
        lasting_nodes=not plan.loses,
        staleness=None if stale is None else stale + BEHIND,
        restarts={node.host: node.starts[1:] for node in cluster.nodes.values()},
    )
