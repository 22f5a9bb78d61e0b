"""A PostgreSQL of the tests: a cluster in a folder of its own, on a free port of loopback."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tests.hub.servers import free_port, missing

PATIENCE = 30.0


@contextmanager
def postgresql(*flags: str) -> Iterator[str]:
    """The URL of an empty one, with settings as `-c name=value`.

    Without its programs the test is skipped, or fails in the CI.
    """
    with Server(*flags) as server:
        yield server.url


class Server:
    """One that can be killed and started again, at the same place."""

    def __init__(self, *flags: str) -> None:
        self._programs = found()
        self._flags = flags
        # Not pytest's folder: the user postgres may not go there.
        self._temporary = tempfile.TemporaryDirectory(prefix="interlock-postgresql-")
        self._folder = Path(self._temporary.name)
        self._port = str(free_port())
        self._who: list[str | Path] = []
        self.process: subprocess.Popen[bytes] | None = None
        self.url = f"postgresql://bank@127.0.0.1:{self._port}/postgres"

    def __enter__(self) -> Self:
        folder = self._folder
        if os.geteuid() == 0:
            # It refuses to run as root.
            shutil.chown(folder, "postgres", "postgres")
            self._who = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]
        made = subprocess.run(
            [*self._who, *self._make()],
            capture_output=True, text=True, cwd=folder, timeout=PATIENCE,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        self.start()
        return self

    def _make(self) -> list[str | Path]:
        make: list[str | Path] = [self._programs / "initdb", "-D", self._folder / "data"]
        return [*make, "-U", "bank", "--auth", "trust", "--no-sync"]

    def start(self) -> None:
        folder, port = self._folder, self._port
        serve: list[str | Path] = [self._programs / "postgres", "-D", folder / "data", "-p", port]
        ready: list[str | Path] = [self._programs / "pg_isready", "-q", "-h", "127.0.0.1"]
        log = folder / "log"
        with log.open("a") as output:
            self.process = subprocess.Popen(
                [*self._who, *serve, "-h", "127.0.0.1", "-k", folder, *self._flags],
                stdout=output, stderr=output, cwd=folder,
            )  # fmt: skip
        until = time.monotonic() + PATIENCE
        while subprocess.run([*ready, "-p", port]).returncode:
            assert self.process.poll() is None and time.monotonic() < until, log.read_text()
            time.sleep(0.05)

    def kill(self) -> None:
        """End all its processes at once: it recovers when it is started again."""
        self._end(signal.SIGQUIT)

    def _end(self, number: int) -> None:
        process, self.process = self.process, None
        if process is not None:
            if process.poll() is None:
                process.send_signal(number)
            process.wait(PATIENCE)

    def __exit__(self, *_: object) -> None:
        try:
            # "Fast": it ends sessions that are still there.
            self._end(signal.SIGINT)
        finally:
            self._temporary.cleanup()


class Standby(Server):
    """A standby that follows another server, without the other one's waiting for it."""

    def __init__(self, primary: Server, *flags: str) -> None:
        super().__init__(*flags)
        self._primary = primary

    def _make(self) -> list[str | Path]:
        copy: list[str | Path] = [self._programs / "pg_basebackup", "-D", self._folder / "data"]
        return [*copy, "-d", self._primary.url, "-R", "-c", "fast", "--no-sync"]


def found() -> Path:
    """The folder of its programs: Debian puts them where no shell looks."""
    folders = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = max(folders, key=lambda path: int(path.parts[-3]), default=None)
    other = shutil.which("initdb")
    if newest is None and other is not None:
        newest = Path(other).resolve()
    if newest is None or shutil.which("psql") is None:
        missing("no PostgreSQL: install postgresql")
    assert newest is not None
    return newest.parent
