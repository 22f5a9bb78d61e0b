"""A table's rows in SQLite: one file, in WAL mode, which anybody may read meanwhile."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from interlock.cluster.database.columns import (
    KEY,
    Dialect,
    changes,
    check_part,
    quoted,
    row_columns,
)
from interlock.cluster.database.layout import conversion, layout_of
from interlock.cluster.database.protocol import (
    BATCH,
    Batches,
    DatabaseUnavailable,
    Fenced,
    LogMark,
    SavedMark,
    SavedRow,
    log_mark,
)
from interlock.cluster.state import TableRules

_INT = 1 << 63
DIALECT = Dialect(
    types={
        **dict.fromkeys(("U8", "U16", "U32", "I8", "I16", "I32", "I64"), "INTEGER"),
        # None: what no INTEGER holds is kept as text.
        "U64": "",
        "F32": "REAL",
        "F64": "REAL",
        "bool": "BOOLEAN",
        "str": "TEXT",
        "bytes": "BLOB",
    },
    # A U64 in what was a U32's column: beyond 2**63 it is shown as the nearest float.
    wider=(("BOOLEAN", "INTEGER", ""), ("", "INTEGER")),
    own={
        KEY: "BLOB",
        "interlock_alive": "BOOLEAN",
        "interlock_expires": "INTEGER",
        "interlock_forget": "INTEGER",
        "interlock_token": "INTEGER",
        "interlock_seq": "INTEGER",
        "interlock_layout": "INTEGER",
        "interlock_state": "BLOB",
    },
    can_widen=False,
)


class SqliteDatabase:
    """See ``Database``."""

    def __init__(self, path: Path, name: str, rules: TableRules, part: str, timeout: float) -> None:
        self.url = f"sqlite://{path}"
        self._path = path
        self._name = name
        # Of its own, for it remembers what it read last.
        self._rules = TableRules(rules.row_class, tombstone_age=rules.age_ms / 1000)
        self._columns = row_columns(rules, DIALECT)
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
            found = changes(self._name, self._rules, DIALECT, there)
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
            f"CREATE TABLE {marks} (id INTEGER PRIMARY KEY CHECK (id = 1), token INTEGER NOT NULL, "
            f"mark TEXT NOT NULL, part TEXT NOT NULL)",
            f"INSERT INTO {marks} VALUES (1, 0, '{{}}', '{self._part}')",
            f"CREATE TABLE {layouts} (id INTEGER PRIMARY KEY, layout TEXT NOT NULL UNIQUE)",
        ]

    def _statement(self) -> str:
        names = [*self._columns, *(name for name in DIALECT.own if name != KEY)]
        table, shown = quoted(self._name), [quoted(name) for name in names]
        sets = ", ".join(f"{name} = excluded.{name}" for name in shown)
        return (
            f"INSERT INTO {table} ({KEY}, {', '.join(shown)}) "
            f"VALUES (?{', ?' * len(shown)}) ON CONFLICT ({KEY}) DO UPDATE SET {sets} "
            f"WHERE (excluded.interlock_token, excluded.interlock_seq) "
            f">= ({table}.interlock_token, {table}.interlock_seq)"
        )

    # -- Writing ------------------------------------------------------------------------------

    def begin(self, token: int) -> SavedMark:
        """See ``Database``."""
        with self._asked() as database, _transaction(database):
            mark = self._fenced(database, token)
            self._find_layout(database)
            self._marked(database, token, mark)
            return mark

    def _find_layout(self, database: sqlite3.Connection) -> None:
        layouts = quoted(f"{self._name}_layouts")
        layout = layout_of(self._rules)
        database.execute(f"INSERT OR IGNORE INTO {layouts} (layout) VALUES (?)", (layout,))
        asked = f"SELECT id FROM {layouts} WHERE layout = ?"
        (self._layout,) = database.execute(asked, (layout,)).fetchone()

    def write(self, rows: Sequence[SavedRow], mark: SavedMark, token: int) -> None:
        """See ``Database``."""
        if not self._layout:
            self.begin(token)
        with self._asked() as database, _transaction(database):
            self._fenced(database, token)
            self._put(database, rows, token)
            self._marked(database, token, mark)

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
            self._marked(database, mark.epoch, mark)
            return True

    def _mark(self, database: sqlite3.Connection) -> LogMark:
        asked = f"SELECT mark, token FROM {quoted(f'{self._name}_mark')} WHERE id = 1"
        return log_mark(*database.execute(asked).fetchone())

    def _put(self, database: sqlite3.Connection, rows: Sequence[SavedRow], token: int) -> None:
        written, deleted = [], []
        for row in rows:
            if row.state is None:
                deleted.append((row.key,))
            else:
                written.append(self._values(row.key, row.state, row.seq, token))
        # Neighbours in the tree together.
        written.sort(key=lambda values: values[0])
        database.executemany(self._upsert, written)
        if deleted:
            database.executemany(f"DELETE FROM {quoted(self._name)} WHERE {KEY} = ?", deleted)

    def _values(self, key: bytes, state: bytes, seq: int, token: int) -> tuple[Any, ...]:
        rules = self._rules
        # Whoever reads by SQL looks at the time itself.
        values = rules.values(state, 0)
        alive = values is not None
        if values is None:
            values = (None,) * len(self._columns)
        else:
            values = tuple(str(v) if v.__class__ is int and v >= _INT else v for v in values)
        expires, forget = rules.expires_at(state) or None, rules.forgettable_at(state)
        return (key, *values, alive, expires, forget, token, seq, self._layout, state)

    def _fenced(self, database: sqlite3.Connection, token: int) -> SavedMark:
        found = database.execute(
            f"SELECT token, mark FROM {quoted(f'{self._name}_mark')} WHERE id = 1"
        ).fetchone()
        if found[0] > token:
            raise Fenced(
                f"{self.url}: token {found[0]} writes to {self._name!r}, and {token} no more"
            )
        return msgspec.json.decode(found[1], type=SavedMark)

    def _marked(self, database: sqlite3.Connection, token: int, mark: SavedMark | LogMark) -> None:
        database.execute(
            f"UPDATE {quoted(f'{self._name}_mark')} SET token = ?, mark = ?",
            (token, msgspec.json.encode(mark).decode()),
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

    def load(self) -> tuple[SavedMark, Batches]:
        """See ``Database``."""
        text, batches = self._load()
        return msgspec.json.decode(text, type=SavedMark), batches

    def rows(self) -> Batches:
        """See ``Database``."""
        return self._load()[1]

    def _load(self) -> tuple[str, Batches]:
        # A connection of its own: the batches are of one moment while others write.
        database = self._connected()
        try:
            database.execute("BEGIN")
            asked = f"SELECT mark FROM {quoted(f'{self._name}_mark')} WHERE id = 1"
            ((text,),) = database.execute(asked).fetchall()
            asked = f"SELECT id, layout FROM {quoted(f'{self._name}_layouts')}"
            others = {
                id: convert
                for id, layout in database.execute(asked)
                if (convert := conversion(layout, self._rules)) is not None
            }
        except sqlite3.Error as error:
            database.close()
            raise self._unavailable(error) from None
        return text, self._batches(database, others)

    def _batches(self, database: sqlite3.Connection, others: dict[int, Any]) -> Batches:
        columns = f"{KEY}, interlock_state" + (", interlock_layout" if others else "")
        try:
            rows = database.execute(f"SELECT {columns} FROM {quoted(self._name)}")
            while batch := rows.fetchmany(BATCH):
                if others:
                    batch = [
                        (key, others[layout](state) if layout in others else state)
                        for key, state, layout in batch
                    ]
                yield batch
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
                # What a power failure takes comes again from the stream: the mark goes with it.
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
        return DatabaseUnavailable(f"{self.url}: {error}")


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
