"""The database behind a table, as its writer sees it: rows with their states, and a mark."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple, Protocol

import msgspec

from interlock.errors import InterlockError

Batches = Generator[list[tuple[bytes, bytes]] | bytes, None, None]
"""Keys and states; or a binary COPY of both, as ``RowsImage.compare_copied`` takes it."""
TIMEOUT = 10.0
BATCH = 10_000
"""Number of rows that ``rows`` yields together."""


class DatabaseUnavailable(InterlockError, ConnectionError):
    """The database could not be reached, or did not do what it was asked: nothing was changed.

    Args:
        refused: it answered that it does not do that, which somebody has to change.
    """

    def __init__(self, text: str, *, refused: bool = False) -> None:
        super().__init__(text)
        self.refused = refused


class LogMark(msgspec.Struct, frozen=True):
    """A place in the history of a log: a database has all changes up to a number of one there."""

    epoch: int = 0
    """Higher with each other history; rows of a higher one replace those of a lower one."""
    position: int = 0
    checksum: int = 0
    lineage: int = 0
    number: int = 0
    """The number of the last change that the database has."""
    time: int = 0
    """The log time, in ms since 1970."""

    @property
    def since(self) -> tuple[int, int, int]:
        """The place that `LogNode.changed` is asked with."""
        return self.position, self.checksum, self.number


class SavedRow(NamedTuple):
    """A row to be written."""

    key: bytes
    state: bytes | None
    """None: no node remembers that there ever was one; the row is deleted."""
    seq: int
    """The number of its last change, or a later one."""


class Database(Protocol):
    """One database of one table. One thread at a time uses it, but for ``close``.

    Any call raises ``DatabaseUnavailable`` where the database cannot be reached, and connects anew
    with the next.
    """

    url: str
    """Without its password."""

    def migrations(self) -> list[str]:
        """Return the statements by which the database gets what the row's class has, in order.

        Those that begin with ``--`` say what stays as it is. Nothing is changed.

        Raises:
            SchemaMismatch: a column is there with a type that cannot hold the row's; or the
                database has another part of the rows, or other partitions.
        """

    def migrate(self) -> None:
        """Run the migrations; raises as they do."""

    def mark(self) -> LogMark:
        """Return the mark of what is written; an empty one at first."""

    def save(self, rows: Sequence[SavedRow], mark: LogMark, before: LogMark) -> bool:
        """Write rows and the mark, in one transaction, if the mark there is still the one before.

        Returns:
            Whether it was. Otherwise another has written, and nothing was changed.
        """

    def rows(self) -> Batches:
        """Return batches of all keys and states, as of one moment.

        The batches must be read to their end, or closed.
        """

    def forget(self, now_ms: int, most: int) -> int:
        """Delete rows that no node needs to remember, up to a limit; return their number."""

    def close(self) -> None:
        """Close the connection."""
