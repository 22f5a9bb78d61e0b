"""Faults of a run, by a seed: which, when, of whom and for how long; and how each is done."""

from __future__ import annotations

import heapq
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.cluster.faults.cluster import Cluster
from tests.cluster.faults.servers import LIBRARIES, Node

Undo = Callable[[], None]
SKEW = 4.0
"""Seconds by which a clock is ahead or behind at most."""


@dataclass(frozen=True)
class Fault:
    """One fault, as it was drawn."""

    at: float
    """Seconds from the begin."""
    lasts: float
    kind: str
    dc: str
    victim: float
    """The place among the nodes, from 0 to 1; beyond 1 it is the primary."""
    draw: float
    """For what else is to be decided."""

    def __str__(self) -> str:
        return f"{self.at:.2f} {self.kind} {self.dc} for {self.lasts:.2f}"


def drawn(
    chance: random.Random, kinds: Sequence[str], dcs: Sequence[str], seconds: float, every: float
) -> list[Fault]:
    """The faults of a run, the first one soon."""
    found: list[Fault] = []
    at = 0.2
    while at < seconds:
        lasts = chance.choice((0.1, 0.5, 1.0, 2.0, 3.0)) * chance.uniform(0.5, 1.5)
        kind = chance.choice(kinds)
        if kind in ("stop primary", "late stream"):
            lasts = chance.uniform(1.5, 3.5)
        victim = chance.random() * 1.8
        found.append(Fault(at, lasts, kind, chance.choice(dcs), victim, chance.random()))
        at += chance.expovariate(1 / every)
    return found


