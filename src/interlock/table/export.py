"""All rows at once, for programs that read columns: Arrow readers and NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from interlock import _core
from interlock.table.schema import Column, Schema

if TYPE_CHECKING:
    import numpy as np

__all__ = ["EXPIRES", "TableExport", "key_name"]

EXPIRES = "_expires"
"""Name of the column with each row's expiry; a table's own names do not begin with _."""


class TableExport:
    """A view of a table's rows for a program that reads Arrow, or as an array of NumPy.

    ``SharedTable.export`` makes it. It holds no rows: a reader iterates over the table, a batch of
    up to 65,536 rows (and 16 MiB) at a time. Each row is one that existed as a whole; rows of
    different keys may be from different moments. A row that exists throughout is read once.
    """

    def __init__(
        self,
        table: _core.Table,
        *,
        keys: Literal["str", "bytes"] = "str",
        columns: Sequence[str] | None = None,
        expiry: bool = False,
    ) -> None:
        if keys not in ("str", "bytes"):
            raise ValueError(f"export(): keys is {keys!r}; allowed: 'str', 'bytes'")
        if isinstance(columns, (str, bytes)):
            raise TypeError("export(): columns is one name; allowed: a sequence of names")
        schema = Schema.parse(table.schema)
        names = schema.names if columns is None else tuple(columns)
        if len(set(names)) < len(names):
            raise ValueError(f"export(): columns is {names!r}; allowed: each name once")
        self._table = table
        self._keys = keys
        self._key_name = key_name(schema)
        self._expiry = EXPIRES if expiry else None
        self._inner = self._begun(names)
        self._columns = [schema.column(name) for name in names]

    def _begun(self, names: Sequence[str]) -> _core.TableExport:
        text = self._keys == "str"
        return self._table._export(self._key_name, text, list(names), self._expiry)

    def __arrow_c_schema__(self) -> object:
        """Return the columns as a capsule of the Arrow C data interface."""
        return self._inner.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as a capsule of the Arrow C stream interface; each capsule iterates anew.

        Args:
            requested_schema: ignored; readers cast the columns.
        """
        return self._inner.__arrow_c_stream__(requested_schema)

    def to_numpy(self) -> np.ndarray[Any, np.dtype[np.void]]:
        """Return the rows as a structured array: a field for the key, and one for each column.

        A ``str`` is a ``U`` of as many characters as its size has bytes, ``bytes`` become an ``S``;
        both drop trailing zeros, as NumPy does. The time at which a row expires is a
        ``datetime64[us]`` in UTC, ``NaT`` for never.

        Raises:
            ImportError: NumPy is not installed.
            ValueError: a key is not UTF-8, and ``keys`` is ``"str"``.
        """
        try:
            import numpy as np
        except ImportError as error:
            raise ImportError(
                "to_numpy() needs NumPy, which is not installed: pip install numpy"
            ) from error

        key = f"{'U' if self._keys == 'str' else 'S'}{self._table.key_size}"
        fields: list[tuple[str, str]] = [(self._key_name, key)]
        fields += [(column.name, _field(column)) for column in self._columns]
        if self._expiry:
            fields.append((self._expiry, "M8[us]"))
        dtype = np.dtype(fields)
        # A view of its own, because records are read once.
        batches = self._begun([column.name for column in self._columns])
        filled, rows = 0, np.empty(len(self._table), dtype)
        while True:
            count, packed = batches._records()
            if not count:
                # Other processes write, so there may be more or fewer rows than were counted.
                return rows[:filled].copy() if filled < len(rows) else rows
            if filled + count > len(rows):
                rows = np.concatenate([rows[:filled], np.empty(count + filled // 8, dtype)])
            rows[filled : filled + count] = np.frombuffer(packed, dtype)
            filled += count


def key_name(schema: Schema) -> str:
    """Return the name of the keys' column: ``key``, or ``_key`` where a column has that name."""
    return "_key" if "key" in schema.names else "key"


def _field(column: Column) -> str:
    """Return a column's type as NumPy writes it."""
    return f"{column.rule.numpy}{column.size or ''}"
