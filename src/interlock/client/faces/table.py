# Made from aio_table.py by scripts/faces.py: change that, and run `make generate`.
"""A table on an engine, for threads."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, MutableMapping, ValuesView
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from interlock.client.row_requests import NONE, Only, Overflow, Rows
from interlock.client.rows.table_arguments import check_batch, check_word, given_key, given_keys
from interlock.message import Key
from interlock.retry import Seconds, seconds
from interlock.table.row import Row
from interlock.table.views import shown

if TYPE_CHECKING:
    from interlock.client.faces.aio_table import AsyncRemoteTable
    from interlock.client.faces.client import Client

D = TypeVar("D")
W = TypeVar("W", bound=Row)


class RemoteTable(MutableMapping[Key, W], Generic[W]):
    """A table on an engine: the methods of ``SharedTable``, for processes anywhere.

    ``Client.table`` makes it. Its calls mean the same as there; each calls the engine,
    and raises ``EngineUnavailable`` if that does not answer within the client's timeout.
    The first one raises ``SchemaMismatch`` if the engine's table has other columns,
    ``NotATable`` if it does not exist. Any thread may use it. ``aio`` is its asyncio
    face.
    """

    def __init__(self, client: Client, name: str, rows: Rows[W]) -> None:
        self._client = client
        self._name = name
        self._rows = rows
        self._run = client._sessions.run

    @property
    def name(self) -> str:
        """The table's name on its engine."""
        return self._name

    @property
    def aio(self) -> AsyncRemoteTable[W]:
        """The asyncio face of this table."""
        from interlock.client.faces.aio_table import AsyncRemoteTable

        return AsyncRemoteTable(self._client.aio, self._name, self._rows)

    def __getitem__(self, key: Key) -> W:
        (row,) = self._run(None, self._rows.get_many, [given_key(key)])
        if row is None:
            raise KeyError(key)
        return row

    def __setitem__(self, key: Key, row: W) -> None:
        self.set(key, row)

    def __delitem__(self, key: Key) -> None:
        if not self._run(None, self._rows.delete, [given_key(key)]):
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return self._run(None, self._rows.contains, given_key(key))

    def __len__(self) -> int:
        return self._run(None, self._rows.count)

    def __bool__(self) -> bool:
        # Without counting.
        return any(True for _ in self.scan(batch=1))

    def __iter__(self) -> Iterator[Key]:
        for key, _ in self.scan():
            yield key

    def values(self) -> ValuesView[W]:
        """Return a view of the rows."""
        return _Values(self)

    def items(self) -> ItemsView[Key, W]:
        """Return a view of the keys and rows."""
        return _Items(self)

    # -- Rows ---------------------------------------------------------------------------------

    @overload
    def get(self, key: Key) -> W | None: ...
    @overload
    def get(self, key: Key, default: D) -> W | D: ...
    def get(self, key: Key, default: Any = None) -> Any:
        """Return a row, or the default if the key has no row."""
        (row,) = self._run(None, self._rows.get_many, [given_key(key)])
        return default if row is None else row

    def set(
        self, key: Key, row: W, *, ttl: Seconds | None = None, only: Only | None = None
    ) -> bool:
        """Set a whole row, and return whether it was set.

        Args:
            ttl: seconds until it expires. Default: the table's.
            only: ``"absent"`` sets it only if the key has no row, ``"present"`` only if it has one.
                Default: always.

        Raises:
            TypeError, ValueError: a column cannot hold its value.
            TableFull: the table is full, and configured not to evict rows.
            RowBusy: a live process of the hub's machine holds the row and does not proceed.
        """
        lives = None if ttl is None else seconds(ttl, "set(): ttl")
        check_word("set(): only", only, (None, "absent", "present"))
        return self._run(None, self._rows.set, given_key(key), row, lives, only)

    @overload
    def pop(self, key: Key) -> W: ...
    @overload
    def pop(self, key: Key, default: D) -> W | D: ...
    def pop(self, key: Key, default: Any = NONE) -> Any:
        """Delete a row and return it, or the default if the key has no row.

        Raises:
            KeyError: the key has no row, and no default was given.
        """
        row = self._run(None, self._rows.pop, given_key(key))
        if row is not None:
            return row
        if default is NONE:
            raise KeyError(key)
        return default

    def setdefault(self, key: Key, default: W | None = None) -> W:
        """Return the row of a key; set it to ``default`` first if it is missing.

        If several processes do so at once, one sets the row, and all return that one.

        Raises:
            TypeError: the key has no row, and no default was given.
        """
        while True:
            found: W | None = self.get(key)
            if found is not None:
                return found
            if default is None:
                raise TypeError(
                    "setdefault(): there is no row, and the default is None, which cannot be a row"
                )
            if self.set(key, default, only="absent"):
                return default

    def patch(self, key: Key, /, **columns: Any) -> bool:
        """Set some columns of a row together, and return whether the row exists.

        Raises:
            TypeError, ValueError: a column cannot hold its value, or does not exist; the row is
                unchanged.
        """
        return self._run(None, self._rows.patch, given_key(key), columns)

    def get_many(self, keys: Iterable[Key]) -> list[W | None]:
        """Return the rows of keys in their order; None for a key without a row.

        Each is read separately, possibly at different moments.
        """
        given = given_keys(keys)
        return self._run(None, self._rows.get_many, given)

    def set_many(self, rows: Mapping[Any, W]) -> None:
        """Set the rows of a mapping, each separately. After an error some of them may be set."""
        given = [(given_key(key), row) for key, row in rows.items()]
        self._run(None, self._rows.set_many, given)

    def scan(self, *, batch: int = 1000) -> Iterator[tuple[Key, W]]:
        """Iterate over all rows: keys with rows, each as it is when it is reached.

        Args:
            batch: rows requested at a time, 1 to 1,000. Default 1,000.
        """
        check_batch(batch)
        cursor, seen = None, set[bytes]()
        while True:
            cursor, rows = self._run(None, self._rows.page, cursor, batch)
            for key, row in rows:
                # A row that moves while others are inserted is met twice.
                if key not in seen:
                    seen.add(key)
                    yield shown(key), row
            if cursor is None:
                return

    def clear(self) -> None:
        """Delete all rows. Rows inserted meanwhile may remain."""
        cursor = None
        while True:
            cursor, rows = self._run(None, self._rows.page, cursor, 1000)
            if rows:
                self._run(None, self._rows.delete, [key for key, _ in rows])
            if cursor is None:
                return

    # -- Columns ------------------------------------------------------------------------------

    def get_column(self, key: Key, column: str, default: Any = NONE) -> Any:
        """Return one column of a row.

        Raises:
            KeyError: the key has no row, and no default was given.
            ValueError: there is no such column.
        """
        found = self._run(None, self._rows.get_column, given_key(key), column)
        if found is not NONE:
            return found
        if default is NONE:
            raise KeyError(key)
        return default

    def set_column(self, key: Key, column: str, value: Any) -> None:
        """Set one column of a row.

        Raises:
            KeyError: there is no row.
            TypeError, ValueError: the column cannot hold the value; the row is unchanged.
        """
        if not self._run(None, self._rows.patch, given_key(key), {column: value}):
            raise KeyError(key)

    def incr(self, key: Key, column: str, by: float = 1, *, overflow: Overflow = "raise") -> Any:
        """Increase a column, and return its new value; atomic across all users of the table.

        Args:
            by: the amount; a negative one decreases it. Default 1.
            overflow: handling of a sum beyond the column's range: ``"raise"`` (the row is
                unchanged), ``"wrap"`` or ``"saturate"``. Default ``"raise"``.

        Raises:
            KeyError: there is no row.
            OverflowError: the sum is beyond the column's range.
        """
        check_word("incr(): overflow", overflow, ("raise", "wrap", "saturate"))
        found = self._run(None, self._rows.incr, given_key(key), column, by, overflow)
        if found is NONE:
            raise KeyError(key)
        return found

    def compare_and_set(self, key: Key, column: str, expected: Any, value: Any) -> bool:
        """Set a column if it is as expected, and return whether it was.

        Raises:
            KeyError: there is no row.
            TypeError, ValueError: the column cannot hold one of the values.
        """
        asked = self._rows.compare_and_set
        done = self._run(None, asked, given_key(key), column, expected, value)
        if done is None:
            raise KeyError(key)
        return done

    # -- Expiry -------------------------------------------------------------------------------

    def expire(self, key: Key, ttl: Seconds) -> bool:
        """Set a row to expire this many seconds from now, and return whether it exists."""
        lives = seconds(ttl, "expire(): ttl")
        return self._run(None, self._rows.expire, given_key(key), lives)

    def persist(self, key: Key) -> bool:
        """Keep a row forever, and return whether it exists and would have expired."""
        return self._run(None, self._rows.persist, given_key(key))

    def ttl(self, key: Key) -> float | None:
        """Return the seconds until a row expires; None: never.

        Raises:
            KeyError: there is no row.
        """
        left = self._run(None, self._rows.ttl, given_key(key))
        if left is NONE:
            raise KeyError(key)
        return left

    def touch(self, key: Key) -> bool:
        """Note an access to a row, and return whether it exists."""
        return self._run(None, self._rows.touch, given_key(key))

    def idle(self, key: Key) -> float:
        """Return how many seconds ago a row was accessed, to about an eighth of a second.

        Raises:
            KeyError: there is no row.
        """
        found = self._run(None, self._rows.idle, given_key(key))
        if found is NONE:
            raise KeyError(key)
        return found

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r} of {self._client.url}>"


class _Values(ValuesView[W]):
    """The rows, each read once."""

    _mapping: RemoteTable[W]

    def __iter__(self) -> Iterator[W]:
        for _, row in self._mapping.scan():
            yield row


class _Items(ItemsView[Key, W]):
    """The keys and rows, each read once."""

    _mapping: RemoteTable[W]

    def __iter__(self) -> Iterator[tuple[Key, W]]:
        yield from self._mapping.scan()
