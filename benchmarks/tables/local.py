"""Peers that share rows between processes by files or shared memory: lmdb, UltraDict, SQLite."""

from __future__ import annotations

import shutil
import sqlite3
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.interpreters import NotPrepared
from benchmarks.tables.store import UNREAD, UNREAD_AT, Store, in_memory, packed, token


class Lmdb(Store):
    """lmdb in shared memory, never synced, a transaction for each operation."""

    name = "lmdb"
    share = 0.4

    def __init__(self, keys: Sequence[str], place: str | None = None) -> None:
        try:
            import lmdb
        except ImportError:
            raise NotPrepared("no lmdb: make bench installs it, where it has a wheel") from None
        self.place = place or in_memory("lmdb")
        self.env = lmdb.open(
            self.place, map_size=1 << 28, sync=False, metasync=False, writemap=True, max_readers=64
        )
        if place is None:
            super().__init__(keys)

    def load(self, tokens: dict[str, str]) -> None:
        with self.env.begin(write=True) as change:
            for key, text in tokens.items():
                change.put(key.encode(), packed(text))

    def get_column(self, keys: Sequence[str]) -> list[int]:
        begin, unpack = self.env.begin, UNREAD.unpack_from
        found = []
        for key in keys:
            with begin() as look:
                found.append(unpack(look.get(key.encode(), b""), UNREAD_AT)[0])
        return found

    def _change(self, keys: Sequence[str], by: int, value: int | None) -> None:
        begin, unpack, pack = self.env.begin, UNREAD.unpack_from, UNREAD.pack_into
        for key in keys:
            name = key.encode()
            with begin(write=True) as change:
                row = bytearray(change.get(name, b""))
                now = unpack(row, UNREAD_AT)[0] + by if value is None else value
                pack(row, UNREAD_AT, now)
                change.put(name, row)

    def set_column(self, keys: Sequence[str], value: int) -> None:
        self._change(keys, 0, value)

    def incr(self, keys: Sequence[str]) -> None:
        self._change(keys, 1, None)

    def get_row(self, keys: Sequence[str]) -> list[Any]:
        begin, found = self.env.begin, []
        for key in keys:
            with begin() as look:
                found.append(look.get(key.encode()))
        return found

    def set_row(self, keys: Sequence[str], rows: Sequence[Any]) -> None:
        begin = self.env.begin
        for key, row in zip(keys, rows, strict=True):
            with begin(write=True) as change:
                change.put(key.encode(), row)

    def miss(self, keys: Sequence[str]) -> list[Any]:
        return self.get_row(keys)

    def get_many(self, batches: Sequence[list[str]]) -> list[list[int]]:
        begin, unpack = self.env.begin, UNREAD.unpack_from
        found = []
        for batch in batches:
            names = [key.encode() for key in batch]
            with begin() as look, look.cursor() as cursor:
                # In the order of the keys that were asked for, all of which are there.
                rows = cursor.getmulti(names)
                found.append([unpack(row, UNREAD_AT)[0] for _, row in rows])
        return found

    def close(self) -> None:
        self.env.close()
        shutil.rmtree(self.place)


