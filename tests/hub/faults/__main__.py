"""All faults in full number, and the summary that is kept.

    python -m tests.hub.faults              as the tests run them, a few seconds each
    python -m tests.hub.faults --full       millions of requests, a hundred thousand connections
    python -m tests.hub.faults --write      in full, and the summary into tests/hub/FAULTS.md

Each has a seed, which is printed: `--only churn --seed 7` repeats one.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import re
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from tests.hub.faults.scenarios import SCENARIOS

ROOT = Path(__file__).parents[3]
SUMMARY = ROOT / "tests" / "hub" / "FAULTS.md"
ROUNDS = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.hub.faults")
    parser.add_argument("--full", action="store_true", help="the full number of everything")
    parser.add_argument("--write", action="store_true", help="in full, and write FAULTS.md")
    parser.add_argument("--only", choices=[*SCENARIOS, "parser"], help="one of them")
    parser.add_argument("--seed", type=int, help="the seed of a run to repeat")
    given = parser.parse_args()
    if given.write and given.only:
        parser.error("--write wants all of them")
    full = given.full or given.write
    sections = []
    for name, scenario in SCENARIOS.items():
        if given.only in (None, name):
            seed = random.randrange(2**32) if given.seed is None else given.seed
            count = scenario.full if full else scenario.share
            print(f"{name}: {count}, seed {seed}", flush=True)
            start = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                found = scenario.run(seed, count, Path(folder))
            found["seconds"] = round(time.monotonic() - start)
            found["seed"] = str(seed)
            sections.append(section(scenario.title, found))
            print(sections[-1], flush=True)
    if given.only in (None, "parser"):
        sections.append(section("Random input to the parser and to sessions", parser_fuzz(full)))
        print(sections[-1], flush=True)
    if given.write:
        SUMMARY.write_text(head() + "".join(sections), encoding="utf-8")


def parser_fuzz(full: bool) -> dict[str, object]:
    """The Rust test, in as many rounds."""
    words = "test --release --locked --package interlock-hub --test fuzz -- --nocapture"
    more = {"INTERLOCK_FUZZ_ROUNDS": str(ROUNDS)} if full else {}
    quick = {"CARGO_PROFILE_RELEASE_LTO": "off", "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16"}
    done = subprocess.run(
        ["cargo", *words.split()],
        cwd=ROOT,
        env={**os.environ, **quick, **more},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = re.findall(r"^\d+ (?:streams|conversations), .*$", done.stdout, re.MULTILINE)
    return dict(line.split(", ", 1)[::-1] for line in sorted(lines))


def section(title: str, found: dict[str, object]) -> str:
    rows = "".join(f"| {name} | {shown(value)} |\n" for name, value in found.items())
    return f"\n## {title}\n\n| | |\n|---|---|\n{rows}"


def shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def head() -> str:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    return f"""# The hub under fault

One run of `python -m tests.hub.faults --write`, {datetime.now(UTC):%Y-%m-%d}, commit {commit}, \
{os.cpu_count()} CPUs,
Linux {platform.release().partition("-")[0]}, CPython {platform.python_version()}, against \
redis-server 7.0.15. Every check
passed; otherwise this page is not written. The first comment of each module in [faults](faults)
says what it checks. The test suite runs a share of each with a new seed.
"""


if __name__ == "__main__":
    main()
