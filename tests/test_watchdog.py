"""The watchdog of conftest.py ends a run that hangs, and tells where."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HANGS = """
import ctypes
import threading

import pytest


@pytest.mark.watchdog(0.2)
@pytest.mark.parametrize("how", ["asleep"])
def test_that_waits_for_ever(how):
    threading.Event().wait()


@pytest.mark.watchdog(0.2)
def test_that_holds_the_gil_for_ever():
    ctypes.PyDLL(None).pause()
"""


def run_hanging(name: str, folder: Path) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run one hanging test in a pytest of its own; return how it ended, and the name it left."""
    (folder / "test_hangs.py").write_text(HANGS)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  watchdog(seconds)\n")
    running = folder / "running"
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-k", name]
    done = subprocess.run(
        [*command, "-c", folder / "pytest.ini", folder],
        cwd=ROOT,
        env={**os.environ, "INTERLOCK_RUNNING_TEST": str(running)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    return done, running.read_text()


def test_a_hanging_test_ends_the_run_with_its_stacks_and_its_name(tmp_path: Path) -> None:
    done, left = run_hanging("waits", tmp_path)
    assert done.returncode == 1
    assert "in test_that_waits_for_ever" in done.stderr
    assert left.endswith("test_that_waits_for_ever[asleep]")


def test_a_test_that_hangs_in_native_code_with_the_gil_is_ended_too(tmp_path: Path) -> None:
    done, _ = run_hanging("holds_the_gil", tmp_path)
    assert done.returncode == 1
    assert "in test_that_holds_the_gil_for_ever" in done.stderr
