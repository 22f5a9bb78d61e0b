"""Footprint of Interlock while it has nothing to do: processor time of a command that only prints,
memory and wake-ups of a process at rest.

A wake-up is a thread that slept and runs again: the kernel counts its voluntary context switches.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.clusters.nodes import started, until
from benchmarks.interpreters import environment
from benchmarks.row import Pair, Row, Sample, also
from benchmarks.scenarios.exporter import served
from benchmarks.servers import memory_folder, redis

RUNS = 20
CAPACITY = 1_000_000
SETTLED = 5.0
"""Seconds after which what a start leaves to do is done."""
WATCHED = 10.0
"""Seconds for which wake-ups are counted."""


def spent(*arguments: str) -> Callable[[int], Pair]:
    """Return what measures ms of CPU time of Python with these arguments, all of its start and end
    included."""

    def pair(_: int) -> Pair:
        took = []
        quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
        for _ in range(RUNS):
            child = os.posix_spawn(
                sys.executable, [sys.executable, *arguments], environment(), file_actions=quiet
            )
            _, status, used = os.wait4(child, 0)
            if status:
                raise RuntimeError(f"{' '.join(arguments)} ended with {status}")
            took.append((used.ru_utime + used.ru_stime) * 1e3)
        return Pair(Sample(sorted(took)[RUNS // 2], RUNS))

    return pair


def node(_: int) -> Pair:
    """Measure wake-ups a second of a node without rows, and its resident memory."""
    with redis() as engine, memory_folder() as place:
        # In a file of its own: a node imports all that the file of its rows imports.
        rows = place / "rows.py"
        rows.write_text("from interlock import Row, U32\n\n\nclass Users(Row):\n    karma: U32\n")
        flags = ("--table", f"users={rows}:Users")
        with started("a1", engine, place, None, CAPACITY, *flags) as one:
            until(lambda: one.status()["serves"])
            return Pair(at_rest(one.server.pid))


def dashboard(_: int) -> Pair:
    """Measure wake-ups a second of a dashboard that nobody looks at."""
    with redis() as engine, served("dashboard", f"redis://127.0.0.1:{engine.port}") as (pid, _page):
        return Pair(at_rest(pid))


def at_rest(pid: int) -> Sample:
    """Return the wake-ups a second of a process."""
    time.sleep(SETTLED)
    before, began = wakes(pid), time.monotonic()
    time.sleep(WATCHED)
    rate = (wakes(pid) - before) / (time.monotonic() - began)
    status = Path(f"/proc/{pid}/status").read_text()
    return Sample(rate, 0, details={"resident_mb": _number("VmRSS", status) / 1000})


def wakes(pid: int) -> int:
    """Return how often the threads of a process have been woken."""
    tasks = Path(f"/proc/{pid}/task").glob("*/status")
    return sum(_number("voluntary_ctxt_switches", one.read_text()) for one in tasks)


def _number(name: str, status: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)
    assert found is not None
    return int(found[1])


def _absolute(name: str, title: str, bar: float | None, pair: Callable[[int], Pair]) -> Row:
    return Row(
        name=f"footprint/{name}",
        title=title,
        table="At rest",
        peer="",
        bar=bar,
        unit="ms",
        unseen=False,
        pairs=3,
        pair=pair,
    )


_COMMAND = ("-m", "interlock")
_NODE = replace(_absolute("node", "wake-ups of a node without rows", 5, node), unit="/s")
_DASHBOARD = _absolute("dashboard", "wake-ups of a dashboard without viewers", 1, dashboard)
ROWS = (
    _absolute("version", "CPU time of interlock --version", 40, spent(*_COMMAND, "--version")),
    _absolute("help", "CPU time of interlock --help", None, spent(*_COMMAND, "--help")),
    _absolute("import", "CPU time of import interlock", None, spent("-c", "import interlock")),
    _NODE,
    replace(
        also(_NODE, "memory", "resident memory of a node without rows", "resident_mb", 60, None),
        unit="MB",
    ),
    replace(_DASHBOARD, unit="/s"),
)
