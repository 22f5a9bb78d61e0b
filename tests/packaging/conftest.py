"""The wheel that the packaging tests inspect: INTERLOCK_WHEEL, or one built here."""

import importlib.util
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def wheel_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return INTERLOCK_WHEEL, or a wheel of the current sources (cargo has compiled them)."""
    named = os.environ.get("INTERLOCK_WHEEL")
    if named:
        return (ROOT / named).resolve()
    if importlib.util.find_spec("maturin") is None:
        pytest.skip("no wheel: maturin is not installed and INTERLOCK_WHEEL names none")
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "maturin", "build", "--release", "--locked", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def wheel(wheel_path: Path) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(wheel_path) as opened:
        yield opened
