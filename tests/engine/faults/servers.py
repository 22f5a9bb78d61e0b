"""The server of a run: a process on one port and one folder, however often it is killed."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.hub.servers import redis_program

ENGINES = ("hub", "redis")
PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """In a new process: nothing is left of a run that is killed itself."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Server:
    """A hub with a journal, or a Redis that appends, both with the strictest setting."""

    def __init__(self, engine: str, folder: Path, port: int, keeps: bool = True) -> None:
        """`keeps`: False for one that keeps nothing, of which the checks must tell."""
        self.engine = engine
        self.url = f"{'interlock' if engine == 'hub' else 'redis'}://127.0.0.1:{port}"
        self.output = folder / "server.out"
        self.starts = 0
        self._command = (
            _hub(folder, port, keeps) if engine == "hub" else _redis(folder, port, keeps)
        )
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """It need not be ready yet: clients wait for it."""
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=die_with_parent,
            )
        self.starts += 1

    def ended(self) -> int | None:
        """Its exit code, if it ended by itself."""
        assert self._process is not None
        return self._process.poll()

    def kill(self) -> None:
        """At once, also where it is stopped."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def said(self) -> str:
        """The end of what it printed."""
        return self.output.read_text(errors="replace")[-2000:]


def _hub(folder: Path, port: int, keeps: bool) -> list[str]:
    journal = folder / "journal"
    journal.mkdir(exist_ok=True)
    config = folder / "hub.toml"
    text = f'[queues]\njournal = "{journal}"\ndurability = "always"\n' if keeps else ""
    config.write_text(f'port = {port}\nworkers = 2\n[log]\nlevel = "warning"\n{text}')
    return [sys.executable, "-m", "interlock", "hub", "--config", os.fspath(config)]


def _redis(folder: Path, port: int, keeps: bool) -> list[str]:
    data = folder / "redis"
    data.mkdir(exist_ok=True)
    settings = {
        "port": port,
        "bind": "127.0.0.1",
        "dir": data,
        "save": "",
        "databases": 1,
        "appendonly": "yes" if keeps else "no",
        "appendfsync": "always",
    }
    flags = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    return [redis_program(), *flags]
