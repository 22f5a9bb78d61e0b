"""A server that keeps streams, as a process of the tests, to be stopped, frozen and restarted."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from interlock.cluster.streams import ChangeStream, open_log
from tests.cluster.nodes import freeze
from tests.hub.servers import free_port, missing

DC = "dc"
PATIENCE = 60.0


def eventually(
    done: Callable[[], object], what: str | Callable[[], str] = "", wait: float = PATIENCE
) -> None:
    """Wait until something is so."""
    until = time.monotonic() + wait
    while not done():
        if time.monotonic() >= until:
            raise AssertionError(f"not in time: {(what() if callable(what) else what) or done}")
        time.sleep(0.01)


class Engine:
    """A server with its data in a folder, on a port that stays the same."""

    program = ""
    starts = PATIENCE
    """Seconds that its start may take."""
    is_slow = False
    """Its tests run only with INTERLOCK_STREAMS=all."""
    unfit: ClassVar[list[tuple[dict[str, Any], str]]]
    """Settings of a log that nodes refuse, and words of the error. Empty if nodes read the settings
    of the server instead."""

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
        eventually(self.ready, lambda: f"{self.program}: {self.said()}", self.starts)

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

    def kill(self) -> None:
        """End it as kill -9 does."""
        if self.process is not None:
            os.kill(self.pid, signal.SIGKILL)
            self.process.wait(PATIENCE)
            self.process = None

    def close(self) -> None:
        # No one needs what it would still write.
        self.stop(signal.SIGKILL)

    def freeze(self) -> None:
        freeze(self.pid)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def make_log(self, name: str, settings: dict[str, Any]) -> None:
        """Make a log with settings, as somebody else might."""
        raise NotImplementedError

    def delete_log(self, table: str, dc: str) -> None:
        """Delete a log, as an operator might."""
        raise NotImplementedError

    def spoil_log(self, name: str) -> str | None:
        """Give a log a setting that nodes refuse; return words of the error.

        None: nodes cannot see the settings of a log on this server.
        """
        raise NotImplementedError


class Guard:
    """An engine with a user of nodes, `node`, that can be denied one right at a time."""

    rights: ClassVar[dict[str, str]] = {}
    """Each right, and a call that needs it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def deny(self, right: str | None) -> None:
        """Take this right from the user, and give it all others."""
        raise NotImplementedError

    def names(self, right: str) -> str:
        """Return words about a missing right that an error must have."""
        return "its user lacks a right: "

    def url(self, login: str) -> str:
        parts = urlsplit(self.engine.url)
        host = parts.netloc.rpartition("@")[2]
        return parts._replace(netloc=f"{login}@{host}").geturl()

    @contextmanager
    def opened(self, login: str = "node:node", table: str = "t") -> Iterator[ChangeStream]:
        stream = open_log(self.url(login), table, DC, role="append")
        yield stream
        stream.close()

    @contextmanager
    def as_admin(self) -> Iterator[ChangeStream]:
        stream = open_log(self.engine.url, "t", DC, role="append")
        yield stream
        stream.close()
