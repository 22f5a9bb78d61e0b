"""A few crash runs of each engine: `python -m tests.engine.faults --write` makes many, CRASHES.md
is their result."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import seeds
from tests.engine.faults.report import POISONED, SUMMARY
from tests.engine.faults.servers import ENGINES
from tests.hub.servers import needs_hub, redis_program

RUNS = 3
ROOT = Path(__file__).parents[3]


@pytest.mark.share(2)
@pytest.mark.watchdog(240)
@pytest.mark.parametrize("engine", ENGINES)
def test_no_acknowledged_call_is_lost_when_the_server_is_killed_or_stopped(
    engine: str, tmp_path: Path
) -> None:
    """Clauses 1, 2, 3, 8, 9, 13, 18 and 19."""
    needs_hub() if engine == "hub" else redis_program()
    seed = str(seeds.seed())
    flags = ["--runs", str(RUNS), "--jobs", str(RUNS), "--folder", str(tmp_path)]
    # In a process of its own: it forks, and this one has threads.
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.faults", "--engine", engine, "--seed", seed, *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.share(2)
@pytest.mark.watchdog(320)
@pytest.mark.parametrize("engine", ENGINES)
def test_only_the_poison_message_becomes_a_dead_letter(engine: str, tmp_path: Path) -> None:
    """Clauses 1, 2, 3, 9 and 10; of one pool, chosen by the seed, with or without other kills."""
    needs_hub() if engine == "hub" else redis_program()
    flags = ["--pool", "one", "--runs", "1", "--folder", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.faults.poison", "--engine", engine, *flags,
         "--seed", str(seeds.seed())],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_committed_summary_has_no_violation() -> None:
    for text in SUMMARY.read_text(encoding="utf-8").split(POISONED):
        _check_rows(text)


def _check_rows(text: str) -> None:
    least = 100 if "puts begun" in text else 5
    rows = dict(line.strip("| ").split(" | ", 1) for line in text.splitlines() if " | " in line)
    assert all(int(count.replace(",", "")) >= least for count in rows["runs"].split(" | "))
    assert set(rows["runs with a violation"].split(" | ")) == {"0"}
