"""The examples that name an engine run on each, unchanged but for the flag."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.worker.workers import ROOT

LINES = {
    "transfers": 1,
    "order_book": 1,
    "device_fleet": 1,
    "polite_crawler": 4,
    "bank_api": 1,
    "tenants": 11,
}
"""Number of lines that each prints."""


@pytest.mark.parametrize("engine", ["memory", "redis", "hub"], indirect=True)
@pytest.mark.parametrize(("example", "lines"), LINES.items())
def test_each_example_of_an_app_runs_to_its_end(url: str, example: str, lines: int) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / f"{example}.py", "--url", url],
        capture_output=True,
        text=True,
        timeout=50,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == lines
