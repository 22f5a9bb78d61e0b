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

from tests.hub.servers import free_port, missing

PATIENCE = 30.0


@contextmanager
def postgresql() -> Iterator[str]:
    """The URL of an empty one; without its programs the test is skipped, or fails in the CI."""
    programs = found()
    # Not pytest's folder: the user postgres may not go there.
    with tempfile.TemporaryDirectory(prefix="interlock-postgresql-") as name:
        folder = Path(name)
        who: list[str | Path] = []
        if os.geteuid() == 0:
            # It refuses to run as root.
            shutil.chown(folder, "postgres", "postgres")
            who = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]
        make: list[str | Path] = [programs / "initdb", "-D", folder / "data", "-U", "bank"]
        made = subprocess.run(
            [*who, *make, "--auth", "trust", "--no-sync"],
            capture_output=True, text=True, cwd=folder, timeout=PATIENCE,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        port = str(free_port())
        serve: list[str | Path] = [programs / "postgres", "-D", folder / "data", "-p", port]
        ready: list[str | Path] = [programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", port]
        log = folder / "log"
        with log.open("w") as output:
            server = subprocess.Popen(
                [*who, *serve, "-h", "127.0.0.1", "-k", folder],
                stdout=output, stderr=output, cwd=folder,
            )  # fmt: skip
        try:
            until = time.monotonic() + PATIENCE
            while subprocess.run(ready).returncode:
                assert server.poll() is None and time.monotonic() < until, log.read_text()
                time.sleep(0.05)
            yield f"postgresql://bank@127.0.0.1:{port}/postgres"
        finally:
            if server.poll() is None:
                # "Fast": it ends sessions that are still there.
                server.send_signal(signal.SIGINT)
            server.wait(PATIENCE)


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
