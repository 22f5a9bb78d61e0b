"""Engines that keep streams, as processes of the tests, to be stopped, frozen and restarted."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.hub.servers import free_port, missing

PATIENCE = 60.0


def eventually(done: Callable[[], object], what: str = "") -> None:
    """Wait until something is so."""
    until = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < until, f"not in time: {what or done}"
        time.sleep(0.01)


class Engine:
    """A server with its data in a folder, on a port that stays the same."""

    program = ""
    exact_trim = False
    """It trims exactly to the number that is kept, not in blocks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        raise NotImplementedError

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        if shutil.which(self.program, path=f"{os.environ['PATH']}:/usr/sbin") is None:
            missing(f"no {self.program}")
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        eventually(self.ready, f"{self.program}: {(self.folder / 'log').read_text()[-2000:]}")

    def ready(self) -> bool:
        assert self.process is not None and self.process.poll() is None, self.said()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def said(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(PATIENCE)
            self.process = None

    def freeze(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)


class Redis(Engine):
    program = "redis-server"

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        return [
            self.program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
            "--appendonly", "yes", "--appendfsync", "always", "--dir", str(self.folder),
            "--repl-diskless-sync-delay", "0",
        ]  # fmt: skip

    def ready(self) -> bool:
        import redis

        assert self.process is not None and self.process.poll() is None, self.said()
        with redis.Redis(port=self.port) as client:
            try:
                return bool(client.ping())
            except redis.ConnectionError:
                return False


class Valkey(Redis):
    program = "valkey-server"


class Nats(Engine):
    program = "nats-server"

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        return [
            self.program, "-js", "-a", "127.0.0.1", "-p", str(self.port),
            "-sd", str(self.folder / "data"),
        ]  # fmt: skip

    def ready(self) -> bool:
        return super().ready() and "Server is ready" in self.said()


ENGINES: dict[str, type[Engine]] = {"redis": Redis, "valkey": Valkey, "nats": Nats}
