"""Jobs with a rate, two worker processes: how many begin in any second, and what CPU they take.

One job comes first, and the others when most of a second has passed. A limit that counts in windows
of a second then has a nearly unused window to spend, and the next one right after it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from benchmarks.interpreters import environment
from benchmarks.row import Sample
from benchmarks.servers import LOAD_CORE, Server, cpu_seconds, prepare, started
from benchmarks.workers import environments

JOBS, RATE, WORKERS = 1_000, 200, 2
PAUSE = 0.9
"""Seconds from the first job to the others."""

LONGEST = 60.0


def rated(ours: bool, burst: int = 1) -> Sample:
    """Measure the CPU of a job, of both workers and the server, in ns.

    `most` is the largest number of handlers that began within a second, and `tenth` within a tenth
    of it. Not `ours`: BullMQ's.
    """
    with ExitStack() as stack:
        server = stack.enter_context(started("redis"))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        variables = _variables(ours) | {
            "BENCH_BROKER": f"redis://127.0.0.1:{server.port}/0",
            "BENCH_COUNT": str(JOBS),
            "BENCH_RATE": str(RATE),
            "BENCH_BURST": str(burst),
            "BENCH_PAUSE": str(PAUSE),
        }
        sides = [server]
        for number in range(WORKERS):
            times, ready = folder / f"times-{number}", folder / f"ready-{number}"
            told = variables | {"BENCH_TIMES": str(times), "BENCH_READY": str(ready)}
            sides.append(stack.enter_context(_running(_command(ours, "work"), told, folder, ready)))
        before = [cpu_seconds(side) for side in sides]
        subprocess.run(
            _command(ours, "enqueue"),
            env=variables,
            cwd=folder,
            check=True,
            timeout=LONGEST,
            stdout=subprocess.DEVNULL,
        )
        begun = _wait(folder)
        used = [cpu_seconds(side) - at for side, at in zip(sides, before, strict=True)]
    times_of = sorted(at for at, _ in begun)
    return Sample(
        sum(used) / JOBS * 1e9,
        JOBS,
        lost=JOBS - len({number for _, number in begun}),
        details={
            "most": most_within(times_of, 1.0),
            "tenth": most_within(times_of, 0.1),
            "seconds": (times_of[-1] - times_of[0]) / 1e9,
            "server_ns": used[0] / JOBS * 1e9,
        },
    )


def most_within(times: Sequence[int], seconds: float) -> int:
    """Return the largest number of these sorted times, in ns, in any span of that length."""
    most = first = 0
    for last, at in enumerate(times):
        while at - times[first] >= seconds * 1e9:
            first += 1
        most = max(most, last - first + 1)
    return most


def _command(ours: bool, what: str) -> list[str]:
    if ours:
        return [sys.executable, "-m", "benchmarks.workers.program", "rated", what]
    return ["node", str(environments.HERE / "peers" / "rated.cjs"), what]


def _variables(ours: bool) -> dict[str, str]:
    if ours:
        return os.environ | environment()
    return os.environ | {"NODE_PATH": str(environments.node_modules("bullmq"))}


@contextmanager
def _running(
    command: list[str], variables: dict[str, str], folder: Path, ready: Path
) -> Iterator[Server]:
    with subprocess.Popen(
        command, env=variables, cwd=folder, preexec_fn=partial(prepare, LOAD_CORE)
    ) as process:
        try:
            end = time.monotonic() + LONGEST
            while not ready.exists():
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"{command[-1]}: a worker did not start")
                time.sleep(0.01)
            yield Server(process.pid, 0)
        finally:
            process.kill()


def _wait(folder: Path) -> list[tuple[int, int]]:
    """Return the time and number of each job that began, once all have."""
    end = time.monotonic() + LONGEST
    while True:
        lines = [line for path in folder.glob("times-*") for line in path.read_text().split("\n")]
        # The last line of a file may be half written.
        begun = [
            (int(words[0]), int(words[1])) for line in lines if len(words := line.split()) == 3
        ]
        if len(begun) >= JOBS:
            return begun
        if time.monotonic() > end:
            raise RuntimeError(f"only {len(begun)} of {JOBS} jobs began")
        time.sleep(0.1)
