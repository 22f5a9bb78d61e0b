"""`interlock node` as processes, with an engine of their own: clusters of a test."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import interlock
from interlock import Row, Size
from interlock.client.rows.announcements import Announcement, announcements
from interlock.table.kinds import U32
from interlock.table.merge import Sum
from tests.hub.servers import INTERLOCK, needs_hub, redis_server


class Presence(Row):
    app_id: U32
    unread: Annotated[U32, Sum] = 0
    token: Annotated[str, Size(8)] = ""


class NodeProcess:
    """One node. Its log is kept, and shown if it does not become ready."""

    def __init__(self, name: str, url: str, folder: Path, *flags: str) -> None:
        self.name = name
        self.data = str(folder / f"{name}.data")
        self._lines: list[str] = []
        self.process = subprocess.Popen(
            [
                *(INTERLOCK, "node", "--table", f"presence={Path(__file__)}:Presence"),
                *("--cluster", url, "--name", name, "--port", "0", "--http", "0"),
                *("--data", self.data),
                *("--capacity", "10000", "--path", folder / name),
                *flags,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(self._folders())},
        )
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.address = self.http = ""

    def wait(self) -> None:
        """Wait until it is ready."""
        assert self._ready.wait(60), self.log
        self.address = self._told(rf"{self.name} ready on (\S+)")
        self.http = self._told(r"http on (\S+)")

    @property
    def log(self) -> str:
        return "".join(self._lines)

    def says(self, words: str) -> None:
        """Wait until its log has these words: its lines come later than its answers."""
        eventually(lambda: words in self.log, lambda: self.log)

    def kill(self) -> None:
        """End it as kill -9 does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def freeze(self) -> None:
        freeze(self.process.pid)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        # A process that is stopped ends by nothing else.
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _folders(self) -> list[str]:
        # The row's class is in this file, which imports the tests.
        root = str(Path(__file__).resolve().parents[2])
        return [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.append(line)
            if "http on" in line:
                self._ready.set()
        self._ready.set()

    def _told(self, pattern: str) -> str:
        found = re.search(pattern, self.log)
        assert found is not None, self.log
        return found[1].rstrip(",")


class NodeCluster:
    """Nodes that share an engine."""

    def __init__(self, stack: ExitStack, folder: Path, port: int) -> None:
        self._stack = stack
        self._folder = folder
        self.engine_url = f"redis://127.0.0.1:{port}"
        self.url = f"interlock+cluster://127.0.0.1:{port}/presence"
        self.nodes: dict[str, NodeProcess] = {}
        self.engine = stack.enter_context(interlock.connect(self.engine_url))

    def start(self, *names: str, flags: tuple[str, ...] = ()) -> None:
        """Start nodes, and wait until all serve."""
        for name in names:
            node = NodeProcess(name, self.engine_url, self._folder, *flags)
            self._stack.callback(node.close)
            self.nodes[name] = node
        for name in names:
            self.nodes[name].wait()
        self.settled(*self.alive())

    def heal(self) -> None:
        """Start anew what has ended."""
        ended = [name for name in self.nodes if name not in self.alive()]
        self.start(*ended)

    def alive(self) -> list[str]:
        return [name for name, node in self.nodes.items() if node.process.poll() is None]

    def settled(self, *names: str) -> None:
        """Wait until these nodes are announced, and serve."""

        def is_so() -> bool:
            said = {one.id: one.role for one in self.announced() if one.id in names}
            return set(said) == set(names) and set(said.values()) <= {"serving"}

        eventually(is_so, lambda: "\n".join(node.log for node in self.nodes.values()))

    def announced(self) -> list[Announcement]:
        return announcements(self.engine, "presence")


@contextmanager
def two_data_centres(folder: Path) -> Iterator[tuple[NodeCluster, NodeCluster]]:
    """Two clusters with a node each, east and west, that are linked."""
    needs_hub()
    with ExitStack() as stack:
        made = []
        for dc in ("east", "west"):
            engine = folder / dc / "engine"
            engine.mkdir(parents=True)
            _, port = stack.enter_context(redis_server(engine))
            made.append(NodeCluster(stack, folder / dc, port))
        east, west = made
        east.start("e1", flags=("--dc", "east", "--link", f"west={west.engine_url}"))
        west.start("w1", flags=("--dc", "west", "--link", f"east={east.engine_url}"))
        yield east, west


@contextmanager
def node_cluster(folder: Path, *names: str, flags: tuple[str, ...] = ()) -> Iterator[NodeCluster]:
    """A cluster with a Redis of its own."""
    needs_hub()
    with ExitStack() as stack:
        engine = folder / "engine"
        engine.mkdir()
        _, port = stack.enter_context(redis_server(engine))
        made = NodeCluster(stack, folder, port)
        if names:
            made.start(*names, flags=flags)
        yield made


def freeze(pid: int) -> None:
    """Stop a process, and wait until all its threads stand: one may be at work still."""
    os.kill(pid, signal.SIGSTOP)
    threads = Path(f"/proc/{pid}/task")
    eventually(
        lambda: all(
            (one / "stat").read_text().rpartition(") ")[2][0] in "Tt" for one in threads.iterdir()
        )
    )


def eventually(what: Callable[[], Any], why: Callable[[], str] = str, wait: float = 60) -> None:
    """Wait until something is so."""
    until = time.monotonic() + wait
    while not what():
        assert time.monotonic() < until, why()
        time.sleep(0.02)