class Chaos:
    """Does faults to a cluster, and undoes each when its time is over."""

    def __init__(self, cluster: Cluster, note: Callable[[str, float], None]) -> None:
        self.counts: Counter[str] = Counter()
        self._cluster = cluster
        self._note = note
        self._undo: list[tuple[float, int, Undo]] = []
        self._serial = itertools.count()
        self._busy: set[str] = set()
        self._killed: set[str] = set()

    def rage(self, faults: Sequence[Fault], seconds: float) -> None:
        """For so long; then everything is healed."""
        begin = time.monotonic()
        for fault in faults:
            self._until(begin + fault.at)
            self._begin(fault)
        self._until(begin + seconds)
        self._undo.clear()
        self._cluster.heal()
        self._note("healed", time.monotonic())

    def _until(self, moment: float) -> None:
        """Undo what is to end before a moment, and let that come: the pace of the faults."""
        while self._undo and self._undo[0][0] <= moment:
            due, _, undo = heapq.heappop(self._undo)
            time.sleep(max(due - time.monotonic(), 0))
            undo()
        time.sleep(max(moment - time.monotonic(), 0))

    def _begin(self, fault: Fault) -> None:
        node = self._victim(fault)
        whom = fault.dc if fault.kind in OF_CENTRES else node.host
        if fault.kind == "kill all":
            names = {fault.dc, *(one.host for one in self._cluster.of(fault.dc))}
        else:
            names = {whom}
        if names & self._busy:
            return
        if fault.kind in DEADLY and not all(
            self._cluster.nodes[n].runs for n in names - {fault.dc}
        ):
            return
        undo = KINDS[fault.kind](self, fault, node)
        if undo is None:
            return
        self._busy |= names
        self.counts[fault.kind] += 1
        self._note(f"{fault.kind} {whom} for {fault.lasts:.2f}", time.monotonic())

        def mend() -> None:
            undo()
            self._busy -= names
            self._note(f"end of {fault.kind} {whom}", time.monotonic())

        heapq.heappush(self._undo, (time.monotonic() + fault.lasts, next(self._serial), mend))

    def _victim(self, fault: Fault) -> Node:
        nodes = self._cluster.of(fault.dc)
        if fault.victim < 1:
            return nodes[int(fault.victim * len(nodes))]
        return self._cluster.primary(fault.dc) or nodes[0]

    # Each begins a fault and answers what ends it; None: it cannot be here.

    def cut_engine(self, fault: Fault, node: Node) -> Undo | None:
        network = self._cluster.network
        engine = self._cluster.engines[fault.dc][0].host
        if fault.draw < 0.4:
            network.cut(node.host, engine)
        elif fault.draw < 0.7:
            network.cut(node.host, engine, one_way=True)
        else:
            network.cut(engine, node.host, one_way=True)
        return lambda: network.join(node.host)

    def cut_nodes(self, fault: Fault, node: Node) -> Undo | None:
        network = self._cluster.network
        others = [one for one in self._cluster.of(fault.dc) if one is not node]
        if not others:
            return None
        other = others[int(fault.draw * len(others))].host
        network.cut(node.host, other, one_way=fault.draw * 7 % 1 < 0.5)
        return lambda: network.mend(node.host, other)

    def isolate(self, _fault: Fault, node: Node) -> Undo | None:
        network = self._cluster.network
        network.isolate(node.host)
        return lambda: network.join(node.host)

    def part(self, fault: Fault, _node: Node) -> Undo | None:
        network = self._cluster.network
        others = [dc for dc in self._cluster.dcs if dc != fault.dc]
        if not others:
            return None
        if fault.draw < 0.3:
            network.link(False)
            return lambda: network.link(True)
        network.part(fault.dc, others[0], one_way=fault.draw < 0.6)
        return network.unpart

    def lose(self, fault: Fault, node: Node) -> Undo | None:
        network = self._cluster.network
        host = node.host if fault.draw < 0.7 else self._cluster.engines[fault.dc][0].host
        network.lose(host, int(5 + fault.draw * 40))
        return lambda: network.lose(host, 0)

    def delay(self, fault: Fault, _node: Node) -> Undo | None:
        proxy = self._cluster.proxies.get(fault.dc)
        if proxy is None:
            return None
        proxy.delay, proxy.jitter = fault.draw * 0.4, fault.draw * 0.2
        if fault.draw > 0.8:
            proxy.cut()

        def undo() -> None:
            proxy.delay = proxy.jitter = 0.0

        return undo

    def clock(self, fault: Fault, node: Node) -> Undo | None:
        if not LIBRARIES:
            return None
        node.set_clock((fault.draw * 2 - 1) * SKEW)
        # It stays wrong to the end, as clocks do.
        return lambda: None

    def kill(self, fault: Fault, node: Node) -> Undo | None:
        node.kill()
        return lambda: self._again(node, forget=fault.draw < 0.5)

    def kill_primary(self, fault: Fault, _node: Node) -> Undo | None:
        """Once in a data centre, so that others have what it had acknowledged."""
        primary = self._cluster.primary(fault.dc)
        alone = len(self._cluster.of(fault.dc)) < 2
        if primary is None or fault.dc in self._killed or alone or not primary.runs:
            return None
        self._killed.add(fault.dc)
        return self.kill(fault, primary)

    def terminate(self, _fault: Fault, node: Node) -> Undo | None:
        node.terminate()

        def undo() -> None:
            node.kill()
            self._again(node, forget=False)

        return undo

    def kill_all(self, fault: Fault, _node: Node) -> Undo | None:
        nodes = self._cluster.of(fault.dc)
        for node in nodes:
            node.kill()

        def undo() -> None:
            for node in nodes:
                self._again(node, forget=fault.draw < 0.5)

        return undo

    def stop(self, _fault: Fault, node: Node) -> Undo | None:
        node.stop()
        return node.go_on

    def stop_primary(self, fault: Fault, _node: Node) -> Undo | None:
        """Beyond its lease: it wakes as a primary, and is none any more."""
        primary = self._cluster.primary(fault.dc)
        if primary is None:
            return None
        primary.stop()
        return primary.go_on

    def late_stream(self, fault: Fault, node: Node) -> Undo | None:
        """A primary that loses its lease while what it has appended is on its way still."""
        node = self._cluster.primary(fault.dc) or node
        gate = self._cluster.gates.get(node.host)
        if gate is None:
            return None
        network = self._cluster.network
        engine = self._cluster.engines[fault.dc][0].host
        gate.delay, gate.jitter = 0.3 + 0.5 * fault.draw, 0.2
        network.cut(node.host, engine)

        def undo() -> None:
            network.mend(node.host, engine)
            gate.delay = gate.jitter = 0.0

        return undo

    def full_disk(self, _fault: Fault, node: Node) -> Undo | None:
        node.disk.fill()
        return node.disk.free

    def engine_full(self, fault: Fault, _node: Node) -> Undo | None:
        """It refuses what writes, renewals of the lease too."""
        engine = self._cluster.engines[fault.dc][0]
        engine.disk.fill()
        return engine.disk.free

    def failover(self, _fault: Fault, node: Node) -> Undo | None:
        with_errors = self._cluster.ask_lightly(node, "NODE", "FAILOVER")
        self.counts["failovers refused"] += with_errors
        return lambda: None

    def engine_killed(self, fault: Fault, _node: Node) -> Undo | None:
        engine = self._cluster.engines[fault.dc][0]
        engine.kill()
        return engine.start

    def engine_emptied(self, fault: Fault, _node: Node) -> Undo | None:
        """Killed, and it comes back with nothing."""
        engine = self._cluster.engines[fault.dc][0]
        engine.kill()

        def undo() -> None:
            engine.forget()
            engine.start()

        return undo

    def resync(self, _fault: Fault, node: Node) -> Undo | None:
        self.counts["resyncs refused"] += self._cluster.ask_lightly(node, "NODE", "RESYNC")
        return lambda: None

    def engine_stopped(self, fault: Fault, _node: Node) -> Undo | None:
        engine = self._cluster.engines[fault.dc][0]
        engine.stop()
        return engine.go_on

    def engine_alone(self, fault: Fault, _node: Node) -> Undo | None:
        network = self._cluster.network
        engine = self._cluster.engines[fault.dc][0]
        network.isolate(engine.host)
        return lambda: network.join(engine.host)

    def promote(self, fault: Fault, _node: Node) -> Undo | None:
        """Of a replica that had nothing for a while: the tail is lost."""
        network = self._cluster.network
        pair = self._cluster.engines[fault.dc]
        if len(pair) < 2:
            return None
        old, new = pair
        network.cut(old.host, new.host)

        def undo() -> None:
            self._cluster.promote(fault.dc)
            # Not before: what the dead one's kernel has still to send would come.
            network.mend(old.host, new.host)

        return undo

    def _again(self, node: Node, *, forget: bool) -> None:
        if forget:
            node.forget()
        node.start()


