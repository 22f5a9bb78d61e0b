"""The watchdog of conftest.py ends a run that hangs, and tells where."""

import subprocess
import sys
from pathlib import Path

import pytest

# Each starts a pytest, and one of them two processes of it.
pytestmark = pytest.mark.watchdog(180)

ROOT = Path(__file__).resolve().parent.parent
TESTS = """
import ctypes
import threading

import pytest


def other():
    while not done.wait(1):
        pass


done = threading.Event()


@pytest.mark.watchdog(2)
@pytest.mark.parametrize("how", ["asleep"])
def test_that_waits_for_ever(how):
    thread = threading.Thread(target=other, daemon=True)
    thread.start()
    try:
        threading.Event().wait()
    finally:
        done.set()
        thread.join()


def test_that_comes_after():
    pass


@pytest.mark.watchdog(2)
def test_that_holds_the_gil_for_ever():
    # PyDLL keeps the GIL in a call, and a blocked signal does not end it.
    native = ctypes.PyDLL(None)
    native.pthread_sigmask(0, b"\\xff" * 128, None)
    native.sleep(1000)
"""


def run_hanging(names: str, folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run some of the tests above in a pytest of their own."""
    (folder / "test_hangs.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  watchdog(seconds)\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:randomly", "-k"]
    return subprocess.run(
        [*command, names, *flags, "-c", folder / "pytest.ini", folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_test_that_hangs_fails_with_the_stacks_of_all_threads(tmp_path: Path) -> None:
    done = run_hanging("waits or after", tmp_path)
    assert done.returncode == 1
    assert "Failed: not ended after 2 s" in done.stdout
    assert "in other" in done.stdout
    assert "1 failed, 1 passed" in done.stdout


def test_a_test_that_cannot_be_interrupted_is_named_and_the_others_run(tmp_path: Path) -> None:
    done = run_hanging("gil or after", tmp_path, "--numprocesses", "1")
    assert done.returncode == 1
    assert "in test_that_holds_the_gil_for_ever" in done.stderr
    assert "test_that_holds_the_gil_for_ever" in done.stdout.partition("crashed while running")[2]
    assert "1 failed, 1 passed" in done.stdout
