"""One peer's run: tasks are enqueued one by one, then one worker process is started, and the time
is from the first to the last that it handles."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.interpreters import ROOT, environment
from benchmarks.row import Sample
from benchmarks.servers import LOAD_CORE, prepare, started
from benchmarks.workers import environments, postgresql

LONGEST = 60.0
"""Seconds for all tasks; a worker that takes longer is given up."""


@dataclass(frozen=True, slots=True)
class Racer:
    """Who takes part."""

    name: str
    """Of its file under `peers`."""

    tasks: int = 10_000
    """Fewer where they would take more than some seconds."""

    pairs: int | None = None
    """Of a row at most, where a run takes long."""

    broker: str = "redis"
    node: bool = False
    handlers: int = 0
    """Ours: so many at once, and so many messages at most of a lease."""

    def command(self) -> list[str]:
        """Its program; what to do is added."""
        if self.node:
            return ["node", str(environments.HERE / "peers" / f"{self.name}.cjs")]
        python = sys.executable if self.handlers else str(environments.python(self.name))
        return [python, "-m", "benchmarks.workers.program", self.name]

    def environment(self) -> dict[str, str]:
        """The benchmarks and, but for ours, nothing of this package."""
        if self.handlers:
            return environment() | {"BENCH_HANDLERS": str(self.handlers)}
        if self.node:
            return {"NODE_PATH": str(environments.node_modules(self.name))}
        return {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}


def race(racer: Racer) -> Sample:
    """ns of a task that a worker handles; `enqueue` is ns of one that is enqueued."""
    with _broker(racer) as url:
        return run(racer.command(), racer.environment(), url, racer.tasks)


def run(command: list[str], variables: Mapping[str, str], url: str, tasks: int) -> Sample:
    """The same of a program given by its command."""
    with tempfile.TemporaryDirectory() as folder:
        pipe = Path(folder) / "done"
        os.mkfifo(pipe)
        said = {"BENCH_BROKER": url, "BENCH_COUNT": str(tasks), "BENCH_DONE": str(pipe)}
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        start = partial(
            subprocess.Popen,
            cwd=folder,
            env=inherited | dict(variables) | said,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=partial(prepare, LOAD_CORE),
        )
        enqueued = _enqueue(start, command)
        done = _work(start, command, pipe)
    return Sample(
        done["seconds"] / (tasks - 1) * 1e9,
        tasks,
        lost=tasks - round(done["handled"]),
        details={"enqueue": enqueued / tasks * 1e9},
    )


def _enqueue(start: Any, command: list[str]) -> float:
    with start([*command, "enqueue"]) as program:
        out, _ = program.communicate(timeout=LONGEST)
    if program.returncode:
        raise RuntimeError(f"enqueue: {' '.join(out.split()[-40:])}")
    seconds: float = json.loads(out.splitlines()[-1])["seconds"]
    return seconds


def _work(start: Any, command: list[str], pipe: Path) -> dict[str, float]:
    """Until all are handled; then the worker is ended."""
    # Without waiting for the worker to open it too.
    done = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(done) as lines, tempfile.TemporaryFile("w+") as said:
        with start([*command, "work"], stdout=said, start_new_session=True) as worker:
            try:
                end = time.monotonic() + LONGEST
                while not select.select([lines], [], [], 0.1)[0]:
                    if worker.poll() is not None or time.monotonic() > end:
                        said.seek(0)
                        last = "".join(said.readlines()[-3:]).strip()
                        raise RuntimeError(f"the worker did not handle all: {last}")
            finally:
                _end(worker)
        figures: dict[str, float] = json.loads(lines.readline())
        return figures


def _end(worker: subprocess.Popen[str]) -> None:
    worker.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        worker.wait(5)
    # Some have processes of their own, which must not work on beside the next one.
    with suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)


@contextmanager
def _broker(racer: Racer) -> Iterator[str]:
    """New for each run: nothing is left of an earlier one."""
    if racer.broker == "redis":
        with started("redis") as server:
            yield f"redis://127.0.0.1:{server.port}/0"
    else:
        with postgresql.cluster(postgresql.free_port()) as (_, url):
            yield url


OURS = (Racer("ours", handlers=1), Racer("ours", handlers=16))
RACERS = (
    Racer("huey"),
    Racer("taskiq"),
    Racer("dramatiq"),
    Racer("bullmq", node=True),
    Racer("saq"),
    Racer("arq"),
    Racer("celery", pairs=3),
    Racer("rq", tasks=2_000, pairs=3),
    Racer("procrastinate", tasks=2_000, pairs=3, broker="postgresql"),
)
