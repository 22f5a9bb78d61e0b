"""Runs the rows, prints the table, writes the run down.

    python -m benchmarks [--rows GLOB ...] [--repeat 5] [--out FOLDER] [--list]

A run of all rows goes to benchmarks/runs/DATE-MACHINE/ unless --out names another folder; a run of
some rows is only printed, unless --out is given.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from benchmarks import machine, report
from benchmarks.interpreters import (
    ROOT,
    NotPrepared,
    behaviours_python,
    environment,
    rust_program,
)
from benchmarks.report import Result
from benchmarks.row import Row
from benchmarks.scenarios import ROWS
from benchmarks.servers import end_with_parent


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rows; return 0 if all ran and none lost or misordered a message, else 1.

    The bars do not count, whether they are met or not.
    """
    options = _options(arguments)
    rows = [row for row in ROWS if any(fnmatch(row.name, glob) for glob in options.rows)]
    if options.list:
        print("\n".join(f"{row.name:28} {row.title}" for row in rows))
        return 0
    if not rows:
        raise SystemExit(f"no row is called {' or '.join(options.rows)}; --list names them")
    start = time.monotonic()
    taken = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    results = []
    taken_for: dict[str, Result] = {}
    for number, row in enumerate(rows, 1):
        print(f"[{number}/{len(rows)}] {row.name}", file=sys.stderr, flush=True)
        if row.source not in taken_for:
            taken_for[row.source] = _take(row, options.repeat)
        results.append(taken_for[row.source].seen_as(row))
    print(report.tables(results))
    print()
    print("\n".join(report.remarks(results)))
    folder = options.out
    if folder is None and len(rows) == len(ROWS):
        folder = ROOT / "benchmarks" / "runs" / f"{taken[:10]}-{machine.slug()}"
    if folder is not None:
        described = {"taken": taken} | machine.describe()
        report.write(folder, results, described, time.monotonic() - start)
        print(f"Written to {folder}.", file=sys.stderr)
    return int(any(result.verdict in ("WRONG", "failed") for result in results))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--rows", nargs="+", default=["*"], metavar="GLOB", help="only these, as 'threads/*'"
    )
    parser.add_argument(
        "--repeat", type=_positive, default=5, metavar="N", help="pairs of each row (default 5)"
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where the run is written down")
    parser.add_argument("--list", action="store_true", help="name the rows and end")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return value


def _take(row: Row, repeat: int) -> Result:
    result = Result(row)
    try:
        command = [*_command(row), str(repeat)]
        others = machine.Others()
        with subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=end_with_parent,
        ) as child:
            try:
                out, complaint = child.communicate(timeout=row.longest)
            except subprocess.TimeoutExpired:
                child.kill()
                out, complaint = child.communicate()
                complaint = f"given up after {row.longest:g} s"
        result.others = others.share()
        result.samples = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        if child.returncode:
            said = complaint.strip().splitlines() or [f"ended with {child.returncode}"]
            result.failure = said[-1]
            print(complaint, file=sys.stderr)
    except NotPrepared as error:
        result.failure = str(error)
    return result


def _command(row: Row) -> list[str]:
    if row.runner == "rust":
        return [str(rust_program()), row.source]
    python = sys.executable if row.runner == "python" else str(behaviours_python())
    return [python, "-m", "benchmarks.child", row.source]
