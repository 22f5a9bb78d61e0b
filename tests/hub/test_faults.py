"""A share of each fault: `python -m tests.hub.faults --full` is the whole, FAULTS.md its result."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import seeds
from tests.hub.faults.scenarios import SCENARIOS
from tests.hub.servers import needs_hub

SUMMARY = Path(__file__).with_name("FAULTS.md")


@pytest.mark.watchdog(120)
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_hub_survives_a_scenario(name: str, tmp_path: Path) -> None:
    needs_hub()
    seed = seeds.seed()
    scenario = SCENARIOS[name]
    # The path of a unix socket may not be long.
    folder = tmp_path / "f"
    folder.mkdir()
    for figure, value in scenario.run(seed, scenario.share, folder).items():
        print(f"{figure}: {value}")


def test_the_summary_is_of_a_full_run_of_each() -> None:
    text = SUMMARY.read_text(encoding="utf-8")
    for scenario in SCENARIOS.values():
        assert f"## {scenario.title}\n" in text
