"""The servers of the rows about the hub and about engines: the hub itself, and Redis, each a
process of its own.

Both get the same settings: loopback, a free port, nothing stored unless a row is about that, no
limit on what a slow subscriber is owed. With two cores or more the server has the last one for
itself and the load the first, so that the scheduler cannot decide a run by putting both on one; and
so has its peer."""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Literal

from benchmarks.interpreters import BUILT, NotPrepared

Kind = Literal["hub", "redis"]
Sync = Literal["no", "everysec", "always"]
"""The time that data reaches the disk: not stored at all, once a second, before it is answered."""

MOST_CONNECTIONS = 12_000
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
LOAD_CORE = CORES[0] if len(CORES) > 1 else None
SERVER_CORE = CORES[-1] if len(CORES) > 1 else None


@dataclass(frozen=True, slots=True)
class Server:
    """One that is ready."""

    pid: int
    port: int


Started = AbstractContextManager[Server]


@contextmanager
def hub(
    workers: int = 1,
    *,
    core: int | None = SERVER_CORE,
    sync: Sync = "no",
    place: Path | None = None,
    arguments: Sequence[str] = (),
) -> Iterator[Server]:
    """Run `interlock hub` with this number of workers, on this core; None: wherever the system puts
    it.

    What its queues store is in `place` and stays there, or goes with it. `arguments` are further
    ones of the command.
    """
    limits = ("LIMITS_NORMAL_SOFT", "LIMITS_NORMAL_HARD", "LIMITS_PUBSUB_SOFT")
    settings = dict.fromkeys((*limits, "LIMITS_PUBSUB_HARD", "MAX_PER_ADDRESS"), "0")
    settings["MAXCLIENTS"] = str(MOST_CONNECTIONS)
    environment = {f"INTERLOCK_HUB_{name}": value for name, value in settings.items()}
    command = [sys.executable, "-m", "interlock", "hub", "--port", "0", "--workers", str(workers)]
    command += arguments
    with folder(place) as stored:
        if sync != "no":
            command += ["--journal", str(stored)]
            environment["INTERLOCK_HUB_QUEUES_DURABILITY"] = sync
        with running(command, "ready on", core, environment) as (process, line):
            yield Server(process.pid, port_of(line))


@contextmanager
def redis(
    *, core: int | None = SERVER_CORE, sync: Sync = "no", place: Path | None = None
) -> Iterator[Server]:
    """Run `redis-server` of this machine.

    Its append-only file is in `place`, or goes with it.
    """
    program = shutil.which("redis-server")
    if program is None:
        raise NotPrepared("no redis-server: install it (7.0.15 is what the bars are for)")
    port = free_port()
    settings = {
        "--port": str(port),
        "--bind": "127.0.0.1",
        "--save": "",
        "--appendonly": "no" if sync == "no" else "yes",
        "--client-output-buffer-limit": "pubsub 0 0 0",
        "--maxclients": str(MOST_CONNECTIONS),
    }
    if sync != "no":
        settings["--appendfsync"] = sync
    with folder(place) as stored:
        settings["--dir"] = str(stored)
        command = [program, *(word for setting in settings.items() for word in setting)]
        with running(command, "Ready to accept connections", core) as (process, _):
            yield Server(process.pid, port)


@contextmanager
def redis_on_socket(*, core: int | None = SERVER_CORE) -> Iterator[str]:
    """Run `redis-server` of this machine on a Unix socket alone, nothing stored; yield its path."""
    program = shutil.which("redis-server")
    if program is None:
        raise NotPrepared("no redis-server: install it (7.0.15 is what the bars are for)")
    with _socket_folder() as path:
        command = [program, "--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no"]
        with running(command, "ready to accept connections", core):
            yield path


@contextmanager
def memcached(*, core: int | None = SERVER_CORE) -> Iterator[str]:
    """Run `memcached` of this machine on a Unix socket, with one thread; yield its path."""
    program = shutil.which("memcached")
    if program is None:
        raise NotPrepared("no memcached: install it (Debian has a package)")
    with _socket_folder() as path:
        command = [program, "-s", path, "-m", "512", "-t", "1"]
        if os.geteuid() == 0:
            command += ["-u", "root"]
        with subprocess.Popen(command, preexec_fn=partial(prepare, core)) as process:
            try:
                _wait_for(path, process)
                yield path
            finally:
                process.kill()


