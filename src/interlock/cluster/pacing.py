"""Intervals of a node's checkpoints."""

from __future__ import annotations

import os

PACE = "INTERLOCK_NODE_PACE"
"""Variable for tests: entries between two checkpoints, and ms that the oldest goes back."""
CHECKPOINT = 20_000
"""Entries between two checkpoints."""
REACH = 600_000
"""Milliseconds that a node's oldest checkpoint goes back, at least."""


def pace() -> dict[str, int]:
    """Return how often a node makes checkpoints, and how far back the oldest goes."""
    given = os.environ.get(PACE, "").split(",")
    checkpoint, reach = map(int, given) if len(given) == 2 else (CHECKPOINT, REACH)
    return {"checkpoint": checkpoint, "reach": reach}
