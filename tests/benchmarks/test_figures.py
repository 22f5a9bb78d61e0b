"""Figures of the runs in the README: the newest of each table, by when it was taken."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

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


def test_of_runs_of_one_day_the_later_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.util.spec_from_file_location("figures", SCRIPT)
    assert spec is not None and spec.loader is not None
    figures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(figures)
    monkeypatch.setattr(figures, "ROOT", tmp_path)
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
