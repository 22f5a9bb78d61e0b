"""A table's rows in SQLite: one file, in WAL mode, which anybody may read meanwhile."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from interlock._core import StateRules
from interlock.cluster.database.columns import (
    KEY,
    Dialect,
    changes,
    check_part,
    quoted,
    row_columns,
)
from interlock.cluster.database.layout import Layouts
from interlock.cluster.database.protocol import (
    BATCH,
    Batches,
    DatabaseUnavailable,
    LogMark,
    SavedRow,
)
from interlock.table.kinds import KINDS
from interlock.table.schema import Schema

_INT = 1 << 63
_WAYS = {
    "SQLITE_READONLY": "give the node's user the right to write the file and its folder",
    "SQLITE_CANTOPEN": "its folder must exist, and the node's user must be able to write to it",
    "SQLITE_FULL": "free some space on its disk; the node continues by itself",
    "SQLITE_NOTADB": "name another file in --database",
    "SQLITE_BUSY": "another process keeps it locked",
}
"""Advice by the name of the error."""
DIALECT = Dialect(
    types={kind: rule.sqlite for kind, rule in KINDS.items()},
    # A U64 in what was a U32's column: beyond 2**63 it is shown as the nearest float.
    wider=(("BOOLEAN", "INTEGER", ""), ("", "INTEGER")),
    own={
        KEY: "BLOB",
        "interlock_alive": "BOOLEAN",
        "interlock_expires": "INTEGER",
        "interlock_forget": "INTEGER",
        "interlock_epoch": "INTEGER",
        "interlock_seq": "INTEGER",
        "interlock_layout": "INTEGER",
        "interlock_state": "BLOB",
    },
    can_widen=False,
)


class SqliteDatabase:
    """See ``Database``."""

    def __init__(self, path: Path, name: str, rules: StateRules, part: str, timeout: float) -> None:
        self.url = f"sqlite://{path}"
        self._path = path
        self._name = name
        self._rules = rules
        self._schema = Schema.parse(rules.schema)
        self._columns = row_columns(self._schema, DIALECT)
        self._part = part
        self._timeout = timeout
        self._opened: sqlite3.Connection | None = None
        self._layout = 0
        self._lock = threading.Lock()
        self._upsert = self._statement()

    # -- Schema -------------------------------------------------------------------------------

    def migrations(self) -> list[str]:
        """See ``Database``."""
        with self._asked() as database:
            return self._migrations(database)

    def migrate(self) -> None:
        """See ``Database``."""
        with self._asked() as database, _transaction(database):
            for statement in self._migrations(database):
                if not statement.startswith("--"):
                    database.execute(statement)

    def _migrations(self, database: sqlite3.Connection) -> list[str]:
        table, marks = quoted(self._name), quoted(f"{self._name}_mark")
        there = _columns(database, self._name)
        if there:
            found = changes(self._name, self._schema, DIALECT, there)
            ((part,),) = database.execute(f"SELECT part FROM {marks}").fetchall()
            check_part(self.url, self._name, part, self._part)
            return found
        own = {name: f"{kind} NOT NULL" for name, kind in DIALECT.own.items() if name != KEY}
        own["interlock_expires"] = "INTEGER"
        columns = [f"{KEY} BLOB PRIMARY KEY NOT NULL"]
        columns += [f"{quoted(name)} {kind}".rstrip() for name, kind in self._columns.items()]
        columns += [f"{name} {kind}" for name, kind in own.items()]
        forget = quoted(f"{self._name}_forget")
        layouts = quoted(f"{self._name}_layouts")
        return [
            f"CREATE TABLE {table} ({', '.join(columns)}) WITHOUT ROWID",
            f"CREATE INDEX {forget} ON {table} (interlock_forget) WHERE interlock_forget > 0",
            f"CREATE TABLE {marks} (id INTEGER PRIMARY KEY CHECK (id = 1), mark TEXT NOT NULL, "
            f"part TEXT NOT NULL)",
            f"INSERT INTO {marks} VALUES (1, '{{}}', '{self._part}')",
            f"CREATE TABLE {layouts} (id INTEGER PRIMARY KEY, layout TEXT NOT NULL UNIQUE)",
        ]

    def _statement(self) -> str:
        names = [*self._columns, *(name for name in DIALECT.own if name != KEY)]
        table, shown = quoted(self._name), [quoted(name) for name in names]
        sets = ", ".join(f"{name} = excluded.{name}" for name in shown)
        return (
            f"INSERT INTO {table} ({KEY}, {', '.join(shown)}) "
            f"VALUES (?{', ?' * len(shown)}) ON CONFLICT ({KEY}) DO UPDATE SET {sets} "
            f"WHERE (excluded.interlock_epoch, excluded.interlock_seq) "
            f">= ({table}.interlock_epoch, {table}.interlock_seq)"
        )

    # -- Writing ------------------------------------------------------------------------------

    def _find_layout(self, database: sqlite3.Connection) -> None:
        layouts = quoted(f"{self._name}_layouts")
        layout = self._rules.layout
        database.execute(f"INSERT OR IGNORE INTO {layouts} (layout) VALUES (?)", (layout,))
        asked = f"SELECT id FROM {layouts} WHERE layout = ?"
        (self._layout,) = database.execute(asked, (layout,)).fetchone()

    def mark(self) -> LogMark:
        """See ``Database``."""
        with self._asked() as database:
            return self._mark(database)

    def save(self, rows: Sequence[SavedRow], mark: LogMark, before: LogMark) -> bool:
        """See ``Database``."""
        with self._asked() as database, _transaction(database):
            if self._mark(database) != before:
                return False
            if not self._layout:
                self._find_layout(database)
            self._put(database, rows, mark.epoch)
            self._marked(database, mark)
            return True

    def _mark(self, database: sqlite3.Connection) -> LogMark:
        asked = f"SELECT mark FROM {quoted(f'{self._name}_mark')} WHERE id = 1"
        return msgspec.json.decode(database.execute(asked).fetchone()[0], type=LogMark)

    def _put(self, database: sqlite3.Connection, rows: Sequence[SavedRow], epoch: int) -> None:
        written, deleted = [], []
        for row in rows:
            if row.state is None:
                deleted.append((row.key,))
            else:
                written.append(self._values(row.key, row.state, row.seq, epoch))
        # Neighbours in the tree together.
        written.sort(key=lambda values: values[0])
        database.executemany(self._upsert, written)
        if deleted:
            database.executemany(f"DELETE FROM {quoted(self._name)} WHERE {KEY} = ?", deleted)

    def _values(self, key: bytes, state: bytes, seq: int, epoch: int) -> tuple[Any, ...]:
        # Readers by SQL must compare the time themselves.
        values, expires, forget, _ = self._rules.shown(state, 0)
        alive = values is not None
        if values is None:
            values = (None,) * len(self._columns)
        else:
            values = tuple(str(v) if v.__class__ is int and v >= _INT else v for v in values)
        return (key, *values, alive, expires or None, forget, epoch, seq, self._layout, state)

    def _marked(self, database: sqlite3.Connection, mark: LogMark) -> None:
        database.execute(
            f"UPDATE {quoted(f'{self._name}_mark')} SET mark = ?",
            (msgspec.json.encode(mark).decode(),),
        )

    def forget(self, now_ms: int, most: int) -> int:
        """See ``Database``."""
        table = quoted(self._name)
        with self._asked() as database, _transaction(database):
            return database.execute(
                f"DELETE FROM {table} WHERE {KEY} IN (SELECT {KEY} FROM {table} "
                f"WHERE interlock_forget > 0 AND interlock_forget <= ? LIMIT ?)",
                (now_ms, most),
            ).rowcount

    # -- Reading ------------------------------------------------------------------------------

    def rows(self) -> Batches:
        """See ``Database``."""
        # A connection of its own: the batches are of one moment while others write.
        database = self._connected()
        try:
            database.execute("BEGIN")
            asked = f"SELECT id, layout FROM {quoted(f'{self._name}_layouts')}"
            layouts = Layouts(self.url, self._rules, database.execute(asked).fetchall())
            columns = f"{KEY}, interlock_state" + ", interlock_layout" * bool(layouts)
            found = database.execute(f"SELECT {columns} FROM {quoted(self._name)}")
            while batch := found.fetchmany(BATCH):
                yield layouts.relaid(batch) if layouts else batch
        except sqlite3.Error as error:
            raise self._unavailable(error) from None
        finally:
            database.close()

    # -- The connection -----------------------------------------------------------------------

    @contextlib.contextmanager
    def _asked(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._opened is None:
                self._opened = self._connected()
            try:
                yield self._opened
            except sqlite3.Error as error:
                self._drop()
                raise self._unavailable(error) from None

    def _connected(self) -> sqlite3.Connection:
        try:
            database = sqlite3.connect(
                self._path, timeout=self._timeout, isolation_level=None, check_same_thread=False
            )
            try:
                database.execute("PRAGMA journal_mode = WAL")
                # A power failure takes the mark too, so lost rows are read from the log again.
                database.execute("PRAGMA synchronous = NORMAL")
            except BaseException:
                database.close()
                raise
        except sqlite3.Error as error:
            raise self._unavailable(error) from None
        return database

    def _drop(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            with contextlib.suppress(sqlite3.Error):
                opened.close()

    def close(self) -> None:
        """See ``Database``."""
        with self._lock:
            self._drop()

    def _unavailable(self, error: sqlite3.Error) -> DatabaseUnavailable:
        code = getattr(error, "sqlite_errorname", "")
        way = next((way for name, way in _WAYS.items() if code.startswith(name)), "")
        refused = code.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_NOTADB"))
        return DatabaseUnavailable(f"{self.url}: {error}{way and f'; {way}'}", refused=refused)


@contextlib.contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    # At once for writing: who only reads first might have to give way in the middle.
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        # A full disk ends some transactions by itself.
        if database.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                database.execute("ROLLBACK")
        raise


def _columns(database: sqlite3.Connection, table: str) -> dict[str, str]:
    return {row[1]: row[2] for row in database.execute(f"PRAGMA table_info({quoted(table)})")}
