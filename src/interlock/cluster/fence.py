"""The rule by which every reader of a change stream decides which entries count.

All readers see the same entries in the same order, so all decide alike: an entry counts if no entry
before it carries a higher token. Within a token entries are numbered without gaps, and so are changes
over all tokens: what came twice is known, and what is missing is noticed.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from interlock.cluster.entry import BARRIER, Entry


class Verdict(enum.Enum):
    """The standing of an entry."""

    NEXT = "next"
    """It is applied."""

    KNOWN = "known"
    """It came before."""

    FENCED = "fenced"
    """A primary that was no longer one appended it."""

    GAP = "gap"
    """Something before it is missing."""

    BEHIND = "behind"
    """The first of a primary that has fewer changes than this node: it counts on from there."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a stream: the entry that was the last to be applied."""

    token: int = 0
    number: int = 0
    seq: int = 0
    """The number of the last change that is applied."""
    position: str = ""


class Fence:
    """Judges entries in the order of the stream."""

    def __init__(self, mark: Mark | None = None) -> None:
        self.mark = Mark() if mark is None else mark

    def judge(self, entry: Entry) -> Verdict:
        """Return an entry's standing; nothing changes yet."""
        mark = self.mark
        if entry.token < mark.token:
            return Verdict.FENCED
        if entry.kind == BARRIER:
            return Verdict.KNOWN if entry.token == mark.token else Verdict.NEXT
        if entry.token > mark.token:
            # Its barrier must have been before it.
            return Verdict.GAP
        if entry.number <= mark.number:
            return Verdict.KNOWN
        first = entry.seq - len(entry.changes)
        # A number that is missing alone was a beat, or an answer that changed nothing.
        if first > mark.seq:
            return Verdict.GAP
        if first < mark.seq and not mark.number:
            return Verdict.BEHIND
        return Verdict.NEXT

    def accept(self, entry: Entry, position: str) -> None:
        """Note that an entry is applied."""
        # A barrier is written before it is known how many changes are before it.
        seq = self.mark.seq if entry.kind == BARRIER else entry.seq
        self.mark = Mark(entry.token, entry.number, seq, position)

    def passed(self, position: str) -> None:
        """Note that an entry that does not count was read."""
        self.mark = replace(self.mark, position=position)
