"""A worker is killed while it handles a message: how long after the end of its lease another, which
waits all the time, has the message."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from benchmarks.interpreters import environment
from benchmarks.pipelines import connected
from benchmarks.row import Sample
from benchmarks.servers import LOAD_CORE, Server, prepare, started

LEASE = 1.0
"""Seconds; the worker renews it as long as it lives."""

LONGEST = 30.0
STUCK = "benchmarks.workers.stuck"


def killed() -> Sample:
    """Measure the ms; they cannot be less than the time between two looks of the one that waits."""
    with ExitStack() as stack:
        server = stack.enter_context(started("redis"))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pipe = folder / "begun"
        os.mkfifo(pipe)
        begun = os.open(pipe, os.O_RDWR)
        stack.callback(os.close, begun)
        variables = environment() | {
            "BENCH_BROKER": f"redis://127.0.0.1:{server.port}/0",
            "BENCH_DONE": str(pipe),
        }
        sent = subprocess.run(
            [sys.executable, "-m", STUCK], env=variables, capture_output=True, text=True, check=True
        )
        with _worker(variables | {"BENCH_STUCK": "1"}, folder / "first") as first:
            _read(begun)
            with _worker(variables, folder / "second"):
                first.kill()
                first.wait()
                deadline = _deadline(server, sent.stdout.strip())
                late = _read(begun) - deadline
    return Sample(late * 1e3, 1)


@contextmanager
def _worker(variables: dict[str, str], ready: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a worker, and yield it when it is ready, at which it writes this file."""
    flags = {
        "--concurrency": "1",
        "--lease": f"{LEASE:g}",
        "--log-level": "error",
        "--ready-file": str(ready),
    }
    command = [sys.executable, "-m", "interlock", "worker", f"{STUCK}:app"]
    command += [word for flag in flags.items() for word in flag]
    with subprocess.Popen(
        command,
        env=variables,
        preexec_fn=partial(prepare, LOAD_CORE),
    ) as process:
        try:
            end = time.monotonic() + LONGEST
            while not ready.exists():
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError("a worker did not start")
                time.sleep(0.01)
            yield process
        finally:
            process.kill()


def _read(begun: int) -> float:
    """Read the time at which a handler began.

    It is by the clock of the machine, which is the server's too.
    """
    if not select.select([begun], [], [], LONGEST)[0]:
        raise RuntimeError(f"nobody handled the message within {LONGEST:g} s")
    at: float = json.loads(os.read(begun, 1_000))["at"]
    return at


def _deadline(server: Server, message: str) -> float:
    queue = "il:{default}"
    told = connected(server).execute_command("FCALL_RO", "il1_peek", 1, queue, message)
    if not told or told[0] != b"leased":
        raise RuntimeError(f"message {message} is {told[:1]}: the lease ended before it was read")
    return int(told[3]) / 1e6
