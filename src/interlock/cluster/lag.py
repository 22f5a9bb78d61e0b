"""The lag of a node behind its primary, though their clocks may differ."""

from __future__ import annotations


class LagEstimate:
    """Milliseconds by which entries come later than the quickest of the last ones did.

    Clocks of two machines differ; by how much, the quickest entry of the last minute or so tells.
    """

    def __init__(self, kept: int = 120) -> None:
        self._least = [float("inf"), float("inf")]
        self._count = 0
        self._kept = kept
        self.ms = 0.0

    def note(self, apart: float) -> None:
        """Note how far an entry's time was from the reader's when it was read."""
        self._count += 1
        if self._count >= self._kept:
            self._count = 0
            self._least = [self._least[1], float("inf")]
        self._least = [min(known, apart) for known in self._least]
        self.ms = apart - min(self._least)