class Ultra(Store):
    """UltraDict with its shared lock; a changed row is set as a whole."""

    name = "UltraDict"
    share = 0.05

    def __init__(self, keys: Sequence[str], place: str | None = None) -> None:
        try:
            from UltraDict import UltraDict
        except ImportError:
            raise NotPrepared("no UltraDict: it needs atomics, with wheels up to 3.11") from None
        create = place is None
        self.place = place or f"bench{uuid.uuid4().hex[:12]}"
        # Room for all changes of a run: without, each time it is full all rows are written anew.
        self.rows = UltraDict(
            name=self.place,
            create=create,
            shared_lock=True,
            buffer_size=1 << 28,
            auto_unlink=create,
        )
        if create:
            super().__init__(keys)

    def load(self, tokens: dict[str, str]) -> None:
        for key, text in tokens.items():
            self.rows[key] = _row(text)

    def get_column(self, keys: Sequence[str]) -> list[int]:
        rows = self.rows
        return [rows[key]["unread"] for key in keys]

    def set_column(self, keys: Sequence[str], value: int) -> None:
        rows = self.rows
        for key in keys:
            with rows.lock:
                rows[key] = rows[key] | {"unread": value}

    def incr(self, keys: Sequence[str]) -> None:
        rows = self.rows
        for key in keys:
            with rows.lock:
                row = rows[key]
                rows[key] = row | {"unread": row["unread"] + 1}

    def get_row(self, keys: Sequence[str]) -> list[Any]:
        rows = self.rows
        return [rows[key] for key in keys]

    def rows_of(self, keys: Sequence[str]) -> list[Any]:
        return [_row(token(key)) for key in keys]

    def set_row(self, keys: Sequence[str], rows: Sequence[Any]) -> None:
        kept = self.rows
        for key, row in zip(keys, rows, strict=True):
            kept[key] = row

    def miss(self, keys: Sequence[str]) -> list[Any]:
        get = self.rows.get
        return [get(key) for key in keys]

    def get_many(self, batches: Sequence[list[str]]) -> list[list[int]]:
        rows = self.rows
        return [[rows[key]["unread"] for key in batch] for batch in batches]

    def close(self) -> None:
        self.rows.close()


def _row(text: str) -> dict[str, Any]:
    return {"app_id": 666, "unread": 0, "background": False, "token": text}


class Sqlite(Store):
    """SQLite in shared memory, a write-ahead log, never synced, each statement by itself."""

    name = "sqlite"
    share = 0.05

    def __init__(self, keys: Sequence[str], place: str | None = None) -> None:
        self.place = place or in_memory("sqlite")
        # In transactions of its own, which wait for others.
        self.base = sqlite3.connect(self.place, isolation_level=None, timeout=30)
        self.base.execute("pragma journal_mode=wal")
        self.base.execute("pragma synchronous=off")
        if place is None:
            super().__init__(keys)

    def load(self, tokens: dict[str, str]) -> None:
        self.base.execute(
            "create table row (key text primary key, app_id int, unread int, background int, "
            "token text) without rowid"
        )
        self.base.execute("begin")
        rows = ((key, 666, 0, 0, text) for key, text in tokens.items())
        self.base.executemany("insert into row values (?, ?, ?, ?, ?)", rows)
        self.base.execute("commit")

    def get_column(self, keys: Sequence[str]) -> list[int]:
        ask, text = self.base.execute, "select unread from row where key = ?"
        return [ask(text, (key,)).fetchone()[0] for key in keys]

    def set_column(self, keys: Sequence[str], value: int) -> None:
        ask, text = self.base.execute, "update row set unread = ? where key = ?"
        for key in keys:
            ask(text, (value, key))

    def incr(self, keys: Sequence[str]) -> None:
        ask, text = self.base.execute, "update row set unread = unread + 1 where key = ?"
        for key in keys:
            ask(text, (key,))

    def get_row(self, keys: Sequence[str]) -> list[Any]:
        ask, text = self.base.execute, "select * from row where key = ?"
        return [ask(text, (key,)).fetchone() for key in keys]

    def rows_of(self, keys: Sequence[str]) -> list[Any]:
        return [(key, 666, 0, 0, token(key)) for key in keys]

    def set_row(self, keys: Sequence[str], rows: Sequence[Any]) -> None:
        ask, text = self.base.execute, "replace into row values (?, ?, ?, ?, ?)"
        for row in rows:
            ask(text, row)

    def miss(self, keys: Sequence[str]) -> list[Any]:
        return self.get_row(keys)

    def get_many(self, batches: Sequence[list[str]]) -> list[list[int]]:
        ask = self.base.execute
        found = []
        for batch in batches:
            marks = ", ".join("?" * len(batch))
            rows = dict(ask(f"select key, unread from row where key in ({marks})", batch))
            found.append([rows[key] for key in batch])
        return found

    def close(self) -> None:
        self.base.close()
        for end in ("", "-wal", "-shm"):
            Path(self.place + end).unlink(missing_ok=True)
