"""Processes of a run: engines and nodes, each at its machine, killed, stopped and started again."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from interlock.hub.client import Client
from tests.cluster.faults.clock import environment, library, set_clock
from tests.cluster.faults.netns import Network
from tests.cluster.faults.rows import TABLE
from tests.engine.faults.servers import die_with_parent
from tests.hub.servers import redis_program

ENGINE_PORT = 6379
NODE_PORT = 6399
DISK = 64 << 20
"""Bytes of a node's disk: checkpoints, ring and database of a run."""
ENGINE_DISK = 64 << 20
"""Bytes of an engine's: what a run may write."""
CAPACITY = 20_000
"""Rows of a node."""


class Server:
    """A process at a machine, with one command, however often it is started."""

    def __init__(self, network: Network, host: str, folder: Path) -> None:
        self.network = network
        self.host = host
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.stopped = False
        self.ends = False
        """It was asked to end."""
        self.starts: list[float] = []
        """Moments of the monotonic clock."""
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        """It need not be ready yet."""
        assert not self.runs
        with (self.folder / "output").open("ab") as output:
            self._process = subprocess.Popen(
                [*self.network.command(self.host), *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=die_with_parent,
            )
        self.stopped = self.ends = False
        self.starts.append(time.monotonic())

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def code(self) -> int | None:
        """The exit code, if it ended by itself."""
        return None if self._process is None else self._process.poll()

    def kill(self) -> None:
        """At once, also where it is stopped."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self.stopped = False

    def terminate(self) -> None:
        """Ask it to end."""
        if self.runs and self._process is not None:
            self._process.terminate()
            self.ends = True

    def stop(self) -> None:
        """SIGSTOP: it holds what it has, and does nothing."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)
            self.stopped = True

    def go_on(self) -> None:
        if self._process is not None and self.stopped:
            self._process.send_signal(signal.SIGCONT)
        self.stopped = False

    def said(self) -> str:
        """The end of what it printed."""
        return self.all_said()[-3000:]

    def all_said(self) -> str:
        """All that it printed."""
        path = self.folder / "output"
        return path.read_text(errors="replace") if path.exists() else ""


class Disk:
    """A small disk, in memory, that can be filled."""

    def __init__(self, path: Path, mark: str, size: int) -> None:
        self.path = path
        path.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", mark, str(path)], check=True)

    def fill(self) -> None:
        with suppress(OSError), (self.path / "filler").open("wb") as filler:
            while True:
                filler.write(b"x" * 4096)
                filler.flush()

    def free(self) -> None:
        (self.path / "filler").unlink(missing_ok=True)

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.path)], check=False)


class Engine(Server):
    """A Redis or Valkey that appends what it has to a file, or keeps nothing over a restart."""

    def __init__(
        self,
        network: Network,
        host: str,
        folder: Path,
        *,
        kind: str,
        keeps: bool = True,
        clocked: bool = False,
    ) -> None:
        super().__init__(network, host, folder)
        self.kind = kind
        self.disk = Disk(folder / "disk", network.name_of(host), ENGINE_DISK)
        self.keeps = keeps
        self.replica_of = ""
        self.clock = folder / "clock"
        self.clocked = clocked and library() is not None
        self.set_clock(0.0)
        self._saved = folder / "saved"
        self.damaged = False
        """It could not read its file to the end, and has lost what follows."""

    def set_clock(self, ahead: float) -> None:
        """Set its clock this many seconds ahead of the right time."""
        set_clock(self.clock, ahead)

    def command(self) -> list[str]:
        settings = {
            "port": ENGINE_PORT,
            "bind": "0.0.0.0",
            "protected-mode": "no",
            "dir": self.disk.path,
            "save": "",
            "databases": 1,
            "appendonly": "yes" if self.keeps else "no",
            "appendfsync": "everysec",
            "repl-diskless-sync-delay": 0,
            "repl-timeout": 5,
            "repl-ping-replica-period": 1,
        }
        flags = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
        if self.replica_of:
            flags += ["--replicaof", self.replica_of, str(ENGINE_PORT)]
        more = environment(self.clock) if self.clocked else {}
        words = [f"{name}={value}" for name, value in more.items()]
        return ["env", *words, program_of(self.kind), *flags]

    def forget(self) -> None:
        """While it is dead: its disk is lost."""
        shutil.rmtree(self._files, ignore_errors=True)

    def save(self) -> None:
        """Keep a copy of what its disk has now."""
        shutil.rmtree(self._saved, ignore_errors=True)
        with suppress(OSError):
            # It may not have begun yet, or write at this moment: so it has lost all.
            shutil.copytree(self._files, self._saved)

    def lose_tail(self) -> None:
        """While it is dead: its disk has again what it had at the last `save`."""
        self.forget()
        if self._saved.exists():
            shutil.copytree(self._saved, self._files)

    def repair(self, deadline: float) -> None:
        """Wait until it answers. A disk that was full may have left a file that it does not read:
        that is cut where it can be read, as Redis tells operators to do."""
        while self.ask("PING").strip() != b"PONG" and time.monotonic() < deadline:
            if not self.runs and "Bad file format" in self.said():
                self.damaged = True
                fix = program_of(self.kind).replace("-server", "-check-aof")
                (manifest,) = self._files.glob("*.manifest")
                subprocess.run([fix, "--fix", manifest], input=b"y\n" * 9, check=True)
                self.start()
            time.sleep(0.02)  # Between two looks.

    @property
    def _files(self) -> Path:
        return self.disk.path / "appendonlydir"

    def close(self) -> None:
        """Give back its disk."""
        self.kill()
        self.disk.close()

    def ask(self, *words: str) -> bytes:
        """Return what redis-cli says, at its own machine; nothing if that takes too long."""
        with suppress(subprocess.TimeoutExpired):
            done = subprocess.run(
                [*self.network.command(self.host), "redis-cli", *words],
                capture_output=True,
                timeout=10,
                check=False,
            )
            return done.stdout
        return b""

    def wait_ready(self, deadline: float) -> None:
        while self.ask("PING").strip() != b"PONG":
            assert self.runs, f"the engine at {self.host} ended: {self.said()}"
            assert time.monotonic() < deadline, f"the engine at {self.host} is not ready"
            time.sleep(0.02)  # Between two looks.

    def wait_in_step(self, deadline: float) -> None:
        """As a replica: until it has all that its primary has."""
        while b"master_link_status:up" not in self.ask("INFO", "replication"):
            assert time.monotonic() < deadline, f"the replica at {self.host} is not in step"
            time.sleep(0.02)  # Between two looks.


