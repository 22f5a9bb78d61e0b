"""Nodes of the rows about the state table across machines: `interlock node`, each a process of its
own, on one machine with a Redis of their own."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import redis as redis_py

from benchmarks.interpreters import ROOT
from benchmarks.servers import Server, memory_folder, port_of, redis, running
from interlock import U32, Row, SharedTable, Size, Sum

TABLE = "presence"
PATIENCE = 30.0


class Presence(Row):
    """A row of 76 bytes: a user's device, as a push service keeps it."""

    app_id: U32
    unread: Annotated[U32, Sum]
    background: bool
    token: Annotated[str, Size(65)]


@dataclass(frozen=True, slots=True)
class Node:
    """One that is ready."""

    name: str
    server: Server
    path: Path
    """The file with its table."""

    def client(self) -> Any:
        """Return a connection of redis-py, which no other thread uses."""
        return redis_py.Redis(port=self.server.port, single_connection_client=True)

    def status(self) -> dict[str, Any]:
        """Return what it says of itself."""
        with self.client() as asked:
            found: dict[str, Any] = json.loads(asked.execute_command("NODE", "STATUS"))
            return found

    def rows(self) -> SharedTable[Presence]:
        """Return its table, as a process of its machine reads it."""
        return SharedTable.attach(self.path, Presence)

    def peak(self) -> float:
        """Return the most memory that its process had, in MB."""
        status = Path(f"/proc/{self.server.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1000

    def kill(self) -> None:
        """End it as kill -9 does."""
        os.kill(self.server.pid, signal.SIGKILL)


@dataclass(slots=True)
class Cluster:
    """Nodes that serve one table."""

    engine: Server
    nodes: list[Node] = field(default_factory=list)


@contextmanager
def cluster(count: int, *, core: int | None = None, capacity: int = 200_000) -> Iterator[Cluster]:
    """Run this number of nodes and their engine on this core; None: wherever the system puts
    them."""
    with ExitStack() as stack:
        engine = stack.enter_context(redis(core=core))
        place = stack.enter_context(memory_folder())
        made = Cluster(engine)
        for number in range(1, count + 1):
            made.nodes.append(stack.enter_context(started(f"a{number}", engine, place, core,
                                                        capacity)))  # fmt: skip
        until(lambda: _settled(made))
        yield made


@contextmanager
def started(
    name: str, engine: Server, place: Path, core: int | None, capacity: int, *flags: str
) -> Iterator[Node]:
    """Start a node with its files in a folder, and end it."""
    path = place / name
    command = [
        *(sys.executable, "-m", "interlock", "node"),
        *("--table", f"{TABLE}={Path(__file__)}:{Presence.__name__}"),
        *("--cluster", f"redis://127.0.0.1:{engine.port}", "--name", name, "--port", "0"),
        *("--capacity", str(capacity), "--path", str(path), "--data", str(place / f"{name}.data")),
        *flags,
    ]
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    with running(command, f"{name} ready on", core, environment) as (process, line):
        yield Node(name, Server(process.pid, port_of(line)), path)


def _settled(made: Cluster) -> bool:
    return all(one.status()["serves"] for one in made.nodes)


def until(what: Callable[[], Any], pause: float = 0.01) -> Any:
    """Wait until something is so, and return it."""
    end = time.monotonic() + PATIENCE
    while not (found := what()):
        if time.monotonic() > end:
            raise RuntimeError(f"the nodes did not do in {PATIENCE:g} s what was waited for")
        time.sleep(pause)
    return found
