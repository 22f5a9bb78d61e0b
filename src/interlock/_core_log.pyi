"""The part of the native module for nodes on a log, see ``_core.pyi``."""

from collections.abc import Sequence
from typing import Any, Self, final

from interlock._core_serving import BroughtRows as BroughtRows
from interlock._core_serving import LogNode as LogNode
from interlock._core_serving import RowsImage as RowsImage
from interlock._core_serving import RowsIterator as RowsIterator
from interlock._core_serving import TableKeeper as TableKeeper

_Entry = tuple[str, int, bytes]
"""Id, time in ms since 1970, and bytes."""

@final
class LogBridge:
    """The log of a ``LogNode`` on an engine to which Python speaks.

    One thread takes tasks and says what came of them, another brings what it has read, a third
    does chores. A position is ``ID.MARK``; ``ID.``: whatever is there; ``""``: before the first
    entry.
    """

    def __new__(cls) -> Self:
        """OSError if the process has no descriptor left."""
    @staticmethod
    def mark(data: bytes) -> str:
        """Return the mark of an entry's bytes."""
    @staticmethod
    def begins(data: bytes) -> bool:
        """Return whether an entry can be the first of a log."""
    def task(self, seconds: float) -> tuple[str, list[Any]] | None:
        """Wait for the next task: ``append`` or ``begin`` with bytes, ``end``; None if none comes
        in so many seconds."""
    def chore(self, seconds: float) -> tuple[str, list[str]] | None:
        """Wait for the next chore: ``look`` or ``trim`` with positions, ``ends``, ``end``; None if
        none comes in so many seconds."""
    def skipped(self) -> None:
        """Say that what was to be looked for or cut off could not be now."""
    def opened(self, largest: tuple[int, str] | None, untrimmed: str | None) -> None:
        """The engine takes entries of so many bytes at most, by this setting. `untrimmed`: why
        nobody can have it trim the log."""
    def looked(self, there: list[bool]) -> None:
        """Say of each entry that was looked for whether it is there."""
    def appended(self, ids: list[str] | None) -> None:
        """All that was taken is in the log. ValueError: one of the ids is none."""
    def failed(self, kind: str, text: str) -> None:
        """Nobody knows what is in the log. `kind`: ``unreachable``, ``refused``, ``gone``."""
    def trimmed(self, count: int, refused: str | None) -> None:
        """So many were cut off, or nothing for this reason."""
    def ends(self, ends: tuple[_Entry, _Entry] | None) -> None:
        """The first and the last entry."""
    def order(self, seconds: float) -> tuple[int, str] | None:
        """Wait until something is to be read: return its number, and the position behind which."""
    def read(self, order: int, entries: Sequence[_Entry], at_end: bool) -> tuple[int, str] | None:
        """Bring entries; return the order by which it goes on, None if another is wanted now.
        Waits while many are not yet taken. ValueError: one of the ids is none."""
    def lost(self, order: int, ends: tuple[_Entry, _Entry] | None) -> None:
        """The log does not have the position of an order any more; `ends` is what it has."""
    def unread(self, kind: str, text: str) -> None:
        """The log could not be read; it is tried again."""
    def close(self) -> None:
        """Let nobody wait any more."""
    @property
    def closed(self) -> bool:
        """The node has ended, or ``close`` was called."""
