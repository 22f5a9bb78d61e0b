"""Clocks of processes that can be set: see clock.c."""

from __future__ import annotations

import functools
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


@functools.cache
def library() -> Path | None:
    """The library to preload; None without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    made = Path(tempfile.mkdtemp(prefix="interlock-clock-")) / "clock.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", made, SOURCE], check=True)
    return made


def needed() -> Path:
    found = library()
    assert found is not None, "no C compiler"
    return found


def environment(clock: Path) -> dict[str, str]:
    """Return the variables of a process whose clock is the one that a file says."""
    return {"LD_PRELOAD": str(needed()), "INTERLOCK_TEST_CLOCK": str(clock)}


def set_clock(clock: Path, ahead: float) -> None:
    """Set all processes of a clock this many seconds ahead of the right time immediately."""
    with clock.open("r+b" if clock.exists() else "wb") as file:
        file.write(struct.pack("=q", round(ahead * 1e9)))
