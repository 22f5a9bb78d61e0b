"""A table's rows in PostgreSQL, by psycopg: written by COPY into a stage, and loaded by COPY."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import re
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from interlock._core import StateRules
from interlock.client.url import without_password
from interlock.cluster.database.columns import KEY
from interlock.cluster.database.layout import Layouts
from interlock.cluster.database.postgresql_schema import Tables
from interlock.cluster.database.protocol import (
    BATCH,
    Batches,
    DatabaseUnavailable,
    LogMark,
    SavedRow,
)
from interlock.runtime.installation import needs
from interlock.table.schema import Schema

psycopg: Any
try:
    import psycopg
except ImportError as error:
    raise ImportError(
        f"a database of PostgreSQL needs psycopg: {needs('postgresql')} ({error})"
    ) from None

from interlock.cluster.database.copy_out import copied  # noqa: E402 - it needs psycopg

_LOGIN = "check the user and the password in --database"
_RIGHTS = (
    "the user needs CREATE on the schema, or SELECT, INSERT, UPDATE and DELETE on the three tables"
)
_WAYS = {
    "28P01": _LOGIN,
    "28000": _LOGIN,
    "42501": _RIGHTS,
    "25006": "it is read-only: name the primary in --database",
    "53100": "free some space on its disk; the node continues by itself",
    "42P01": "its tables have been changed: restore them, or drop all three and start the node "
    "again, which then writes all rows",
}
"""Advice by the code of PostgreSQL."""
_WAYS_IN = {
    "authentication failed": _LOGIN,
    "no password supplied": _LOGIN,
    "does not exist": "create it, or correct --database",
    "failed to resolve host": "check the host in --database, and the name servers",
    "Connection refused": "start it; the node continues by itself",
}
"""The same for those without a code: of a connection that was not made."""
_PASSING = re.compile("starting up|shutting down|in recovery|too many (clients|connections)")
"""Refusals that end by themselves."""
_NUL = "\u2400"
"""For a NUL, which no text of PostgreSQL holds."""


class PostgresqlDatabase:
    """See ``Database``."""

    def __init__(
        self,
        url: str,
        name: str,
        rules: StateRules,
        partitions: str | None,
        part: str,
        timeout: float,
    ) -> None:
        self.url = re.sub(r"(password=)[^&]*", r"\1***", without_password(url))
        self._url = url
        self._timeout = timeout
        self._rules = rules
        self._tables = Tables(self.url, name, Schema.parse(rules.schema), partitions, part)
        self._texts = [n for n, kind in enumerate(self._tables.columns.values()) if kind == "text"]
        self._opened: Any = None
        self._layout = 0
        self._days: set[dt.date] = set()
        self._lock = threading.Lock()

    # -- Schema -------------------------------------------------------------------------------

    def migrations(self) -> list[str]:
        """See ``Database``."""
        with self._asked() as connection:
            return self._tables.migrations(connection)

    def migrate(self) -> None:
        """See ``Database``."""
        with self._asked() as connection, connection.transaction():
            # Nodes that start at once make it one after the other.
            lock = "SELECT pg_advisory_xact_lock(hashtext(%s))"
            connection.execute(lock, (f"interlock {self._tables.name}",))
            for statement in self._tables.migrations(connection):
                if not statement.startswith("--"):
                    connection.execute(statement)

    # -- Writing ------------------------------------------------------------------------------

    def _find_layout(self, connection: Any) -> None:
        tables, layout = self._tables, self._rules.layout
        connection.execute(
            f"INSERT INTO {tables.layouts} (layout) VALUES (%s) ON CONFLICT DO NOTHING", (layout,)
        )
        asked = f"SELECT id FROM {tables.layouts} WHERE layout = %s"
        ((self._layout,),) = connection.execute(asked, (layout,)).fetchall()
        asked = f"SELECT partitions FROM {tables.mark} WHERE id = 1"
        ((partitions,),) = connection.execute(asked).fetchall()
        tables.partitions = partitions or None

    def mark(self) -> LogMark:
        """See ``Database``."""
        with self._asked() as connection:
            return self._mark(connection)

    def save(self, rows: Sequence[SavedRow], mark: LogMark, before: LogMark) -> bool:
        """See ``Database``."""
        with self._asked() as connection, connection.transaction():
            if self._mark(connection, " FOR UPDATE") != before:
                return False
            if not self._layout:
                self._find_layout(connection)
            self._put(connection, rows, mark.epoch)
            self._marked(connection, mark)
            return True

    def _mark(self, connection: Any, locked: str = "") -> LogMark:
        asked = f"SELECT mark FROM {self._tables.mark} WHERE id = 1{locked}"
        return msgspec.json.decode(connection.execute(asked).fetchone()[0], type=LogMark)

    def _marked(self, connection: Any, mark: LogMark) -> None:
        connection.execute(
            f"UPDATE {self._tables.mark} SET mark = %s", (msgspec.json.encode(mark).decode(),)
        )

    def _put(self, connection: Any, rows: Sequence[SavedRow], epoch: int) -> None:
        tables = self._tables
        written = [self._values(row, row.state, epoch) for row in rows if row.state is not None]
        # In one order, and neighbours of the index together.
        written.sort(key=lambda values: values[0])
        deleted = [row.key for row in rows if row.state is None]
        if written:
            self._stage(connection, written)
            for statement in tables.upserts():
                connection.execute(statement)
        if deleted:
            connection.execute(f"DELETE FROM {tables.rows} WHERE {KEY} = ANY(%s)", (deleted,))

    def _stage(self, connection: Any, written: list[tuple[Any, ...]]) -> None:
        tables, types = self._tables, self._tables.types
        columns = ", ".join(f'"{name}" {kind}' for name, kind in types.items())
        connection.execute(
            f"CREATE TEMPORARY TABLE IF NOT EXISTS {tables.stage} ({columns}) ON COMMIT DELETE ROWS"
        )
        if tables.by_time:
            self._make_partitions(connection, {values[1] for values in written})
        with (
            connection.cursor() as cursor,
            cursor.copy(f"COPY {tables.stage} FROM STDIN (FORMAT BINARY)") as copy,
        ):
            copy.set_types([kind.partition("(")[0] for kind in types.values()])
            for values in written:
                copy.write_row(values)

    def _make_partitions(self, connection: Any, days: set[dt.date]) -> None:
        new = days - self._days
        if not new:
            return
        # Only who holds the mark makes any.
        there = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass"
        found = {
            name.strip('"')
            for (name,) in connection.execute(there, (self._tables.rows,)).fetchall()
        }
        for day in sorted(new):
            if f"{self._tables.name}_p{day:%Y%m%d}" not in found:
                for statement in self._tables.partition(day):
                    connection.execute(statement)
        # After a failure, look for it again.
        self._days = set() if len(self._days) > 1000 else self._days | (days & self._known(found))

    def _known(self, found: set[str]) -> set[dt.date]:
        days = {name.rpartition("_p")[2] for name in found}
        return {
            dt.datetime.strptime(day, "%Y%m%d").date()
            for day in days
            if len(day) == 8 and day.isdecimal()
        }

    def _values(self, row: SavedRow, state: bytes, epoch: int) -> tuple[Any, ...]:
        tables = self._tables
        # Readers by SQL must compare the time themselves.
        values: Any
        values, expires, forget, newest = self._rules.shown(state, 0)
        alive = values is not None
        if not alive:
            values = (None,) * len(tables.columns)
        elif self._texts:
            values = list(values)
            for n in self._texts:
                values[n] = values[n].replace("\0", _NUL)
        day = (tables.day(newest),) if tables.by_time else ()
        return (
            row.key, *day, *values, alive, expires or None, forget, epoch, row.seq, self._layout,
            state,
        )  # fmt: skip

    def forget(self, now_ms: int, most: int) -> int:
        """See ``Database``."""
        rows = self._tables.rows
        with self._asked() as connection:
            done = connection.execute(
                f"DELETE FROM {rows} WHERE {KEY} IN (SELECT {KEY} FROM {rows} "
                f"WHERE interlock_forget > 0 AND interlock_forget <= %s LIMIT %s) "
                f"AND interlock_forget > 0 AND interlock_forget <= %s",
                (now_ms, most, now_ms),
            )
            return int(done.rowcount)

    # -- Reading ------------------------------------------------------------------------------

    def rows(self) -> Batches:
        """See ``Database``."""
        # A connection of its own: the batches are of one moment while others write.
        connection = self._connected(load=True)
        try:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            asked = f"SELECT id, layout FROM {self._tables.layouts}"
            layouts = Layouts(self.url, self._rules, connection.execute(asked).fetchall())
            columns = f"{KEY}, interlock_state" + ", interlock_layout" * bool(layouts)
            query = f"COPY (SELECT {columns} FROM {self._tables.rows}) TO STDOUT (FORMAT BINARY)"
            if layouts:
                yield from self._relaid(connection, query, layouts)
            else:
                yield from copied(connection, query.encode(), self._timeout)
        except psycopg.Error as error:
            raise self._unavailable(error) from None
        finally:
            connection.close()

    def _relaid(self, connection: Any, query: str, layouts: Layouts) -> Batches:
        with connection.cursor() as cursor, cursor.copy(query) as copy:
            copy.set_types(["bytea", "bytea", "int4"])
            rows = copy.rows()
            while batch := list(itertools.islice(rows, BATCH)):
                yield layouts.relaid(batch)

    # -- The connection -----------------------------------------------------------------------

    @contextlib.contextmanager
    def _asked(self) -> Iterator[Any]:
        with self._lock:
            if self._opened is None:
                self._opened = self._connected()
            try:
                yield self._opened
            except psycopg.Error as error:
                self._drop()
                raise self._unavailable(error) from None

    def _connected(self, load: bool = False) -> Any:
        limit = round(self._timeout * 1000)
        # A node that is frozen in the middle of a write must not keep the others from writing.
        limits = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
        given = " ".join(f"-c {name}={limit}" for name in limits)
        options = {} if load else {"options": given}
        try:
            return psycopg.connect(
                self._url,
                autocommit=True,
                connect_timeout=max(2, round(self._timeout)),
                tcp_user_timeout=limit,
                **options,
            )
        except psycopg.Error as error:
            raise self._unavailable(error) from None

    def _drop(self) -> None:
        opened, self._opened = self._opened, None
        self._days = set()
        if opened is not None:
            with contextlib.suppress(psycopg.Error):
                opened.close()

    def close(self) -> None:
        """See ``Database``."""
        with self._lock:
            self._drop()

    def _unavailable(self, error: psycopg.Error) -> DatabaseUnavailable:
        text = " ".join(str(error).split())
        way = _WAYS.get(error.sqlstate or "") or next(
            (way for words, way in _WAYS_IN.items() if words in text), ""
        )
        refused = bool(error.sqlstate or "FATAL:" in text) and not _PASSING.search(text)
        return DatabaseUnavailable(f"{self.url}: {text}{way and f'; {way}'}", refused=refused)
