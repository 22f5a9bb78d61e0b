"""The relay's reads: the rows after its position, and those that fill the gaps behind it."""

from __future__ import annotations

from typing import Any

from interlock.postgres.driver import quoted
from interlock.postgres.gaps import Gaps, Snapshot
from interlock.postgres.rows import COLUMNS, StoredRow

__all__ = ["Position"]


class Position:
    """The rows that one session of an engine has been given, and those that are next.

    Args:
        connection: a connection of psycopg that commits each statement.
        window: maximum number of rows that were read and are not deleted yet.
    """

    def __init__(self, connection: Any, schema: str, window: int) -> None:
        self._connection = connection
        self._window = window
        self.gaps = Gaps()
        self._given = 0
        """Rows that were read and may not be deleted yet."""
        self.is_full = False
        """The last read found no place in the window."""
        table = f"{quoted(schema)}.outbox"
        some = f"select {COLUMNS} from {table} o"
        live = "state is distinct from 'dead'"
        new = f"{some} where number > %(mark)s and {live} order by number limit %(limit)s"
        old = (
            "select x.* from unnest(%(lows)s::bigint[], %(highs)s::bigint[]) g (low, high), "
            f"lateral ({some} where number between g.low and g.high and {live}) x"
        )
        # One statement, which has one snapshot.
        snapshot = "(select pg_current_snapshot()::text as snapshot) s left join"
        self._read_new = f"select s.snapshot, r.* from {snapshot} ({new}) r on true order by number"
        self._read_all = (
            f"select s.snapshot, r.* from {snapshot} "
            f"(select * from (({new}) union all ({old})) u order by number limit %(limit)s) r "
            "on true order by number"
        )
        self._count = (
            f"select count(*) from (select from {table} where number <= %(mark)s and {live} "
            "limit %(limit)s) x"
        )

    def read(self, limit: int) -> list[StoredRow]:
        """Return the next rows, in order: an empty list if none wait or the window is full."""
        places = self._places()
        self.is_full = places <= 0
        if self.is_full:
            return []
        limit = min(limit, places)
        gaps = self.gaps
        snapshot, rows = self._ask(self._read_new, limit=limit)
        whole = False
        if gaps.due(snapshot):
            lows, highs = gaps.ranges()
            snapshot, rows = self._ask(self._read_all, limit=limit, lows=lows, highs=highs)
            whole = len(rows) < limit or rows[-1].number > max(highs)
        new = gaps.read([row.number for row in rows], snapshot, whole)
        if new:
            (bound,) = self._connection.execute(
                "select pg_current_xact_id()::text::bigint"
            ).fetchone()
            gaps.watch(new, snapshot, bound)
        self._given += len(rows)
        return rows

    def _ask(self, statement: str, **values: Any) -> tuple[Snapshot, list[StoredRow]]:
        values["mark"] = self.gaps.mark
        found = self._connection.execute(statement, values).fetchall()
        rows = [StoredRow(*row[1:]) for row in found if row[1] is not None]
        return Snapshot.parse(found[0][0]), rows

    def _places(self) -> int:
        if self._given >= self._window:
            values = {"mark": self.gaps.mark, "limit": self._window}
            (self._given,) = self._connection.execute(self._count, values).fetchone()
        return self._window - self._given
