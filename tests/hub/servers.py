"""Servers for the tests: Redis itself, to compare with, and the hub as a process."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from interlock import _core
from interlock.hub.client import Client

INTERLOCK = Path(sys.executable).with_name("interlock")
REDIS_VERSION = "7.0.15"


def program(name: str) -> str:
    """The path of a program of Redis; without it the test is skipped, or fails in the CI."""
    found = shutil.which(name)
    if found is None:
        missing(f"no {name}: install redis-server and redis-tools")
    assert found is not None
    return found


def redis_program() -> str:
    """The server that is meant by Redis: `redis-server`, or what INTERLOCK_REDIS_SERVER names, such
    as a Valkey or a Redis of another version."""
    return os.environ.get("INTERLOCK_REDIS_SERVER") or program("redis-server")


def needs_hub() -> None:
    """Skip where the hub cannot be: it is for Linux."""
    if not hasattr(_core, "HubServer"):
        missing("this build has no hub")


def missing(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def redis_server(
    folder: Path, *flags: str, wanted: int = 0, heard: Callable[[], object] = lambda: None
) -> Iterator[tuple[str, int]]:
    """A Redis on loopback that stores nothing; it takes a free port unless one is wanted.

    `heard` is called, on a thread, at each line that it says once it is ready.
    """
    # One database, as the hub has.
    command = [redis_program(), *("--save", "", "--appendonly", "no", "--databases", "1")]
    command += ["--dir", str(folder), *flags]
    # Another process may take the port between the look and the start.
    for _ in range(5):
        port = wanted or free_port()
        process = subprocess.Popen(
            [*command, "--port", str(port), "--bind", "127.0.0.1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        said = []
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if "Ready to accept connections" in line:
                break
        else:
            process.wait()
            process.stdout.close()
            continue
        # Its later output must not fill the pipe.
        reader = threading.Thread(target=_hear, args=(process.stdout, heard), daemon=True)
        reader.start()
        try:
            yield "127.0.0.1", port
        finally:
            process.kill()
            process.wait()
            reader.join()
            process.stdout.close()
        return
    raise AssertionError("".join(said))


def _hear(lines: Iterable[str], heard: Callable[[], object]) -> None:
    for _ in lines:
        heard()


def version_of(port: int) -> str:
    """The version of the Redis at a port."""
    with Client(f"127.0.0.1:{port}") as client:
        info = client.call("INFO", "server")
    assert isinstance(info, bytes)
    found = re.search(rb"redis_version:(\S+)", info)
    assert found is not None
    return found[1].decode()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        assert isinstance(port, int)
        return port


@contextmanager
def refusing() -> Iterator[int]:
    """A port without a listener, reserved meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


class HubProcess:
    """`interlock hub` as a process that has said it is ready."""

    def __init__(self, *flags: str, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [INTERLOCK, "hub", *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        assert self.process.stdout is not None
        self.ready = self.process.stdout.readline()
        if not self.ready.startswith("interlock hub: ready on "):
            raise AssertionError(self.process.communicate(timeout=20))
        self.addresses = self.ready.removeprefix("interlock hub: ready on ").strip().split(", ")

    @property
    def port(self) -> int:
        return int(self.addresses[0].rpartition(":")[2])

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Send a signal, and answer the exit code and what was printed after the ready line."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err


@contextmanager
def hub_process(*flags: str, environment: dict[str, str] | None = None) -> Iterator[HubProcess]:
    """A hub as a process, killed at the end if it still runs."""
    needs_hub()
    hub = HubProcess(*flags, environment=environment)
    try:
        yield hub
    finally:
        hub.process.kill()
        hub.process.communicate()
