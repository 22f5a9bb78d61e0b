"""Crashes in number: kill -9 and stops of workers, producers and servers, and the summary of it.

    python -m tests.engine.faults --runs 10                    of each engine
    python -m tests.engine.faults --engine hub --seed 7        one run again
    python -m tests.engine.faults --runs 500 --jobs 4 --write  and their figures into CRASHES.md
    python -m tests.engine.faults --mutant early-ack           until a check finds the fault

A run whose checks fail prints its seed and the lines that prove it, and its folder is kept. The
seed chooses who is killed or stopped, how and when; what the processes do then is chance.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.engine.faults.many import done
from tests.engine.faults.report import SUMMARY, Taken, added
from tests.engine.faults.run import Result
from tests.engine.faults.servers import ENGINES

EACH = 25
"""Runs after which it says how far it is."""
MUTANTS = ("early-ack", "unfenced", "forgetful")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.engine.faults")
    parser.add_argument("--runs", type=int, default=1, help="of each engine")
    parser.add_argument("--engine", choices=[*ENGINES, "all"], default="all")
    parser.add_argument("--seed", type=int, help="of the first run; the next one has the next")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no run after that")
    parser.add_argument("--mutant", choices=MUTANTS, default="", help="a fault to be found")
    parser.add_argument("--folder", type=Path, help="where the folders of the runs are")
    parser.add_argument("--write", action="store_true", help=f"add to {SUMMARY.name}")
    given = parser.parse_args()
    if given.write and given.mutant:
        parser.error("--write wants no mutant")
    seed = random.randrange(2**32) if given.seed is None else given.seed
    engines = ENGINES if given.engine == "all" else (given.engine,)
    print(f"seed {seed}, {given.runs} runs of each of {', '.join(engines)}", flush=True)
    place = Path(tempfile.mkdtemp(prefix="crashes-", dir=given.folder))
    started = time.monotonic()
    counts = {engine: Counter[str]() for engine in engines}
    failed = 0
    tasks = (
        (engine, seed + number, place / f"{engine}-{seed + number}", given.mutant)
        for number in range(given.runs)
        for engine in engines
        if time.monotonic() - started < given.minutes * 60
    )
    for engine, result in done(tasks, given.jobs):
        counts[engine]["runs"] += 1
        counts[engine].update(result.figures)
        failed += bool(result.violations)
        if result.violations:
            counts[engine]["runs with a violation"] += 1
            print(told(engine, result, place / f"{engine}-{result.seed}"), flush=True)
            if given.mutant:
                break
        if counts[engine]["runs"] % EACH == 0:
            print(f"{counts[engine]['runs']} runs of {engine}", flush=True)
    for engine in engines:
        print(engine, dict(counts[engine]), flush=True)
    if not failed or given.mutant:
        shutil.rmtree(place, ignore_errors=True)
    if given.write and not failed:
        taken = Taken.now(seed, time.monotonic() - started)
        before = SUMMARY.read_text(encoding="utf-8") if SUMMARY.exists() else ""
        SUMMARY.write_text(added(before, taken, counts), encoding="utf-8")
    sys.exit(bool(failed))


def told(engine: str, result: Result, folder: Path) -> str:
    again = f"python -m tests.engine.faults --engine {engine} --seed {result.seed}"
    found = "\n".join(str(violation) for violation in result.violations[:8])
    more = len(result.violations) - 8
    return f"{again}\n{found}\n" + (f"{more} more\n" if more > 0 else "") + f"kept in {folder}\n"


if __name__ == "__main__":
    main()
