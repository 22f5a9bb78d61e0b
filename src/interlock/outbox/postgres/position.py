"""The relay's reads: the rows after its position, and those that fill the gaps behind it."""

from __future__ import annotations

import time
from typing import Any

from interlock.outbox.gaps import Gaps, Snapshot
from interlock.outbox.postgres.driver import quoted
from interlock.outbox.rows import COLUMNS, StoredRow

__all__ = ["Position", "plan_in_order"]

SWEEP = 5_000
"""Commits that one sweep looks at; it follows after as many rows."""
SWEEP_PAUSE = 10.0
"""Seconds until the next sweep if there are fewer."""
FREED = 20
"""A full window is read on when this fraction of it, one in 20, is free: counting is slow."""
COUNT_PAUSE = 9
"""A full window is counted again after this many times the duration of the count."""


def plan_in_order(connection: Any, scope: str = "session") -> None:
    """Let statements read the first commits and their rows; ``scope`` is ``local`` within a
    transaction.

    Without statistics, or with old ones, the planner may choose to read whole tables; or to sort
    all rows of all commits, whereas an incremental sort ends once it has enough.
    """
    off = "seqscan", "bitmapscan", "hashjoin", "mergejoin", "sort"
    settings = [*(f"enable_{name}" for name in off), "jit"]
    connection.execute("; ".join(f"set {scope} {name} = off" for name in settings))


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
        self._rest: tuple[int, int] | None = None
        """A commit that was not read to its end: its number, and the last row."""
        self._given = 0
        """Rows that were read and may not be deleted yet."""
        self._next_count = 0.0
        self.is_full = False
        """The last read found no place in the window."""
        self._oldest = 0
        """No live row of a commit up to this one is left of those that were read."""
        self._first = self._swept = self._sweep_end = self._since_sweep = 0
        """The last sweep kept no commit up to ``_first``. The next does not look there: while a
        transaction is open, the deleted ones stay in the index."""
        self._kept: int | None = None
        """The first commit that this sweep has kept."""
        self._next_sweep = 0.0
        plan_in_order(connection)
        name = quoted(schema)
        table, commits = f"{name}.outbox", f"{name}.outbox_commits"
        live = "state is distinct from 'dead'"
        rows = (
            f"lateral (select {COLUMNS} from {table} o where o.batch = c.batch and {{}} {live} "
            "order by id limit %(limit)s) r"
        )
        joined = f"left join {rows.format('')} on true"
        new = (
            f"select c.number as place, r.* from (select number, batch, at from {commits} "
            f"where number > %(mark)s order by number limit %(limit)s) c {joined}"
        )
        old = (
            "select c.number as place, r.* from unnest(%(lows)s::bigint[], %(highs)s::bigint[]) "
            f"g (low, high) join {commits} c on c.number between g.low and g.high {joined}"
        )
        # One statement, which has one snapshot.
        snapshot = "(select pg_current_snapshot()::text as snapshot) s left join"
        ordered = "order by place, id limit %(limit)s"
        self._read_new = (
            f"select s.snapshot, x.* from {snapshot} ({new} {ordered}) x on true order by place, id"
        )
        self._read_all = (
            f"select s.snapshot, x.* from {snapshot} "
            f"(select * from (({new} {ordered}) union all ({old})) u {ordered}) x on true "
            "order by place, id"
        )
        self._read_rest = (
            f"select r.* from {commits} c, {rows.format('o.id > %(id)s and')} "
            "where c.number = %(number)s order by id"
        )
        self._count = (
            f"select count(*) from (select from {commits} c join {table} o using (batch) "
            f"where number <= %(mark)s and number <> %(rest)s and {live} limit %(limit)s) x"
        )
        self._count_rest = (
            f"select count(*) from {commits} c join {table} o using (batch) "
            f"where number = %(number)s and o.id <= %(id)s and {live}"
        )
        self._left = (
            f"select c.number from {commits} c, lateral (select from {table} o "
            f"where o.batch = c.batch and {live} limit 1) r "
            "where c.number > %(oldest)s and c.number <= %(mark)s order by c.number limit 1"
        )
        self._sweep = f"""
            with c as (select number, batch from {commits}
                where number > %(swept)s and number <= %(end)s order by number limit %(limit)s),
            d as (delete from {commits} where batch in (select batch from c
                where not exists (select from {table} o where o.batch = c.batch)) returning number)
            select max(number), count(*), (select count(*) from d),
                min(number) filter (where number not in (select number from d)) from c"""

    def read(self, limit: int) -> list[StoredRow]:
        """Return the next rows, in order: an empty list if none wait or the window is full."""
        places = self._places()
        self.is_full = places <= 0
        if self.is_full:
            return []
        limit = min(limit, places)
        rows: list[StoredRow] = []
        # A read may find only commits whose rows are handled or dead.
        while not rows and self._read(limit, rows):
            pass
        self._given += len(rows)
        self._since_sweep += len(rows)
        if rows:
            before = rows[0].number - 1
            self._oldest = min(self._oldest, before)
            if before < self._first:
                # It fills a gap.
                self._first = self._swept = before
        if self._since_sweep >= SWEEP or time.monotonic() >= self._next_sweep:
            self._delete_empty_commits()
        return rows

    def _read(self, limit: int, rows: list[StoredRow]) -> bool:
        """Add rows; return whether there may be more."""
        if self._rest is not None:
            number, id = self._rest
            values = {"number": number, "id": id, "limit": limit}
            found = self._connection.execute(self._read_rest, values).fetchall()
            rows += (StoredRow(*row) for row in found)
            self._rest = (number, rows[-1].id) if len(found) == limit else None
            return True
        gaps = self.gaps
        snapshot, found = self._ask(self._read_new, limit=limit)
        whole = False
        if gaps.due(snapshot):
            lows, highs = gaps.ranges()
            snapshot, found = self._ask(self._read_all, limit=limit, lows=lows, highs=highs)
            whole = len(found) < limit or found[-1][0] > max(highs)
        numbers = list(dict.fromkeys(row[0] for row in found))
        new = gaps.read(numbers, snapshot, whole)
        if new:
            (bound,) = self._connection.execute(
                "select pg_current_xact_id()::text::bigint"
            ).fetchone()
            gaps.watch(new, snapshot, bound)
        rows += (StoredRow(*row[1:]) for row in found if row[1] is not None)
        if len(found) < limit:
            return False
        if found[-1][1] is not None:
            self._rest = (found[-1][0], rows[-1].id)
        return True

    def _ask(self, statement: str, **values: Any) -> tuple[Snapshot, list[Any]]:
        values["mark"] = self.gaps.mark
        found = self._connection.execute(statement, values).fetchall()
        return Snapshot.parse(found[0][0]), [row[1:] for row in found if row[1] is not None]

    def _places(self) -> int:
        if self._given >= self._window and (begun := time.monotonic()) >= self._next_count:
            number, id = self._rest or (0, 0)
            values = {"mark": self.gaps.mark, "rest": number, "limit": self._window}
            (self._given,) = self._connection.execute(self._count, values).fetchone()
            if number:
                values = {"number": number, "id": id}
                (read,) = self._connection.execute(self._count_rest, values).fetchone()
                self._given = min(self._given + read, self._window)
            if self._window - self._given < max(self._window // FREED, 1):
                self._given = self._window
                # A tenth of the time at most: workers need the processor.
                now = time.monotonic()
                self._next_count = now + COUNT_PAUSE * (now - begun)
        return self._window - self._given

    def find_oldest(self) -> int | None:
        """Return the oldest commit that was read and has a row that is not dead; None: none has."""
        values = {"oldest": self._oldest, "mark": self.gaps.mark}
        found = self._connection.execute(self._left, values).fetchone()
        # Those before it are not looked at again.
        self._oldest = self.gaps.mark if found is None else found[0] - 1
        return None if found is None else found[0]

    def _delete_empty_commits(self) -> None:
        """Delete commits whose rows are gone, of the next ones."""
        if self._swept == self._first:
            self._kept = None
            # An end that does not move with the mark: rows before it are handled meanwhile.
            self._sweep_end = self.gaps.mark
        values = {"swept": self._swept, "end": self._sweep_end, "limit": SWEEP}
        last, count, deleted, kept = self._connection.execute(self._sweep, values).fetchone()
        if self._kept is None:
            self._kept = kept
        if count == SWEEP:
            self._swept = last
        else:
            end = self._sweep_end if self._kept is None else self._kept - 1
            self._first = self._swept = max(end, self._first)
        # Faster than commits come, while there is much to delete.
        pause = 0.0 if deleted > SWEEP // 2 else SWEEP_PAUSE
        self._since_sweep, self._next_sweep = 0, time.monotonic() + pause
