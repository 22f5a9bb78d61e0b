"""Rows of a table in this process, for a client of ``memory://``."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from interlock import _core
from interlock.client.request import Request
from interlock.client.row_requests import NONE, OnFull, Only, Overflow
from interlock.errors import SchemaMismatch
from interlock.table.row import Row
from interlock.table.schema import Schema

if TYPE_CHECKING:
    from interlock.client.session import Session
    from interlock.table.table import SharedTable

W = TypeVar("W", bound=Row)


@dataclass(frozen=True)
class TableOptions:
    """The construction of a missing table."""

    capacity: int
    key_size: int
    ttl: float | None
    on_full: OnFull


class MemoryTables:
    """The tables of one engine in memory, by their names."""

    def __init__(self) -> None:
        self._tables: dict[str, SharedTable[Any]] = {}
        self._lock = threading.Lock()

    def of(self, name: str, row: type[W], options: TableOptions) -> SharedTable[Any]:
        """Return the table of this name; make it if it does not exist.

        Raises:
            SchemaMismatch: it has other columns.
            OSError, ValueError: as ``SharedTable.open``.
        """
        from interlock.table.table import SharedTable

        with self._lock:
            found = self._tables.get(name)
            if found is None:
                # Its name is removed immediately, so that nothing is left however the process ends.
                place = f"memory-{os.getpid()}-{uuid.uuid4().hex}"
                found = SharedTable.open(
                    place,
                    row,
                    capacity=options.capacity,
                    key_size=options.key_size,
                    ttl=options.ttl,
                    on_full=options.on_full,
                )
                SharedTable.remove(place)
                self._tables[name] = found
        expected = str(Schema.of(row))
        if found.schema != expected:
            raise SchemaMismatch(
                f"table {name!r} of this engine in memory has other columns:\n"
                f"  expected: {expected}\n  found:    {found.schema}"
            )
        return found


class MemoryRows(Generic[W]):
    """The rows of one table of this process. See `Rows`."""

    def __init__(
        self, tables: MemoryTables, name: str, row: type[W], options: TableOptions
    ) -> None:
        self._table = tables.of(name, row, options)
        self._row = row
        # Another client may have made it with a different class.
        self._is_own = self._table.row is row

    def get_many(self, session: Session[Any], keys: Sequence[bytes]) -> Request[list[W | None]]:
        """See `Rows`."""
        yield from ()
        return [None if row is None else self._read(row) for row in self._table.get_many(keys)]

    def set_many(self, session: Session[Any], rows: Sequence[tuple[bytes, W]]) -> Request[None]:
        """See `Rows`."""
        yield from ()
        self._table.set_many({key: self._written(row) for key, row in rows})

    def set(
        self, session: Session[Any], key: bytes, row: W, ttl: float | None, only: Only | None
    ) -> Request[bool]:
        """See `Rows`."""
        yield from ()
        return self._table.set(key, self._written(row), ttl=ttl, only=only)

    def delete(self, session: Session[Any], keys: Sequence[bytes]) -> Request[int]:
        """See `Rows`."""
        yield from ()
        return sum(self._table.pop(key, None) is not None for key in keys)

    def pop(self, session: Session[Any], key: bytes) -> Request[W | None]:
        """See `Rows`."""
        yield from ()
        row = self._table.pop(key, None)
        return None if row is None else self._read(row)

    def contains(self, session: Session[Any], key: bytes) -> Request[bool]:
        """See `Rows`."""
        yield from ()
        return key in self._table

    def get_column(self, session: Session[Any], key: bytes, column: str) -> Request[Any]:
        """See `Rows`."""
        yield from ()
        return self._table.get_column(key, column, NONE)

    def patch(self, session: Session[Any], key: bytes, columns: Mapping[str, Any]) -> Request[bool]:
        """See `Rows`."""
        yield from ()
        return self._table.patch(key, **columns)

    def incr(
        self, session: Session[Any], key: bytes, column: str, by: float, overflow: Overflow
    ) -> Request[Any]:
        """See `Rows`."""
        yield from ()
        try:
            return self._table.incr(key, column, by, overflow=overflow)
        except KeyError:
            return NONE

    def compare_and_set(
        self, session: Session[Any], key: bytes, column: str, expected: Any, value: Any
    ) -> Request[bool | None]:
        """See `Rows`."""
        yield from ()
        try:
            return self._table.compare_and_set(key, column, expected, value)
        except KeyError:
            return None

    def expire(self, session: Session[Any], key: bytes, ttl: float) -> Request[bool]:
        """See `Rows`."""
        yield from ()
        return self._table.expire(key, ttl)

    def persist(self, session: Session[Any], key: bytes) -> Request[bool]:
        """See `Rows`."""
        yield from ()
        return self._table.persist(key)

    def ttl(self, session: Session[Any], key: bytes) -> Request[float | None]:
        """See `Rows`."""
        yield from ()
        try:
            left: float | None = self._table.ttl(key)
        except KeyError:
            left = NONE
        return left

    def touch(self, session: Session[Any], key: bytes) -> Request[bool]:
        """See `Rows`."""
        yield from ()
        return self._table.touch(key)

    def idle(self, session: Session[Any], key: bytes) -> Request[float]:
        """See `Rows`."""
        yield from ()
        try:
            found: float = self._table.idle(key)
        except KeyError:
            found = NONE
        return found

    def count(self, session: Session[Any]) -> Request[int]:
        """See `Rows`."""
        yield from ()
        return len(self._table)

    def page(
        self, session: Session[Any], cursor: Any, count: int
    ) -> Request[tuple[Any, list[tuple[bytes, W]]]]:
        """See `Rows`."""
        yield from ()
        rows = self._table.scan(batch=count) if cursor is None else cursor
        some: list[tuple[bytes, W]] = []
        for key, row in rows:
            some.append((_core.canonical(key), self._read(row)))
            if len(some) == count:
                return rows, some
        return None, some

    def _read(self, row: Row) -> W:
        if self._is_own:
            return row  # type: ignore[return-value]
        return self._row(**{name: getattr(row, name) for name in self._row.__struct_fields__})

    def _written(self, row: W) -> Row:
        if self._is_own or not isinstance(row, self._row):
            return row
        names = self._row.__struct_fields__
        made: Row = self._table.row(**{name: getattr(row, name) for name in names})
        return made
