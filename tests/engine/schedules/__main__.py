"""Random schedules in number: the naive model, a hub and a Redis must give the same replies.

    python -m tests.engine.schedules --calls 1000000
    python -m tests.engine.schedules --seed 7                           the same again
    python -m tests.engine.schedules --calls 10000000 --jobs 2 --write  the summary: SCHEDULES.md

Each hundred thousand calls have a seed, a hub and a Redis of their own. The first difference ends
the run; its steps are made few and kept in a file, whose path is printed. Its seed is that of a
run with `--seed`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import shlex
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.engine.faults.servers import die_with_parent
from tests.engine.schedules.compare import run_alone
from tests.engine.schedules.report import SUMMARY, summary

PART = 100_000
"""Calls of one seed."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.engine.schedules")
    parser.add_argument("--calls", type=int, default=PART)
    parser.add_argument("--seed", type=int, help="of the first part; the next one has the next")
    parser.add_argument("--jobs", type=int, default=1, help="parts at the same time")
    parser.add_argument("--write", action="store_true", help=f"write {SUMMARY.name}")
    given = parser.parse_args()
    seed = random.randrange(2**32) if given.seed is None else given.seed
    print(f"seed {seed}, {given.calls:,} calls", flush=True)
    started = time.monotonic()
    parts = [min(PART, given.calls - at) for at in range(0, given.calls, PART)]
    tally = Counter[str]()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(given.jobs, context, initializer=die_with_parent) as pool:
        under_way = {pool.submit(run_alone, seed + n, calls): n for n, calls in enumerate(parts)}
        for part in as_completed(under_way):
            if wrong := part.exception():
                pool.shutdown(cancel_futures=True)
                again = f"python -m tests.engine.schedules --seed {seed + under_way[part]}"
                sys.exit(f"{again}\n{type(wrong).__name__}: {wrong}")
            tally += part.result()
            rate = tally["calls"] / (time.monotonic() - started)
            print(f"{tally['calls']:,} calls, {rate:,.0f} a second", flush=True)
    if given.write:
        command = shlex.join(["python", "-m", "tests.engine.schedules", *sys.argv[1:]])
        text = summary(tally, command, seed, time.monotonic() - started)
        SUMMARY.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
