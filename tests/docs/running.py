"""Runs a program of the docs in a process and a folder of its own, with a time limit."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
# Below the watchdog's 60 s, so that the page is named and its output shown.
LIMIT_SECONDS = 45.0


def run(command: Sequence[str | Path], folder: Path, limit: float = LIMIT_SECONDS) -> str:
    """Run `command` in `folder`, where the repository's examples/ can be seen; return its stdout.

    Raises AssertionError with all it printed if it fails or takes longer than `limit` seconds; it
    is asked for its stacks before it is killed, and its children go with it.
    """
    if not (folder / "examples").exists():
        (folder / "examples").symlink_to(ROOT / "examples", target_is_directory=True)
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONFAULTHANDLER": "1", "PYTHONPATH": str(HERE)},
    )
    try:
        stdout, stderr = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        # faulthandler answers the first with every thread's stack, then the program is gone.
        process.send_signal(signal.SIGABRT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        raise AssertionError(report(command, f"took over {limit} s", stdout, stderr)) from None
    if process.returncode != 0:
        raise AssertionError(report(command, f"ended in {process.returncode}", stdout, stderr))
    return stdout


def run_python(program: Path, folder: Path, limit: float = LIMIT_SECONDS) -> str:
    """Run a Python file as `run` does, with the interpreter of the tests."""
    return run([sys.executable, program], folder, limit)


def report(command: Sequence[str | Path], what: str, stdout: str, stderr: str) -> str:
    return f"{' '.join(map(str, command))} {what}\n-- stdout\n{stdout}\n-- stderr\n{stderr}"
