"""The relay's reads of an SQLite file: the rows after its position."""

from __future__ import annotations

from typing import Any

from interlock.outbox.gaps import Gaps
from interlock.outbox.rows import StoredRow
from interlock.outbox.sqlite.schema import ORDER

__all__ = ["Position"]

NOW = "((julianday('now') - 2440587.5) * 86400.0)"
SENT = "cast(created * 1000000 as integer)"
"""The time of the send that a ``Reference`` has."""


class Position:
    """The rows that one session of an engine has been given, and those that are next.

    Args:
        relay: the connection of the relay.
        schema: prefix of the table's name.
        window: maximum number of rows that were read and are not deleted yet.
    """

    def __init__(self, relay: Any, schema: str, window: int) -> None:
        self._relay, self._window = relay, window
        self._mark = self._given = 0
        self.gaps = Gaps()
        """None ever: see ``ORDER``."""
        self.is_full = False
        """The last read found no place in the window."""
        table = f'"{schema}_outbox"'
        live = "state is not 'dead'"
        self._read = (
            f"select {ORDER}, id, queue, payload, keys, shared, "
            f"min(delay, created + delay - {NOW}), {NOW} - created, "
            f"options, attempts, state, {SENT} from {table} "
            f"where {ORDER} > ? and {live} order by {ORDER} limit ?"
        )
        self._oldest = 0
        """No live row up to this one is left of those that were read."""
        self._left = (
            f"select {ORDER} from {table} where {ORDER} > ? and {ORDER} <= ? and {live} "
            f"order by {ORDER} limit 1"
        )
        self._count = (
            f"select count(*) from (select 1 from {table} where {ORDER} <= ? and {live} limit ?)"
        )

    def read(self, limit: int) -> list[StoredRow]:
        """Return the next rows, in order: an empty list if none wait or the window is full."""
        self._relay.looked()
        connection = self._relay.connection
        if self._given >= self._window:
            values = self._mark, self._window
            (self._given,) = connection.execute(self._count, values).fetchone()
        places = self._window - self._given
        self.is_full = places <= 0
        if self.is_full:
            return []
        found = connection.execute(self._read, (self._mark, min(limit, places))).fetchall()
        rows = [StoredRow(*row) for row in found]
        if rows:
            self._mark = self.gaps.mark = rows[-1].number
        self._given += len(rows)
        return rows

    def find_oldest(self) -> int | None:
        """Return the oldest row that was read, is left, and is not dead; None: none is."""
        values = self._oldest, self._mark
        found = self._relay.connection.execute(self._left, values).fetchone()
        # Those before it are not looked at again.
        self._oldest = self._mark if found is None else found[0] - 1
        return None if found is None else int(found[0])
