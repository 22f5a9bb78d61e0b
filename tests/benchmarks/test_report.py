"""Tables of samples: which way the ratio goes, what a bar is held against."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import report
from benchmarks.report import Result
from benchmarks.row import Judged, Row
from benchmarks.scenarios import ROWS

ROW = Row(name="group/one", title="one", peer="Peer", bar=2)
MACHINE: dict[str, Any] = dict.fromkeys(
    ("python", "interlock", "culsans", "bocpy", "python_of_behaviours", "key-message-channel")
) | {
    "taken": "2026-01-01T00:00:00",
    "cpu": "CPU",
    "cpus": 2,
    "commit": None,
    "changed_since_commit": False,
    "redis": "7.0.15",
    "rust": "rustc",
}


def result(row: Row, *pairs: tuple[float, float], lost: int = 0) -> Result:
    samples = [
        {"pair": number, "side": side, "value": value, "cpu": value * 10, "lost": lost,
         "misordered": 0}
        for number, pair in enumerate(pairs)
        for side, value in zip(("ours", "peer"), pair, strict=True)
    ]  # fmt: skip
    return Result(row, samples)


@pytest.mark.parametrize(
    ("judged", "figures", "bar", "verdict"),
    [
        ("ratio", [0.5, 0.25], 0.4, "yes"),
        ("ratio", [0.5, 0.25], 0.3, "no"),
        ("times", [2, 4], 3, "yes"),
        ("times", [2, 4], 3.1, "no"),
        ("value", [100, 100], 100, "yes"),
        ("value", [100, 100], 99, "no"),
    ],
)
def test_a_bar_is_a_ceiling_of_the_ratio_a_floor_of_times_or_a_ceiling_of_what_ours_takes(
    judged: Judged, figures: list[float], bar: float, verdict: str
) -> None:
    found = result(replace(ROW, judged=judged, bar=bar), (100, 200), (100, 400))
    assert found.figures == figures
    assert found.verdict == verdict


def test_a_bar_that_is_a_floor_looks_like_one_and_is_explained() -> None:
    found = result(replace(ROW, judged="times"), (100, 250))
    assert found.cells()[3:7] == ("2.5", "2.5 – 2.5", "≥ 2", "yes")
    assert any("≥" in said for said in report.remarks([found]))


def test_an_absolute_figure_has_no_ratio_though_a_peer_stands_beside_it() -> None:
    found = result(replace(ROW, judged="value", unit="B", bar=1024), (800, 9000))
    expected = ("one", "800 B", "9,000 B Peer", "", "800 B – 800 B", "1,024 B", "yes", "0 / 0")
    assert found.cells() == expected


def test_rows_that_share_samples_show_another_figure_of_each_and_all_of_their_faults() -> None:
    shared = replace(ROW, name="group/one-cpu", shares="group/one", figure="cpu")
    found = result(ROW, (1, 2), lost=1).seen_as(shared)
    assert found.values("ours") == [10]
    assert found.verdict == "WRONG"


def test_a_run_has_a_heading_for_each_table_and_shared_samples_once(tmp_path: Path) -> None:
    taken = result(ROW, (1, 2))
    shared = replace(ROW, name="group/cpu", title="its CPU", shares="group/one", figure="cpu")
    other = result(replace(ROW, name="other/one", title="other", table="Other"), (3, 2))
    report.write(tmp_path, [taken, taken.seen_as(shared), other], MACHINE, 1)
    lines = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    assert [line["row"] for line in lines] == ["group/one"] * 2 + ["other/one"] * 2
    _, first, second = (tmp_path / "summary.md").read_text().split("\n## ")
    assert first.startswith("One process\n") and "| one |" in first and "| its CPU |" in first
    assert second.startswith("Other\n") and "| other |" in second


def test_rows_have_names_of_their_own_and_share_samples_of_rows_that_take_some() -> None:
    by_name = {row.name: row for row in ROWS}
    assert len(by_name) == len(ROWS)
    for row in ROWS:
        source = by_name[row.source]
        assert source.pair is not None or source.runner == "rust"
        assert source.table == row.table
