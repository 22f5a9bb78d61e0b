"""A few random runs of clusters under faults, with a new seed: in every other one engines lose
entries.

`python -m tests.cluster.faults.runs` is for many, and FAULTS.md their summary.
INTERLOCK_CLUSTER_RUNS says how many, 2 by default."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from tests import seeds
from tests.cluster.faults import netns
from tests.cluster.faults.report import ROW_OF, SUMMARY
from tests.cluster.faults.run import plan_of, run
from tests.hub.servers import needs_hub

RUNS = int(os.environ.get("INTERLOCK_CLUSTER_RUNS", "2"))


@pytest.mark.watchdog(180)
@pytest.mark.parametrize("number", range(RUNS))
def test_a_cluster_keeps_its_promises_under_faults(number: int, tmp_path: Path) -> None:
    needs_hub()
    netns.needed()
    seed = seeds.seed() + number * 1000
    loses = number % 2 == 0
    seed = next(one for one in itertools.count(seed) if plan_of(one).loses == loses)
    result = run(plan_of(seed), tmp_path)
    print(result.line())
    assert not result.violations, "\n".join(map(str, result.violations))


def test_the_summary_has_all_figures() -> None:
    text = SUMMARY.read_text(encoding="utf-8")
    for row in ROW_OF:
        assert f"| {row} |" in text
