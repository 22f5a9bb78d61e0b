"""Faults in number: random runs of a cluster, each by its seed, and the summary of them.

    python -m tests.cluster.faults.runs --runs 10
    python -m tests.cluster.faults.runs --seed 7                one run again
    python -m tests.cluster.faults.runs --seed 7 --only kill    with these faults instead
    python -m tests.cluster.faults.runs --runs 1000 --write     and its figures into FAULTS.md
    python -m tests.cluster.faults.runs --runs 50 --until-found     end with the first violation

The seed chooses the cluster, the faults, of whom, when and for how long; what clients and nodes
make of it is chance. The folder of a run that does not hold is kept: the history, the output of
every process, and what is wrong.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.cluster.faults.chaos import KINDS
from tests.cluster.faults.netns import PREFIX, sweep
from tests.cluster.faults.report import SUMMARY, added
from tests.cluster.faults.run import Result, plan_of, run
from tests.engine.faults.report import Taken


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.faults.runs")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seed", type=int, help="of the first run; the next one has the next")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no run after that")
    parser.add_argument("--only", action="append", choices=KINDS, default=[], help="kinds of fault")
    parser.add_argument("--until-found", action="store_true", help="end with the first violation")
    parser.add_argument("--keep", type=Path, help="where folders of runs that fail are kept")
    parser.add_argument("--write", action="store_true", help=f"add to {SUMMARY.name}")
    given = parser.parse_args()
    seed = random.randrange(2**32) if given.seed is None else given.seed
    counts: Counter[str] = Counter()
    started = time.monotonic()
    for number in range(given.runs):
        if time.monotonic() - started > given.minutes * 60:
            break
        result = one(seed + number, given.only, given.keep)
        counts["runs"] += 1
        counts["runs with a violation"] += bool(result.violations)
        counts.update(result.figures)
        print(result.line(), flush=True)
        for violation in result.violations[:6]:
            print(str(violation)[:1500], flush=True)
        if given.until_found and result.violations:
            break
        if (number + 1) % 25 == 0:
            minutes = (time.monotonic() - started) / 60
            print(f"{number + 1} runs in {minutes:.0f} minutes: {dict(counts)}", flush=True)
    print(dict(counts), flush=True)
    if given.write:
        taken = Taken.now(seed, time.monotonic() - started)
        before = SUMMARY.read_text(encoding="utf-8") if SUMMARY.exists() else ""
        SUMMARY.write_text(added(before, taken, counts), encoding="utf-8")
    sys.exit(bool(counts["runs with a violation"]))


def one(seed: int, only: list[str], keep: Path | None) -> Result:
    """A run in memory, for what a disk costs says nothing here; kept where it fails."""
    sweep()
    mark = f"{PREFIX}{os.getpid()}-run-{seed}"
    folder = Path(tempfile.gettempdir()) / mark
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", mark, str(folder)], check=True)
    try:
        result = run(plan_of(seed, only), folder)
        if result.violations:
            text = "\n".join(str(violation) for violation in result.violations)
            (folder / "violations").write_text(f"{result.line()}\n{text}\n", encoding="utf-8")
            place = keep or Path(tempfile.gettempdir())
            kept = place / f"cluster-faults-{seed}"
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(folder, kept)
            result.plan += f" (kept in {kept})"
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)
        folder.rmdir()
    return result


if __name__ == "__main__":
    main()
