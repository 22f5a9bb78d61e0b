"""Intervals of a node's checkpoints."""

from __future__ import annotations

import os

PACE = "INTERLOCK_NODE_PACE"
"""Variable for tests: entries from a checkpoint to the next, and ms that the oldest goes back."""
CHECKPOINT = 20_000
"""Entries from a checkpoint to the next."""
REACH = 600_000
"""Milliseconds that the oldest checkpoint of a node goes back at least."""


def pace() -> dict[str, int]:
    """Return how often a node makes checkpoints, and how far back the oldest goes."""
    given = os.environ.get(PACE, "").split(",")
    checkpoint, reach = map(int, given) if len(given) == 2 else (CHECKPOINT, REACH)
    return {"checkpoint": checkpoint, "reach": reach}
