"""Instructions of an operation beside those of its peer, counted by Valgrind.

    python -m benchmarks.instructions [--only GLOB ...] [--messages 3200] [--out FOLDER]

One process runs all operations and their peers under callgrind. Each is run once to warm up, then
for a number of messages, then for twice as many; the difference is what the messages cost, without
what a run costs once. So the figures can be repeated on a busy machine. Add an operation to
`OPERATIONS`: a function that takes a number of messages. Exits with 1 if a message was lost.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from benchmarks import machine, peers
from benchmarks.interpreters import ROOT
from benchmarks.row import Sample
from benchmarks.scenarios import single
from benchmarks.tables import counted

MARK = "getppid"
"""The C function at which callgrind writes its counts and starts anew; nothing else calls it."""

LONGEST = 1_800.0
HEAD = ("operation", "instructions", "peer", "its instructions", "ratio", "bar")


@dataclass(frozen=True, slots=True)
class Operation:
    """A loop that handles a number of messages."""

    name: str
    run: Callable[[int], Sample]
    """Handles at least that many messages; they must be a multiple of 64."""

    peer: str = ""
    """The operation that it is compared with; empty for a peer."""


QUEUE = "queue.Queue"
QUEUE_BATCHES = "queue.Queue, batches"
SIMPLE_QUEUE = "queue.SimpleQueue"
NO_LIMIT = "1 key, no limit"
NONE_STUCK = "2 of 400 keys, none stuck"

OPERATIONS = (
    Operation(QUEUE, peers.queue_cycle),
    Operation(QUEUE_BATCHES, lambda messages: peers.queue_batches(messages, single.BATCH)),
    Operation(SIMPLE_QUEUE, peers.simple_queue_cycle),
    Operation("single/0-keys", single.without_keys, QUEUE),
    Operation("single/1-key", single.with_keys(1), QUEUE),
    Operation("single/2-keys", single.with_keys(2), QUEUE),
    Operation("single/4-keys", single.with_keys(4), QUEUE),
    Operation("single/batches", single.in_batches, QUEUE_BATCHES),
    Operation("single/simple-queue", single.with_keys(1), SIMPLE_QUEUE),
    Operation(NO_LIMIT, single.limited(0)),
    Operation("single/limited-10", single.limited(10), NO_LIMIT),
    Operation("single/limited-10000", single.limited(10_000), NO_LIMIT),
    Operation("single/rated-10", single.limited(10, single.NEVER_REACHED), NO_LIMIT),
    Operation("single/rated-10000", single.limited(10_000, single.NEVER_REACHED), NO_LIMIT),
    Operation("single/groups-1", single.grouped(1), "single/2-keys"),
    Operation("single/groups-10000", single.grouped(10_000), "single/2-keys"),
    Operation(NONE_STUCK, single.transfers(False)),
    Operation("single/stuck-key", single.transfers(True), NONE_STUCK),
    *(Operation(f"dict {name}", counted.of_dict(name)) for name in counted.NAMES),
    *(
        Operation(f"table/{name}", counted.ours(name), f"dict {name.replace('object', 'row')}")
        for name in (*counted.NAMES, *counted.OBJECTS)
    ),
)

BARS = {row.name: row.bar for row in single.ROWS}
"""The ratios that are good enough. They are set for times, which follow the instructions here.

The times of `table/*` do not: a dict of that size mostly waits for memory."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, print and maybe write the table; return 0 if no message was lost, else 1."""
    options = _options(arguments)
    chosen = [one for one in OPERATIONS if any(fnmatch(one.name, glob) for glob in options.only)]
    needed = {one.name for one in chosen} | {one.peer for one in chosen}
    operations = [one for one in OPERATIONS if one.name in needed]
    if not operations:
        raise SystemExit(f"no operation is called {' or '.join(options.only)}")
    if options.counted:
        return _run(operations, options.messages)
    counts, lost = count([one.name for one in operations], options.messages)
    text = table(operations, counts)
    print(text)
    print(f"\nCPython {sys.version.split()[0]}, {options.messages} messages, {lost} lost")
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        figures: dict[str, Any] = {"messages": options.messages, "lost": lost}
        figures["instructions_per_message"] = counts
        figures |= {"python": sys.version, "valgrind": _said("valgrind", "--version")}
        figures |= {"cpu": machine.cpu(), "commit": _said("git", "rev-parse", "HEAD")}
        text_of_figures = json.dumps(figures, indent=1)
        (options.out / "instructions.json").write_text(text_of_figures + "\n")
        (options.out / "instructions.md").write_text(text + "\n")
    return int(lost > 0)


def count(names: Sequence[str], messages: int) -> tuple[dict[str, float], int]:
    """Return the instructions of a message of each operation, and the number of lost messages."""
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is not installed: apt-get install valgrind")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "callgrind"
        command = ["valgrind", "--tool=callgrind", f"--dump-before={MARK}"]
        command += [f"--callgrind-out-file={out}", sys.executable, "-m", "benchmarks.instructions"]
        command += ["--counted", "--messages", str(messages), "--only", *names]
        # The seed: or dicts collide in one run and not in the next.
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
        parts = sorted(Path(folder).glob("callgrind.*"), key=lambda part: int(part.suffix[1:]))
        totals = [_total(part) for part in parts]
    # Three marks an operation: after it is warm, after one run, after one of twice as many.
    if done.returncode or len(totals) != 3 * len(names):
        raise SystemExit(f"the counted process ended with {done.returncode}:\n{done.stderr}")
    counts = {
        name: (totals[3 * at + 2] - totals[3 * at + 1]) / messages for at, name in enumerate(names)
    }
    return counts, int(done.stdout)


def table(operations: Sequence[Operation], counts: dict[str, float]) -> str:
    """Return the counts as a table, each operation beside its peer."""
    lines = [HEAD, tuple("---" for _ in HEAD)]
    for one in operations:
        if one.peer:
            ours, theirs = counts[one.name], counts[one.peer]
            bar = BARS.get(one.name)
            good = "–" if bar is None else f"{bar:g}"
            lines.append(
                (one.name, f"{ours:,.0f}", one.peer, f"{theirs:,.0f}", f"{ours / theirs:.3f}", good)
            )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _run(operations: Sequence[Operation], messages: int) -> int:
    """Run the operations, with a mark after each part; print how many messages were lost."""
    gc.collect()
    # Or what this program consists of is gone through again and again.
    gc.freeze()
    lost = 0
    for one in operations:
        for part in (messages, messages, 2 * messages):
            lost += one.run(part).lost
            os.getppid()
    print(lost)
    return 0


def _total(part: Path) -> int:
    for line in part.read_text().splitlines():
        if line.startswith("totals: "):
            return int(line.split()[1])
    raise SystemExit(f"{part} has no total")


def _said(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--only", nargs="+", default=["*"], metavar="GLOB")
    parser.add_argument("--messages", type=int, default=50 * single.BATCH, metavar="N")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where the result is written")
    parser.add_argument("--counted", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
