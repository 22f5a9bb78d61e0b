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
from typing import Any, Literal

from benchmarks.interpreters import ROOT, environment
from benchmarks.row import Sample
from benchmarks.servers import LOAD_CORE, nats, prepare, started
from benchmarks.workers import environments, postgresql

LONGEST = 150.0
"""Seconds for all tasks; a worker that takes longer is given up."""

Broker = Literal["redis", "hub", "nats", "postgresql"]


@dataclass(frozen=True, slots=True)
class Racer:
    """A program that takes part, and how it is run."""

    name: str
    """Name of its file under `peers`."""

    tasks: int = 100_000
    """Fewer where they would take more than half a minute."""

    pairs: int | None = 3
    """Maximum of a row whose runs take long."""

    broker: Broker = "redis"
    node: bool = False
    ours: bool = False
    """It needs this package, and no environment of its own."""

    pins: str = ""
    """The peer whose environment it shares."""

    handlers: int | None = None
    """Concurrency; None: as given by its file, which for ours is the default."""

    asynchronous: bool = False
    """Ours: the task is a coroutine, in the asyncio pool."""

    busy: int = 0
    """CPU time of a handler, in µs."""

    def command(self) -> list[str]:
        """Return the command of its program; what to do is added."""
        if self.node:
            return ["node", str(environments.HERE / "peers" / f"{self.name}.cjs")]
        python = sys.executable if self.ours else str(environments.python(self.pins or self.name))
        return [python, "-m", "benchmarks.workers.program", self.name]

    def environment(self) -> dict[str, str]:
        """Return the variables that it runs with.

        They name the benchmarks and, but for ours, nothing of this package.
        """
        told = {} if self.handlers is None else {"BENCH_HANDLERS": str(self.handlers)}
        if self.busy:
            told["BENCH_BUSY"] = str(self.busy)
        if self.ours:
            pool = "asyncio" if self.asynchronous else "thread"
            return environment() | told | {"BENCH_POOL": pool}
        if self.node:
            return told | {"NODE_PATH": str(environments.node_modules(self.name))}
        return told | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}


def race(racer: Racer) -> Sample:
    """Measure the ns of a task that a worker handles.

    `enqueue` is ns of one that is enqueued, `cpu_ns` what the worker's process used for one, where
    it is a program in Python, and `beyond_ns` the same without the work of the handler.
    """
    with _broker(racer) as url:
        return run(racer.command(), racer.environment(), url, racer.tasks)


def run(command: list[str], variables: Mapping[str, str], url: str, tasks: int) -> Sample:
    """Measure the same of a program given by its command."""
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
        details={
            "enqueue": enqueued / tasks * 1e9,
            "cpu_ns": done.get("cpu", 0.0) / (tasks - 1) * 1e9,
            "beyond_ns": done.get("beyond", 0.0) / (tasks - 1) * 1e9,
        },
    )


def _enqueue(start: Any, command: list[str]) -> float:
    with start([*command, "enqueue"]) as program:
        out, _ = program.communicate(timeout=LONGEST)
    if program.returncode:
        raise RuntimeError(f"enqueue: {' '.join(out.split()[-40:])}")
    seconds: float = json.loads(out.splitlines()[-1])["seconds"]
    return seconds


def _work(start: Any, command: list[str], pipe: Path) -> dict[str, float]:
    """Wait until all are handled, and return what the worker wrote; then the worker is ended."""
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
    """Start a broker, and yield its URL.

    It is new for each run: nothing is left of an earlier one.
    """
    match racer.broker:
        case "redis":
            with started("redis") as server:
                yield f"redis://127.0.0.1:{server.port}/0"
        case "hub":
            with started("hub") as server:
                yield f"interlock://127.0.0.1:{server.port}"
        case "nats":
            with nats() as server:
                yield f"nats://127.0.0.1:{server.port}"
        case "postgresql":
            with postgresql.cluster(postgresql.free_port()) as (_, url):
                yield url


OURS = Racer("ours", ours=True)
RACERS = (
    Racer("huey"),
    Racer("taskiq", tasks=20_000),
    Racer("dramatiq", tasks=20_000),
    Racer("bullmq", node=True),
    Racer("saq", tasks=20_000),
    Racer("arq", tasks=20_000),
    Racer("celery", tasks=10_000),
    Racer("rq", tasks=2_000),
    Racer("procrastinate", tasks=2_000, broker="postgresql"),
    Racer("locked", tasks=20_000, pins="huey"),
    Racer("streams"),
    Racer("jetstream", tasks=20_000, broker="nats"),
)
