"""The part of the native module for nodes on a log, see ``_core.pyi``."""

from collections.abc import Sequence
from typing import Any, Self, final

from interlock._core_serving import BroughtRows as BroughtRows
from interlock._core_serving import LinkReport as LinkReport
from interlock._core_serving import LogNode as LogNode
from interlock._core_serving import RowsImage as RowsImage
from interlock._core_serving import RowsIterator as RowsIterator
from interlock._core_serving import TableKeeper as TableKeeper

_Entry = tuple[str, int, bytes]
"""Id, time in ms since 1970, and bytes."""

@final
class LogBridge:
    """The log of a ``LogNode`` on an engine whose client is in Python.

    One thread takes tasks and reports their results, another delivers the entries it has read, a
    third does chores. A position is ``ID.MARK``; ``ID.``: with any mark; ``""``: before the first
    entry.
    """

    def __new__(cls) -> Self:
        """Raises OSError if the process has no descriptor left."""
    @staticmethod
    def mark(data: bytes) -> str:
        """Return the mark of an entry's bytes."""
    @staticmethod
    def begins(data: bytes) -> bool:
        """Return whether an entry can be the first of a log."""
    def task(self, seconds: float) -> tuple[str, list[Any]] | None:
        """Wait for the next task: ``append`` or ``begin`` with bytes, ``end``; None after this many
        seconds without one."""
    def chore(self, seconds: float) -> tuple[str, list[str]] | None:
        """Wait for the next chore: ``look`` or ``trim`` with positions, ``ends``, ``end``; None
        after this many seconds without one."""
    def skipped(self) -> None:
        """Report that a position could not be looked up or trimmed now."""
    def opened(self, largest: tuple[int, str] | None, untrimmed: str | None) -> None:
        """Set the engine's maximum bytes of an entry, with the name of its setting. `untrimmed`:
        reason why the engine cannot trim the log."""
    def looked(self, there: list[bool]) -> None:
        """Report for each entry that was looked up whether it exists."""
    def appended(self, ids: list[str] | None) -> None:
        """Report that every taken entry is in the log. Raises ValueError for an invalid id."""
    def failed(self, kind: str, text: str) -> None:
        """Report unknown log content. `kind`: ``unreachable``, ``refused``, ``gone``."""
    def trimmed(self, count: int, refused: str | None) -> None:
        """Report the number of trimmed entries, or the reason why none was."""
    def ends(self, ends: tuple[_Entry, _Entry] | None) -> None:
        """Report the first and the last entry."""
    def order(self, seconds: float) -> tuple[int, str] | None:
        """Wait for a read order: return its number, and the position to read behind."""
    def read(self, order: int, entries: Sequence[_Entry], at_end: bool) -> tuple[int, str] | None:
        """Deliver entries; return the order that continues it, None if another is wanted now. Waits
        while many are pending. Raises ValueError for an invalid id."""
    def lost(self, order: int, ends: tuple[_Entry, _Entry] | None) -> None:
        """Report that the log lacks the position of an order; `ends` are its current ends."""
    def unread(self, kind: str, text: str) -> None:
        """Report that the log could not be read; it is retried."""
    def close(self) -> None:
        """Wake all waiting threads for good."""
    @property
    def closed(self) -> bool:
        """True if the node has ended, or ``close`` was called."""
