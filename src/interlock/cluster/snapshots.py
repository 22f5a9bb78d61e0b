"""Checkpoints between nodes: what a machine keeps, and what one gives to another."""

from __future__ import annotations

import os
from pathlib import Path

PACE = "INTERLOCK_NODE_PACE"
"""Variable for tests: entries from a checkpoint to the next, and ms that the oldest goes back."""
CHECKPOINT = 20_000
"""Entries from a checkpoint to the next."""
REACH = 600_000
"""Milliseconds that the oldest checkpoint of a node goes back at least."""


def machine() -> str:
    """Return what tells this machine from others; containers of one machine have the same."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return os.uname().nodename


def pace() -> dict[str, int]:
    """Return how often a node makes checkpoints, and how far back the oldest goes."""
    given = os.environ.get(PACE, "").split(",")
    checkpoint, reach = map(int, given) if len(given) == 2 else (CHECKPOINT, REACH)
    return {"checkpoint": checkpoint, "reach": reach}
