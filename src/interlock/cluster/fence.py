"""The rule by which every reader of a change stream decides which entries count.

All readers see the same entries in the same order, so all decide alike: an entry counts if no entry
before it carries a higher token. Within a token entries are numbered, so that what came twice is
known; changes are numbered over all tokens, and each entry carries a checksum of all before it, so
that what is missing, or was otherwise, is noticed.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from interlock.cluster.entry import BARRIER, Entry, lineage_behind


class Verdict(enum.Enum):
    """The standing of an entry."""

    NEXT = "next"
    """It is applied."""

    KNOWN = "known"
    """It came before."""

    FENCED = "fenced"
    """A primary that was no longer one appended it."""

    GAP = "gap"
    """Something before it is missing, or was otherwise here: an engine lost what it had shown."""

    BEHIND = "behind"
    """The first of a primary that has fewer changes than this node: it counts on from there."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a stream: the entry that was the last to be applied."""

    token: int = 0
    number: int = 0
    seq: int = 0
    """The number of the last change that is applied."""
    lineage: int = 0
    """The checksum of all entries up to here."""
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
        if first < mark.seq and not mark.number:
            return Verdict.BEHIND
        return Verdict.NEXT if (first, entry.lineage) == (mark.seq, mark.lineage) else Verdict.GAP

    def accept(self, entry: Entry, data: bytes, position: str) -> None:
        """Note that an entry, of these bytes, is applied."""
        mark = self.mark
        if entry.kind == BARRIER:
            # It is written before it is known what is before it.
            self.mark = Mark(entry.token, 0, mark.seq, mark.lineage, position)
        else:
            lineage = lineage_behind(entry.lineage, data)
            self.mark = Mark(entry.token, entry.number, entry.seq, lineage, position)

    def passed(self, position: str) -> None:
        """Note that an entry that does not count was read."""
        self.mark = replace(self.mark, position=position)
