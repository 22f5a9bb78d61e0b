"""A whole cluster: data centres, each with an engine, perhaps a replica of it, and nodes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from interlock.hub.resp import ReplyError
from tests.cluster.faults import rows
from tests.cluster.faults.delay import DelayProxy
from tests.cluster.faults.netns import Network
from tests.cluster.faults.servers import (
    ENGINE_PORT,
    NODE_PORT,
    Engine,
    Node,
    NodeSettings,
    Server,
)
from tests.cluster.faults.workload import Place

T = TypeVar("T")
START_SECONDS = 40.0
FILLED = 500
"""Rows of one write."""


@dataclass(frozen=True)
class Layout:
    """The make of a cluster."""

    nodes: Mapping[str, int]
    """The number of nodes in each data centre."""

    engine: str = "redis"
    keeps: bool = True
    """An engine that is started again has what it had."""

    replica: bool = False
    """Each engine has a replica, to be promoted."""

    ack: str = "0"
    timeout: float = 2.0
    """Seconds within which a node does a write, or not at all."""
    max_staleness: float | None = None
    pace: str = ""
    """Pace of the checkpoints of nodes, by which the log is trimmed; see NodeSettings."""
    rows: int = 0
    """Rows that there are before the load."""
    gated: bool = False
    """Nodes reach the log by a way that can be slow."""
    clocked: bool = False
    """Nodes and engines have clocks of their own."""
    database: bool = False
    more: Sequence[str] = ()


class Cluster:
    """Everything of a run that runs, in one folder."""

    def __init__(self, layout: Layout, folder: Path) -> None:
        self.layout = layout
        self.folder = folder
        self.engines: dict[str, list[Engine]] = {}
        """By data centre, first the one with the floating address."""
        self.nodes: dict[str, Node] = {}
        self.proxies: dict[str, DelayProxy] = {}
        """By the data centre that reads through it."""
        centres = {
            dc: [f"{dc}-e1", f"{dc}-e2", f"{dc}-gate", f"{dc}-client", *names_of(dc, count)]
            for dc, count in layout.nodes.items()
        }
        self.gates: dict[str, DelayProxy] = {}
        """By the node that reaches its stream through it."""
        self.network = Network(centres)
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    @property
    def dcs(self) -> list[str]:
        return list(self.layout.nodes)

    def of(self, dc: str) -> list[Node]:
        return [node for node in self.nodes.values() if node.settings.dc == dc]

    def servers(self) -> list[Server]:
        return [*self.nodes.values(), *(one for pair in self.engines.values() for one in pair)]

    def start(self) -> None:
        """Start everything, and wait until all nodes serve."""
        deadline = time.monotonic() + START_SECONDS
        for dc in self.dcs:
            for engine in self.engines[dc]:
                engine.start()
            for engine in self.engines[dc]:
                engine.wait_ready(deadline)
        for node in self.nodes.values():
            node.start()
        for node in self.nodes.values():
            while self.state(node) != "serving":
                assert node.runs, f"{node.host} ended with {node.code}: {node.said()}"
                assert time.monotonic() < deadline, f"{node.host} serves not: {node.said()}"
                time.sleep(0.05)  # Between two looks.

    def fill(self) -> None:
        """Write the rows that are there before the load."""
        node = self.of(self.dcs[0])[0]
        for start in range(0, self.layout.rows, FILLED):
            numbers = range(start, min(start + FILLED, self.layout.rows))
            words = [word for number in numbers for word in (f"pre-{number}", number)]
            self.ask(node, "TABLE", "MSET", rows.TABLE, 1, "last", *words, timeout=START_SECONDS)

    def damaged(self) -> set[str]:
        """The data centres of which an engine has lost some of its file."""
        return {dc for dc, pair in self.engines.items() if any(one.damaged for one in pair)}

    def within(self, host: str, work: Callable[[], T]) -> T:
        """The result of a function that is called on a thread at a machine."""
        result: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                self.network.enter(host)
                result.append(work())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return result[0]

    def ask(self, node: Node, *words: str | int, timeout: float = 3.0) -> Any:
        """The reply of a node to a client at its own machine. Raises OSError, ReplyError."""

        def work() -> object:
            with node.client(timeout) as client:
                return client.call(*words)

        return self.within(node.host, work)

    def ask_lightly(self, node: Node, *words: str | int) -> bool:
        """Ask, whatever comes of it; answers whether that was an error."""
        try:
            self.ask(node, *words)
        except (OSError, ReplyError):
            return True
        return False

    def status(self, node: Node, timeout: float = 2.0) -> dict[str, Any] | None:
        """NODE STATUS of a node; None if it does not answer."""
        if not node.runs or node.stopped:
            return None
        with suppress(Exception):
            found = json.loads(self.ask(node, "NODE", "STATUS", timeout=timeout))
            assert isinstance(found, dict)
            return found
        return None

    def state(self, node: Node) -> str:
        """Return the state of a node by its own word; empty if it does not answer."""
        return str((self.status(node) or {}).get("state", ""))

    def url(self, dc: str) -> str:
        """The place at which clients find the nodes of a data centre."""
        return f"interlock+cluster://{self.network.floating[dc]}:{ENGINE_PORT}?dc={dc}"

    def places(self, dc: str) -> list[Place]:
        """The nodes of a data centre, for clients."""
        return [
            Place(node.host, dc, self.network.address[node.host], NODE_PORT) for node in self.of(dc)
        ]

    def promote(self, dc: str) -> None:
        """Kill the engine of a data centre; its replica takes its place, and gets a replica."""
        old, new = self.engines[dc]
        old.kill()
        new.ask("REPLICAOF", "NO", "ONE")
        new.replica_of = ""
        self.network.float_to(dc, new.host)
        old.replica_of = self.network.address[new.host]
        old.start()
        self.engines[dc] = [new, old]

    def heal(self) -> None:
        """End all faults; everything runs, with the right clock, a whole network and free disks."""
        self.network.heal()
        for proxy in (*self.proxies.values(), *self.gates.values()):
            proxy.calm()
        for engine in (one for pair in self.engines.values() for one in pair):
            engine.disk.free()
            engine.set_clock(0.0)
        for server in self.servers():
            server.go_on()
            if server.ends or not server.runs:
                server.kill()
                server.start()
        for node in self.nodes.values():
            node.disk.free()
            node.set_clock(0.0)
        for engine in (one for pair in self.engines.values() for one in pair):
            engine.repair(time.monotonic() + 5)

    def close(self) -> None:
        """End and remove everything but the folder."""
        for server in self.servers():
            with suppress(Exception):
                server.kill()
        for proxy in (*self.proxies.values(), *self.gates.values()):
            proxy.close()
        for node in self.nodes.values():
            node.close()
        for engine in (one for pair in self.engines.values() for one in pair):
            engine.close()
        self.network.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _make(self) -> None:
        layout, network = self.layout, self.network
        for dc in self.dcs:
            first = f"{dc}-e1"
            network.float_to(dc, first)
            hosts = [first, f"{dc}-e2"] if layout.replica else [first]
            self.engines[dc] = [
                Engine(
                    network,
                    host,
                    self.folder / host,
                    kind=layout.engine,
                    keeps=layout.keeps,
                    clocked=layout.clocked,
                )
                for host in hosts
            ]
            if layout.replica:
                self.engines[dc][1].replica_of = network.address[first]
        for dc in self.dcs:
            links = []
            for other in self.dcs:
                if other != dc:
                    # One that is read through by all nodes here.
                    target = (network.floating[other], ENGINE_PORT)
                    proxy = self.proxies[dc] = DelayProxy(network, f"{dc}-gate", target)
                    url = f"redis://{network.address[f'{dc}-gate']}:{proxy.port}"
                    links.append((other, url))
            for name in names_of(dc, layout.nodes[dc]):
                more = list(layout.more)
                if layout.gated:
                    gate = f"{dc}-gate"
                    engine = (network.floating[dc], ENGINE_PORT)
                    proxy = self.gates[name] = DelayProxy(network, gate, engine)
                    more += ["--stream", f"redis://{network.address[gate]}:{proxy.port}"]
                settings = NodeSettings(
                    name=name,
                    dc=dc,
                    table=rows.REFERENCE,
                    engine=f"redis://{network.floating[dc]}:{ENGINE_PORT}",
                    links=links,
                    ack=layout.ack,
                    timeout=layout.timeout,
                    pace=layout.pace,
                    max_staleness=layout.max_staleness,
                    clocked=layout.clocked,
                    database=layout.database,
                    more=more,
                )
                self.nodes[name] = Node(network, self.folder / name, settings)


def names_of(dc: str, count: int) -> list[str]:
    return [f"{dc[0]}{number}" for number in range(1, count + 1)]