def program_of(kind: str) -> str:
    """The program of an engine, `redis`, or `valkey` where that is installed."""
    if kind == "redis":
        return redis_program()
    # It is not to be had everywhere; the cases tried here are the same with Redis.
    return shutil.which("valkey-server") or redis_program()


@dataclass
class NodeSettings:
    """The flags of one node."""

    name: str
    dc: str
    table: str
    engine: str
    links: Sequence[tuple[str, str]] = ()
    ack: str = "0"
    timeout: float = 2.0
    max_staleness: float | None = None
    pace: str = ""
    """Entries from one checkpoint to the next and milliseconds that the oldest goes back."""
    clocked: bool = False
    """It has a clock of its own, which can be set wrong."""
    database: bool = False
    """On its small disk."""
    more: Sequence[str] = field(default_factory=tuple)


class Node(Server):
    """`interlock node` at a machine with a memory, a clock and a small disk of its own."""

    def __init__(self, network: Network, folder: Path, settings: NodeSettings) -> None:
        super().__init__(network, settings.name, folder)
        self.settings = settings
        mark = network.name_of(settings.name)
        self.disk = Disk(folder / "disk", mark, DISK)
        # Files that nodes of one machine would share, and nodes of several do not.
        self.memory = Path("/dev/shm") / mark
        self.memory.mkdir()
        self.forgot = False
        """Its machine lost its memory: it does not know what readers there have seen."""
        self.config = folder / "hub.toml"
        self.config.write_text("unprotected = true\nworkers = 1\n", encoding="utf-8")
        self.clock = folder / "clock"
        self.set_clock(0.0)

    def command(self) -> list[str]:
        own = self.settings
        flags = ["--table", own.table, "--cluster", own.engine, "--name", own.name, "--dc", own.dc]
        flags += ["--machine", own.name]
        for dc, url in own.links:
            flags += ["--link", f"{dc}={url}"]
        flags += ["--timeout", str(own.timeout), "--capacity", str(CAPACITY)]
        if own.ack != "0":
            flags += ["--ack", own.ack]
        flags += ["--data", str(self.data), "--path", f"/dev/shm/{TABLE}"]
        if own.database:
            flags += ["--database", f"sqlite://{self.database}"]
        if own.max_staleness is not None:
            flags += ["--max-staleness", str(own.max_staleness)]
        address = self.network.address[self.host]
        flags += ["--config", str(self.config), "--host", "0.0.0.0", "--port", str(NODE_PORT)]
        flags += ["--advertise", f"{address}:{NODE_PORT}", *own.more]
        node = [sys.executable, "-m", "interlock", "node", *flags]
        # Not before: the library has files in there, by the numbers of processes.
        more = [f"{name}={value}" for name, value in self._own_environment().items()]
        words = ["sh", "-c", f'mount --bind {self.memory} /dev/shm && exec env "$@"', "sh"]
        return [*words, *more, *node]

    def _own_environment(self) -> dict[str, str]:
        found: dict[str, str] = {}
        if self.settings.pace:
            found["INTERLOCK_NODE_PACE"] = self.settings.pace
        if library() is not None and self.settings.clocked:
            found |= environment(self.clock)
        return found

    def set_clock(self, ahead: float) -> None:
        """Set its clock this many seconds ahead of the right time."""
        set_clock(self.clock, ahead)

    def forget(self) -> None:
        """While it is dead: the machine lost its memory."""
        self.forgot = True
        shutil.rmtree(self.memory, ignore_errors=True)
        self.memory.mkdir()

    def lose_disk(self) -> None:
        """While it is dead: the machine lost its memory and its disk."""
        self.forget()
        shutil.rmtree(self.data, ignore_errors=True)
        for path in self.disk.path.glob("rows.db*"):
            path.unlink()

    @property
    def data(self) -> Path:
        """The folder of its checkpoints and its ring."""
        return self.disk.path / "data"

    @property
    def database(self) -> Path:
        """The file of its database, if it has one."""
        return self.disk.path / "rows.db"

    @property
    def table(self) -> Path:
        """Its table, for readers on its machine."""
        return self.memory / TABLE

    def close(self) -> None:
        """Give back its disk and its memory."""
        self.kill()
        self.disk.close()
        shutil.rmtree(self.memory, ignore_errors=True)

    def client(self, timeout: float = 5.0) -> Client:
        """A connection from its own machine, for a thread that is there."""
        return Client(f"{self.network.address[self.host]}:{NODE_PORT}", timeout=timeout)
