"""The examples that name an engine run on each, unchanged but for the flag."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.worker.workers import ROOT


@pytest.mark.parametrize("engine", ["memory", "redis", "hub"], indirect=True)
@pytest.mark.parametrize("example", ["transfers", "order_book", "device_fleet"])
def test_each_example_of_an_app_runs_to_its_end(url: str, example: str) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / f"{example}.py", "--url", url],
        capture_output=True,
        text=True,
        timeout=50,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
