"""Races of workers: the figures of a program, and the report of one that fails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.row import Sample
from benchmarks.workers import race
from benchmarks.workers.environments import HERE, NODE, PYTHON
from benchmarks.workers.race import OURS, RACERS
from benchmarks.workers.rated import most_within

PROGRAM = """
import json, os, sys, time
if sys.argv[1] == "enqueue":
    ENQUEUE
    print(json.dumps({"seconds": 0.5}))
else:
    WORK
    handled = int(os.environ["BENCH_COUNT"]) - 1
    with open(os.environ["BENCH_DONE"], "w") as pipe:
        line = {"seconds": 2.0, "cpu": 1.0, "beyond": 0.25, "handled": handled}
        print(json.dumps(line), file=pipe)
    time.sleep(3600)
"""


def run(folder: Path, enqueue: str = "pass", work: str = "pass") -> Sample:
    program = folder / "program.py"
    program.write_text(PROGRAM.replace("ENQUEUE", enqueue).replace("WORK", work))
    return race.run([sys.executable, str(program)], {}, "redis://nowhere", 101)


def test_time_counts_from_first_to_last_and_unhandled_messages_as_lost(
    tmp_path: Path,
) -> None:
    sample = run(tmp_path)
    assert sample.value == 2.0 / 100 * 1e9
    assert sample.details == {
        "enqueue": pytest.approx(0.5 / 101 * 1e9),
        "cpu_ns": pytest.approx(1.0 / 100 * 1e9),
        "beyond_ns": pytest.approx(0.25 / 100 * 1e9),
    }
    assert (sample.messages, sample.lost) == (101, 1)


def test_a_program_that_cannot_enqueue_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no broker there"):
        run(tmp_path, enqueue="sys.exit('no broker there')")


def test_a_worker_that_ends_early_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no such task"):
        run(tmp_path, work="sys.exit('no such task')")


def test_each_peer_has_its_program_and_its_pins() -> None:
    for racer in RACERS:
        program = HERE / "peers" / f"{racer.name}.{'cjs' if racer.node else 'py'}"
        assert program.exists()
        assert (racer.pins or racer.name) in (NODE if racer.node else PYTHON)
    assert OURS.handlers is None, "as a user has it who says nothing"


def test_most_within_counts_what_begins_less_than_the_time_after_another() -> None:
    times = [second * 10**9 // 10 for second in (0, 9, 10, 10, 19)]
    assert most_within(times, 1.0) == 3, "the one at 1.9 s is a second after the one at 0.9 s"
    assert most_within(times, 0.1) == 2
    assert most_within([7], 1.0) == 1