KINDS: dict[str, Callable[[Chaos, Fault, Node], Undo | None]] = {
    "cut from engine": Chaos.cut_engine,
    "nodes cut": Chaos.cut_nodes,
    "isolated": Chaos.isolate,
    "centres parted": Chaos.part,
    "loss": Chaos.lose,
    "delay": Chaos.delay,
    "clock": Chaos.clock,
    "kill": Chaos.kill,
    "kill primary": Chaos.kill_primary,
    "terminate": Chaos.terminate,
    "kill all": Chaos.kill_all,
    "stop": Chaos.stop,
    "stop primary": Chaos.stop_primary,
    "late stream": Chaos.late_stream,
    "full disk": Chaos.full_disk,
    "engine full": Chaos.engine_full,
    "failover": Chaos.failover,
    "resync": Chaos.resync,
    "engine killed": Chaos.engine_killed,
    "engine emptied": Chaos.engine_emptied,
    "engine stopped": Chaos.engine_stopped,
    "engine alone": Chaos.engine_alone,
    "promote": Chaos.promote,
}
OF_CENTRES = (
    "engine full",
    "kill primary",
    "late stream",
    "stop primary",
    "centres parted",
    "delay",
    "kill all",
    "engine killed",
    "engine emptied",
    "engine stopped",
    "engine alone",
    "promote",
)
LOSING = ("promote", "engine emptied")
"""The engine has less than it had."""
DEADLY = ("kill", "terminate", "kill all")
"""A node has less than it had."""
