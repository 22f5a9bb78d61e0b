"""Faults of a run, by a seed: which, when, of whom and for how long; and how each is done."""

from __future__ import annotations

import heapq
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from interlock.hub.client import Client
from interlock.hub.resp import ProtocolError, ReplyError
from tests.cluster.faults.clock import library
from tests.cluster.faults.cluster import START_SECONDS, Cluster
from tests.cluster.faults.delay import FOR_EVER
from tests.cluster.faults.rows import TABLE
from tests.cluster.faults.servers import ENGINE_PORT, Node

Undo = Callable[[], None]
READY = " ready on "
"""So a node says that clients can connect."""
CHECKPOINT_SECONDS = 3.0
"""Seconds to wait for a later checkpoint of the other nodes before the log is cut."""
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
    """The place among the nodes, from 0 to 1."""
    draw: float
    """For what else is to be decided."""

    def __str__(self) -> str:
        return f"{self.at:.2f} {self.kind} {self.dc} for {self.lasts:.2f}"


def drawn(
    chance: random.Random,
    kinds: Sequence[str],
    dcs: Sequence[str],
    seconds: float,
    every: float,
    timeout: float,
) -> list[Fault]:
    """The faults of a run, the first one soon."""
    found: list[Fault] = []
    at = 0.2
    while at < seconds:
        lasts = chance.choice((0.1, 0.5, 1.0, 2.0, 3.0)) * chance.uniform(0.5, 1.5)
        kind = chance.choice(kinds)
        if kind in LASTING:
            least, most = LASTING[kind]
            lasts = chance.uniform(least, most) * (1.0 if kind == "started apart" else timeout)
        if kind == "frozen":
            # 1, 2 and 5 times the time that a node may take for a write.
            lasts = chance.choice((1, 1, 2, 2, 5)) * timeout * chance.uniform(0.9, 1.1)
        victim = chance.random()
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
        if fault.kind in OF_ALL:
            names = {fault.dc, *(one.host for one in self._cluster.of(fault.dc))}
        else:
            names = {whom}
        if names & self._busy:
            return
        if fault.kind in (*OF_ALL, *DEADLY) and not all(
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
        return nodes[int(fault.victim * len(nodes))]

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
        return proxy.calm

    def clock(self, fault: Fault, node: Node) -> Undo | None:
        if library() is None:
            return None
        node.set_clock((fault.draw * 2 - 1) * SKEW)
        # It stays wrong to the end, as clocks do.
        return lambda: None

    def kill(self, fault: Fault, node: Node) -> Undo | None:
        node.kill()
        return lambda: self._again(node, forget=fault.draw < 0.5)

    def lose_disk(self, _fault: Fault, node: Node) -> Undo | None:
        """A machine is lost with all that it has, and another takes its place."""
        if len(self._cluster.of(node.settings.dc)) < 2:
            return None
        node.kill()
        node.lose_disk()
        return node.start

    def unheard(self, _fault: Fault, node: Node) -> Undo | None:
        """Have the connection break when a node has not heard yet of what it appended."""
        gate = self._cluster.gates.get(node.host)
        if gate is None:
            return None
        gate.deaf = True
        return gate.calm

    def start_apart(self, fault: Fault, node: Node) -> Undo | None:
        """The node of a machine that has lost its memory starts, and cannot read its log yet."""
        gate = self._cluster.gates.get(node.host)
        if gate is None:
            return None
        node.kill()
        gate.delay = FOR_EVER
        starts = node.all_said().count(READY)
        self._again(node, forget=fault.draw < 0.7)

        def undo() -> None:
            deadline = time.monotonic() + START_SECONDS
            while node.all_said().count(READY) == starts and time.monotonic() < deadline:
                time.sleep(0.05)  # Between two looks.
            time.sleep(0.3)  # Somebody may read there now.
            gate.calm()

        return undo

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

    def freeze(self, fault: Fault, node: Node) -> Undo | None:
        self.counts["frozen 5"] += fault.lasts > 3 * node.settings.timeout
        return self.stop(fault, node)

    def late_stream(self, fault: Fault, node: Node) -> Undo | None:
        """Delay what a node appends, and what it reads."""
        gate = self._cluster.gates.get(node.host)
        if gate is None:
            return None
        gate.delay, gate.jitter = 0.3 + 0.8 * fault.draw, 0.2
        if fault.draw > 0.7:
            gate.cut()

        def undo() -> None:
            gate.calm()
            if fault.draw > 0.3:
                # It never receives the last replies.
                gate.cut()

        return undo

    def late_appends(self, fault: Fault, node: Node) -> Undo | None:
        """Have what a node appends come when it may have given it up; it reads as ever."""
        gate = self._cluster.gates.get(node.host)
        if gate is None:
            return None
        gate.late = (0.7 + 1.3 * fault.draw) * node.settings.timeout
        return gate.calm

    def full_disk(self, _fault: Fault, node: Node) -> Undo | None:
        node.disk.fill()
        return node.disk.free

    def engine_full(self, fault: Fault, _node: Node) -> Undo | None:
        """It refuses what writes, renewals of the lease too."""
        engine = self._cluster.engines[fault.dc][0]
        engine.disk.fill()
        return engine.disk.free

    def drain(self, _fault: Fault, node: Node) -> Undo | None:
        """Out of service, and ended, as an operator does it."""
        self._cluster.ask_lightly(node, "NODE", "DRAIN")
        node.ends = True  # It takes no more writes until everything is healed.

        def undo() -> None:
            node.kill()
            node.start()

        return undo

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
        """For a replica that received nothing for a while: the tail is lost. Where engines have
        clocks, that of the new primary may be behind: its ids are lower than those that were
        read."""
        network = self._cluster.network
        pair = self._cluster.engines[fault.dc]
        if len(pair) < 2:
            return None
        old, new = pair
        if new.clocked and fault.draw < 0.6:
            new.set_clock(-SKEW)
            self.counts["lower ids"] += 1
        network.cut(old.host, new.host)

        def undo() -> None:
            self._cluster.promote(fault.dc)
            # Not before: what the dead one's kernel has still to send would come.
            network.mend(old.host, new.host)

        return undo

    def engine_clock(self, fault: Fault, _node: Node) -> Undo | None:
        engine = self._cluster.engines[fault.dc][0]
        if not engine.clocked:
            return None
        engine.set_clock((fault.draw * 2 - 1) * SKEW)
        return lambda: None

    def lose_tail(self, fault: Fault, _node: Node) -> Undo | None:
        """The engine ends, and has what it had some time ago; then perhaps once more."""
        engine = self._cluster.engines[fault.dc][0]
        if not engine.runs or engine.stopped:
            return None
        engine.save()

        def undo() -> None:
            for _ in range(2 if fault.draw < 0.4 else 1):
                engine.kill()
                engine.lose_tail()
                engine.start()
                if fault.draw < 0.4:
                    engine.wait_ready(time.monotonic() + 5)
                    time.sleep(fault.draw)  # Between two losses.

        return undo

    def lose_in_turn(self, fault: Fault, _node: Node) -> Undo | None:
        """The engine loses its end again and again, each time while another node is away."""
        nodes, engine = self._cluster.of(fault.dc), self._cluster.engines[fault.dc][0]
        if not engine.runs or engine.stopped or len(nodes) < 2:
            return None
        for number, node in enumerate(nodes):
            freezes = (fault.draw * 8 + number) % 1 < 0.5
            (node.stop if freezes else node.kill)()
            engine.save()
            time.sleep(0.3 + 0.4 * fault.draw)  # Writes from now on are lost.
            engine.kill()
            engine.lose_tail()
            engine.start()
            engine.wait_ready(time.monotonic() + 5)
            time.sleep(0.3 * fault.draw)  # The others continue, or not yet.
            (node.go_on if freezes else node.start)()
        return lambda: None

    def trim(self, fault: Fault, node: Node) -> Undo | None:
        """The log is cut under a node that cannot read it, up to little of what there is: beyond
        what that node has read, as soon as the others have a checkpoint that is later."""
        others = [one for one in self._cluster.of(fault.dc) if one is not node]
        if not others:
            return None
        network = self._cluster.network
        network.isolate(node.host)
        gate = self._cluster.gates.get(node.host)
        read = str((self._cluster.status(node) or {}).get("log_id") or "")

        def undo() -> None:
            deadline = time.monotonic() + CHECKPOINT_SECONDS
            while True:
                serving = [one for one in others if self._cluster.state(one) == "serving"]
                first = self._trimmed(fault.dc, serving, int(fault.draw * 30)) if serving else ""
                is_across = bool(read and first) and order(read) < order(first)
                if is_across or not read or time.monotonic() > deadline:
                    break
                time.sleep(0.1)  # Between two looks.
            self.counts["read across a trim"] += is_across
            network.join(node.host)
            if gate is not None:
                gate.cut()

        return undo

    def trim_away(self, fault: Fault, node: Node) -> Undo | None:
        """The log is cut, and the only node that has read it is away while the others start."""
        nodes = self._cluster.of(fault.dc)
        others = [one for one in nodes if one is not node]
        if not others:
            return None
        for one in others:
            one.kill()
        time.sleep(0.3 + 0.7 * fault.draw)  # The others lack what is written now.
        self._trimmed(fault.dc, [node], 2)
        node.kill()
        for one in others:
            one.start()
        return node.start

    def _trimmed(self, dc: str, keepers: Sequence[Node], more: int) -> str:
        """Cut the log before the entries that these nodes need, and this number more. Returns the
        id of what is the first then, or nothing."""
        engine = self._cluster.engines[dc][0]
        address = f"{self._cluster.network.address[engine.host]}:{ENGINE_PORT}"
        log = f"il:log:{{{TABLE}.{dc}}}"

        def cut() -> str:
            with Client(address, timeout=2) as client:
                needed = [self._needed(client, log, one, more) for one in keepers]
                if not all(needed):
                    return ""
                oldest = min(needed, key=order)
                client.call("XTRIM", log, "MINID", oldest)
                return oldest

        # The engine may be away, or refuse what writes: its disk is full, or was a moment ago.
        with suppress(OSError, ProtocolError, ReplyError):
            return self._cluster.within(engine.host, cut)
        return ""

    def _needed(self, client: Client, log: str, keeper: Node, more: int) -> str:
        """The id of the entry this far after a node's newest checkpoint, which the node needs to
        continue although it does not read the log now; empty if it has none that is in the log."""
        status = self._cluster.status(keeper)
        if not status or not status["serves"] or not status["checkpoint"]:
            return ""
        behind = status["position"] - status["checkpoint"]
        entries = client.call("XREVRANGE", log, status["log_id"], "-", "COUNT", behind + 1 + more)
        assert isinstance(entries, list)
        is_there = len(entries) > behind and entries[0][0].decode() == status["log_id"]
        return bytes(entries[-1][0]).decode() if is_there else ""

    def _again(self, node: Node, *, forget: bool) -> None:
        if forget:
            node.forget()
        node.start()


def order(id: str) -> tuple[int, ...]:
    """The order of ids of entries."""
    return tuple(map(int, id.split("-")))


KINDS: dict[str, Callable[[Chaos, Fault, Node], Undo | None]] = {
    "cut from engine": Chaos.cut_engine,
    "nodes cut": Chaos.cut_nodes,
    "isolated": Chaos.isolate,
    "centres parted": Chaos.part,
    "loss": Chaos.lose,
    "delay": Chaos.delay,
    "clock": Chaos.clock,
    "engine clock": Chaos.engine_clock,
    "kill": Chaos.kill,
    "disk lost": Chaos.lose_disk,
    "terminate": Chaos.terminate,
    "drain": Chaos.drain,
    "kill all": Chaos.kill_all,
    "stop": Chaos.stop,
    "frozen": Chaos.freeze,
    "late stream": Chaos.late_stream,
    "late appends": Chaos.late_appends,
    "unheard": Chaos.unheard,
    "started apart": Chaos.start_apart,
    "full disk": Chaos.full_disk,
    "engine full": Chaos.engine_full,
    "resync": Chaos.resync,
    "trim": Chaos.trim,
    "trim away": Chaos.trim_away,
    "engine killed": Chaos.engine_killed,
    "engine emptied": Chaos.engine_emptied,
    "engine stopped": Chaos.engine_stopped,
    "engine alone": Chaos.engine_alone,
    "promote": Chaos.promote,
    "tail lost": Chaos.lose_tail,
    "tails lost in turn": Chaos.lose_in_turn,
}
OF_CENTRES = (
    "engine full",
    "centres parted",
    "delay",
    "kill all",
    "engine clock",
    "engine killed",
    "engine emptied",
    "engine stopped",
    "engine alone",
    "promote",
    "tail lost",
    "tails lost in turn",
    "trim away",
)
OF_ALL = ("kill all", "tails lost in turn", "trim away")
"""Faults of all nodes of a data centre."""
LOSING = ("promote", "engine emptied", "tail lost", "tails lost in turn")
"""The engine has less than it had."""
CUTTING = ("trim", "trim away")
"""The log begins later than it did."""
GATED = ("late stream", "late appends", "unheard", "started apart")
"""They need a way to the log of each node's own."""
LASTING = {"late appends": (1.5, 3.0), "unheard": (0.4, 0.9), "started apart": (2.0, 4.0)}
"""Timeouts of a write, or seconds: a node is to give up meanwhile, or not yet, or to start."""
DEADLY = ("disk lost", "resync")
"""A node has less than it had."""
