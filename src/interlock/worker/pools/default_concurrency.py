"""Default number of handlers that run at once."""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

__all__ = ["cores", "usual_concurrency"]


def usual_concurrency(pool: str) -> int:
    """One process per core, because each holds its own copy of the program in memory."""
    return cores() if pool == "process" else USUAL


def cores() -> int:
    """Return how many processors this process may use: the machine's, or a container's quota."""
    of_affinity = getattr(os, "sched_getaffinity", None)
    found = len(of_affinity(0)) if of_affinity is not None else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = QUOTA.read_text().split()
        found = min(found, max(1, math.ceil(int(quota) / int(period))))
    return found


USUAL = 16
QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Two numbers, or a word if there is no quota."""
