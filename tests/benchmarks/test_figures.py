"""The pages show the newest run of each table, by when it was taken."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "figures.py"
SUMMARY = """# 2026-11-21, a machine

CPython 3.11.7, interlock 0.1.0 (abc), Redis 7.

## {table}

| row | ours | peer | ratio | min | bar | met |
|---|---|---|---|---|---|---|
| put | {ours} ns | 2 ns | 1 | 1 | 1 | yes |
"""


def write(root: Path, name: str, taken: str, table: str, ours: int) -> None:
    run = root / "benchmarks" / "runs" / name
    run.mkdir(parents=True)
    (run / "summary.md").write_text(SUMMARY.format(table=table, ours=ours))
    (run / "machine.json").write_text(json.dumps({"taken": taken}))


@pytest.fixture
def figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, for a project of a test."""
    spec = importlib.util.spec_from_file_location("figures", SCRIPT)
    assert spec is not None and spec.loader is not None
    figures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(figures)
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    monkeypatch.setattr(figures, "PAGES", ("README.md",))
    return figures


def test_the_later_of_two_runs_on_one_day_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figures: Any
) -> None:
    write(tmp_path, "2026-11-21-amd", "2026-11-21T23:00:00+00:00", "Hub: journal", 7)
    write(tmp_path, "2026-11-21-amd-journal", "2026-11-21T20:00:00+00:00", "Hub: journal", 9)
    write(tmp_path, "2026-11-20-amd", "2026-11-20T20:00:00+00:00", "Hub: topics", 5)
    readme = tmp_path / "README.md"
    marks = "<!-- figures:{0} -->\n<!-- /figures:{0} -->\n"
    readme.write_text(marks.format("hub-journal") + marks.format("replay"))
    monkeypatch.setattr(sys, "argv", ["figures.py", "--check"])
    assert figures.main() == 1
    monkeypatch.setattr(sys, "argv", ["figures.py"])
    assert figures.main() == 0
    shown = readme.read_text()
    assert "| put | 7 ns | 2 ns | 1 | 1 | yes |" in shown
    assert "9 ns" not in shown and "5 ns" not in shown
    assert shown.endswith(marks.format("replay"))


def test_a_ratio_says_how_many_times_as_much_the_peer_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figures: Any
) -> None:
    summary = SUMMARY.format(table="Hub: topics", ours=5)
    summary += "| publish | 4 ns | 8 ns a peer | 2.04 | 1 | ≥ 1.5 | yes |\n"
    summary += "| publish more | 2 ns | 8 ns another peer | 0.25 | 1 | 0.5 | yes |\n"
    write(tmp_path, "2026-11-20-amd", "2026-11-20T20:00:00+00:00", "Hub: topics", 5)
    (tmp_path / "benchmarks" / "runs" / "2026-11-20-amd" / "summary.md").write_text(summary)
    one, other = ("hub-topics", "publish", "a peer"), ("hub-topics", "publish", "another")
    monkeypatch.setattr(figures, "RATIOS", (("a floor", *one), ("a ceiling", *other)))
    readme = tmp_path / "README.md"
    readme.write_text("<!-- figures:ratios -->\n<!-- /figures:ratios -->\n")
    monkeypatch.setattr(sys, "argv", ["figures.py"])
    assert figures.main() == 0
    shown = readme.read_text().splitlines()
    assert shown[3:5] == ["| a floor | a peer | 2 |", "| a ceiling | another peer | 4 |"]
    monkeypatch.setattr(figures, "RATIOS", (("none", "hub-topics", "publish", "nobody"),))
    with pytest.raises(LookupError, match="nobody"):
        figures.main()
