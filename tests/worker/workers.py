"""`interlock worker` as a process of the tests, and what its handlers left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import interlock
from tests.worker.apps import shop

ROOT = Path(__file__).resolve().parents[2]
OURS = str(Path(interlock.__file__).parent) + os.sep
"""The path that every file of the package begins with; a clone may have its name, too."""
PATIENCE = 40.0
"""Seconds after which a test is given up as hung; nothing is expected to take them."""


def wait_for(what: Callable[[], bool], why: str) -> None:
    """Looks again and again until it holds."""
    until = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < until, why
        time.sleep(0.01)


class WorkerProcess:
    """One worker, whose output is kept."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def wait_for_line(self, text: str, times: int = 1) -> None:
        def there() -> bool:
            return self.output.count(text) >= times or self.process.poll() is not None

        wait_for(there, f"no {text!r} in:\n{self.output}")
        assert self.output.count(text) >= times, self.output

    def ready(self) -> WorkerProcess:
        self.wait_for_line(" ready")
        return self

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code

    def stopped(self) -> int:
        self.signal(signal.SIGTERM)
        return self.ended()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                self.lines.append(line)


class Workers:
    """Makes workers and ends those that a test left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: list[WorkerProcess] = []
        self.shop = shop.made(str(folder / "shop.db"))
        """Stays open: who closes a database last empties its log, and others meet that."""

    def start(
        self, *flags: str, app: str = "tests.worker.apps.shop:app", **more: str
    ) -> WorkerProcess:
        environment = {
            **os.environ,
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
            "PYTHONFAULTHANDLER": "1",
            "SHOP": str(self.folder / "shop.db"),
            **more,
        }
        command = [sys.executable, "-m", "interlock", "worker", app, "--audit", *flags]
        worker = WorkerProcess(command, self.folder, environment)
        self.made.append(worker)
        return worker

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self.made:
            if worker.process.poll() is None:
                # Its session is its own: processes of its pool go with it.
                os.killpg(worker.process.pid, signal.SIGKILL)
            worker.process.wait()
            if kind is not None:
                print(f"-- worker {worker.process.pid}\n{worker.output}")
        self.shop.close()

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """Return rows of the database that the shop's handlers write."""
        return self.shop.execute(query).fetchall()