@contextmanager
def rsyslog(place: Path) -> Iterator[tuple[int, Path]]:
    """Run `rsyslogd` of this machine for lines by TCP; yield its port and the file of all lines."""
    program = shutil.which("rsyslogd") or shutil.which("rsyslogd", path="/usr/sbin")
    if program is None:
        raise NotPrepared("no rsyslogd: install it (Debian has a package)")
    port, path = free_port(), place / "rsyslog.log"
    settings = place / "rsyslog.conf"
    settings.write_text(
        f'global(workDirectory="{place}")\n'
        'module(load="imtcp")\n'
        'template(name="line" type="string" string="%rawmsg-after-pri%\\n")\n'
        f'input(type="imtcp" address="127.0.0.1" port="{port}" ruleset="kept")\n'
        f'ruleset(name="kept") {{ action(type="omfile" file="{path}" template="line"'
        ' asyncWriting="on" ioBufferSize="64k") }\n'
    )
    command = [program, "-n", "-f", str(settings), "-i", str(place / "rsyslog.pid")]
    with subprocess.Popen(command, preexec_fn=partial(prepare, SERVER_CORE)) as process:
        try:
            _wait_for_port(port, process)
            yield port, path
        finally:
            process.kill()


@contextmanager
def nats(*, core: int | None = SERVER_CORE) -> Iterator[Server]:
    """Run `nats-server` of this machine, with JetStream in memory."""
    program = shutil.which("nats-server")
    if program is None:
        raise NotPrepared("no nats-server: install it")
    port = free_port()
    with folder() as stored:
        command = [program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(stored)]
        with running(command, "Server is ready", core) as (process, _):
            yield Server(process.pid, port)


@cache
def kept(kind: Kind, workers: int = 1, core: int | None = SERVER_CORE, sync: Sync = "no") -> Server:
    """Return a server that this process starts at the first call, and keeps until it ends."""
    return _KEPT.enter_context(started(kind, workers, core, sync))


def started(
    kind: Kind,
    workers: int = 1,
    core: int | None = SERVER_CORE,
    sync: Sync = "no",
    place: Path | None = None,
) -> Started:
    """Return a server for one sample: its memory is not that of an earlier one."""
    if kind == "hub":
        return hub(workers, core=core, sync=sync, place=place)
    return redis(core=core, sync=sync, place=place)


def cpu_seconds(server: Server) -> float:
    """Return the seconds that all threads of the server have used, as the kernel counts them."""
    used = 0
    for task in Path(f"/proc/{server.pid}/task").iterdir():
        used += int((task / "schedstat").read_text().split()[0])
    return used / 1e9


@contextmanager
def folder(place: Path | None = None) -> Iterator[Path]:
    """Yield a folder for what a server stores, on a disk.

    Where temporary files are in memory, a sync has no effect.
    """
    if place is not None:
        yield place
        return
    BUILT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="server-", dir=BUILT) as name:
        yield Path(name)


@contextmanager
def memory_folder() -> Iterator[Path]:
    """Yield a folder in memory, where the machine has one."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="interlock-", dir=memory if memory.is_dir() else None
    ) as name:
        yield Path(name)


def _wait_for(path: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until somebody listens on a Unix socket: it says nothing of it."""
    end = time.monotonic() + 10
    while time.monotonic() < end and process.poll() is None:
        with socket.socket(socket.AF_UNIX) as trial:
            if trial.connect_ex(path) == 0:
                return
        time.sleep(0.01)
    raise NotPrepared(f"{process.args!r} did not start")


def _wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until somebody listens at a port: it says nothing of it."""
    end = time.monotonic() + 10
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    raise NotPrepared(f"{process.args!r} did not start")


@contextmanager
def _socket_folder() -> Iterator[str]:
    """Yield the path of a socket to be, a short one: the system allows some 100 bytes."""
    with tempfile.TemporaryDirectory(prefix="interlock-") as name:
        yield f"{name}/socket"


_KEPT = ExitStack()
atexit.register(_KEPT.close)


@contextmanager
def running(
    command: list[str], ready: str, core: int | None, environment: dict[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start the process, and yield it with the line in which it said that it was ready."""
    with subprocess.Popen(
        command,
        env=os.environ | (environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=partial(prepare, core),
    ) as process:
        try:
            assert process.stdout is not None
            said = []
            for line in process.stdout:
                said.append(line)
                if ready in line:
                    break
            else:
                raise NotPrepared(f"{command[0]} did not start: {' '.join(said[-1:]).strip()}")
            # Its later output must not fill the pipe.
            threading.Thread(target=process.stdout.read, daemon=True).start()
            yield process, said[-1].strip()
        finally:
            process.kill()
            # Its data is removed next: it must not write on.
            process.wait()


def prepare(core: int | None) -> None:
    """Prepare a new process: stay on this core, and open as many files as the system allows.

    It also ends when the one that started it ends, or a row that is given up would leave a server
    behind.
    """
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    end_with_parent()
    if core is not None:
        os.sched_setaffinity(0, {core})


def end_with_parent(how: int = signal.SIGKILL) -> None:
    """Let this process end, by this signal, when the thread ends that started it; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, how)


def port_of(line: str) -> int:
    """Return the port of the line in which a hub says that it is ready."""
    found = re.search(r"ready on \S+?:(\d+)", line)
    if found is None:
        raise NotPrepared(f"the hub said no port: {line}")
    return int(found[1])


def free_port() -> int:
    """Return a port of loopback at which nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        assert isinstance(port, int)
        return port


PR_SET_PDEATHSIG = 1
