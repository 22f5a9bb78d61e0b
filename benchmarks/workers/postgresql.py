"""A PostgreSQL cluster of its own, on loopback, for the peer that needs one."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.interpreters import NotPrepared
from benchmarks.servers import end_with_parent

PATIENCE = 30.0
"""Seconds in which it has to be ready."""


@contextmanager
def cluster(port: int) -> Iterator[tuple[int, str]]:
    """Start a new cluster, and yield its process and a URL.

    It has the settings of a new cluster; all of it is gone afterwards.
    """
    programs = _programs()
    with tempfile.TemporaryDirectory(prefix="interlock-postgresql-") as name:
        folder = Path(name)
        who: list[str] = []
        if os.geteuid() == 0:
            # It refuses to run as root.
            shutil.chown(folder, "postgres", "postgres")
            who = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
            # The kernel forgets this when a process changes its user, so it is set afterwards.
            who += ["--pdeathsig=SIGINT", "--"]
        data = folder / "data"
        made = subprocess.run(
            [*who, str(programs / "initdb"), "-D", str(data), "-U", "load", "--auth", "trust"],
            capture_output=True,
            text=True,
            cwd=folder,
        )
        if made.returncode:
            raise NotPrepared(f"initdb: {made.stderr.strip().splitlines()[-1]}")
        settings = ["-p", str(port), "-h", "127.0.0.1", "-k", str(folder)]
        with subprocess.Popen(
            [*who, str(programs / "postgres"), "-D", str(data), *settings],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            preexec_fn=partial(end_with_parent, signal.SIGINT),
        ) as server:
            try:
                _wait(server, programs, port)
                yield server.pid, f"postgresql://load@127.0.0.1:{port}/postgres"
            finally:
                server.send_signal(signal.SIGINT)
                server.wait()


def _wait(server: subprocess.Popen[bytes], programs: Path, port: int) -> None:
    ready = [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
    end = time.monotonic() + PATIENCE
    while subprocess.run(ready).returncode:
        if server.poll() is not None or time.monotonic() > end:
            raise NotPrepared("postgres did not start")
        time.sleep(0.05)


def _programs() -> Path:
    """Find the programs of a server, which Debian puts where a shell does not look."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    folders = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = max(folders, key=lambda path: int(path.parts[-3]), default=None)
    if newest is None:
        raise NotPrepared("no PostgreSQL: install it (15 is what the figures are for)")
    return newest.parent


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
