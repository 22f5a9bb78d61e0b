"""scripts/walks.py follows calls down through the package and counts them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts import walks

ROOT = Path(__file__).resolve().parents[2]


def printed(*flags: str) -> Any:
    command = [sys.executable, str(ROOT / "scripts" / "walks.py"), "--json", *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout)


def test_no_walk_is_over_its_limit() -> None:
    code, told = printed()
    assert [one for one in told if one["fault"]] == []
    assert code == 0
    put = next(one for one in told if one["name"] == "put on an engine")
    assert put["entries"][0] == "client/faces/queue.py"
    assert {
        "client/requests/queue_puts.py",
        "client/wire/messages.py",
        "client/connection/call.py",
    } < set(put["entries"])


def test_a_walk_over_its_limit_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["walks.py"])
    monkeypatch.setitem(walks.LIMITS, "put on an engine", walks.Limit(5))
    assert walks.main() == 1
    assert "6 files; allowed: 5" in capsys.readouterr().out


def test_a_walk_over_its_goal_reports_by_how_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(walks.LIMITS, "walk", walks.Limit(3, goal=1))
    walk = walks.Walk("walk", ["a.py", "b.py", "c.py"])
    assert (walk.over, walk.fault) == (2, "")
    walk.entries.append("d.py")
    assert walk.fault == "4 files; allowed: 3"
    missing = {name for name in walks.LIMITS if name != "walk"}
    assert missing == {*walks.WALKS, *walks.COUNTED}, "each walk has a limit"


def test_a_file_entered_twice_is_reported() -> None:
    walk = walks.Walk("put on an engine", ["a.py", "b.py", "a.py"])
    assert walk.fault == "entered twice: a.py"


def test_counted_walks_name_existing_files() -> None:
    for name, files in walks.COUNTED.items():
        assert walks.Walk(name, list(files), None).fault == ""
    name = "put from the hub's socket to the disk"
    gone = walks.Walk(name, ["interlock-hub/src/gone.rs"], None)
    assert gone.fault == "no such file: interlock-hub/src/gone.rs"
