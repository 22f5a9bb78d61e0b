"""``SharedTable``: a mapping of keys to rows, in memory that all processes of the machine share."""

from __future__ import annotations

import contextlib
import functools
import math
import operator
import os
from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    MutableMapping,
    Sequence,
    ValuesView,
)
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Self, TypeVar, cast, overload

from interlock import _core
from interlock.message import Key
from interlock.retry import Seconds, seconds
from interlock.table.closed import closed_kind
from interlock.table.export import TableExport
from interlock.table.row import Row
from interlock.table.schema import Schema
from interlock.table.stats import Resized, TableStats
from interlock.table.views import TableItems, TableKeys, TableValues, shown

if TYPE_CHECKING:
    import numpy as np

__all__ = ["SharedTable", "TableStats"]

W = TypeVar("W", bound=Row)
W2 = TypeVar("W2", bound=Row)
T = TypeVar("T")
Place = str | os.PathLike[str]


class SharedTable(_core.Table, MutableMapping[Key, W], Generic[W]):
    """A mapping of keys to rows that every process of the machine reads and writes.

    ``SharedTable.open("presence", Presence, capacity=100_000)`` creates the table or attaches to
    it. A table is a ``MutableMapping``: ``in``, ``len``, ``pop``, ``setdefault``, ``update``,
    ``items`` and the rest do what they do for a dict, each atomically for one row. Keys are
    ``str``, ``int`` or ``bytes``; ``7``, ``"7"`` and ``b"7"`` are the same key. Iteration returns
    them as ``str``, or as ``bytes`` where they are not UTF-8.

    Readers never wait. A write waits for another write to the same row, which takes nanoseconds; if
    a process dies mid-write, the next process that meets the row completes or undoes the write.
    ``len`` counts, and takes as long as iterating over all slots. An iteration may or may not
    include rows that other processes insert or delete meanwhile; it includes every row that exists
    throughout.
    """

    def __new__(cls, *_: object, **__: object) -> Self:
        """Refuse: call ``open`` or ``attach``.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            f"{cls.__name__}() cannot be called; {cls.__name__}.open(name, row, capacity=...) "
            f"makes a table or attaches to it, {cls.__name__}.attach(name) attaches"
        )

    @classmethod
    def open(
        cls,
        name: Place,
        row: type[W2],
        *,
        capacity: int,
        key_size: int = 32,
        ttl: Seconds | None = None,
        on_full: Literal["evict", "raise"] = "evict",
        writers: int = 1024,
        mode: int = 0o600,
        patience: Seconds = 1.0,
        keeper: bool = False,
    ) -> SharedTable[W2]:
        """Attach to a table, or create it.

        An existing table keeps the capacity, time to live and rule it was created with; its columns
        must be those of ``row``, and its key size the same. ``created`` is True if this call
        created it.

        Args:
            name: a name in the machine's shared memory, or the path of a file (``pathlib.Path``).
            row: the class of its rows.
            capacity: rows that are guaranteed to fit. Beyond them rows may be overwritten.
            key_size: maximum bytes of a key, 1 to 1,024. Default 32.
            ttl: default seconds that a row lives after it was set. Default: without limit.
            on_full: ``"evict"`` overwrites the least recently accessed of the rows whose slot the
                new one may take; ``"raise"`` raises ``TableFull``. Default ``"evict"``.
            writers: maximum threads that write concurrently, 1 to 4,095. Default 1,024.
            mode: permissions. Default 0o600: this user alone. A user without write permission
                cannot read it either.
            patience: seconds that a write waits for a live process that holds the row and does not
                release it. Default 1.
            keeper: for a cluster node: from now on only this process writes to the table, through
                handles opened with ``keeper``. Default False.

        Raises:
            SchemaMismatch: the existing table has other columns, or another key size.
            TableKept: with ``keeper``, if another live process keeps the table.
            NotATable: not a table, or one of another version or namespace.
            PermissionError: the table is another user's, or open to more than ``mode``.
            OSError: not enough memory or disk space.
            TypeError, ValueError: an argument has a wrong type or is out of range.
        """
        if on_full not in ("evict", "raise"):
            raise ValueError(f"open(): on_full is {on_full!r}; allowed: 'evict', 'raise'")
        schema = Schema.of(row)
        lives = None if ttl is None else seconds(ttl, "open(): ttl")
        if lives is not None and lives < 1e-6:
            raise ValueError(f"open(): ttl is {ttl}; allowed: a microsecond or more, None for ever")
        _check("open", "capacity", capacity, 1, 2**40)
        _check("open", "key_size", key_size, 1, 1024)
        _check("open", "writers", writers, 1, 4095)
        _check("open", "mode", mode, 0, 0o777)
        table = _core.Table.__new__(
            cast("type[SharedTable[W2]]", cls),
            *_placed(name),
            str(schema),
            capacity,
            key_size,
            None if lives == math.inf else lives,
            on_full == "evict",
            writers,
            mode,
            seconds(patience, "open(): patience"),
            bool(keeper),
        )
        table._use(row, *_converters(row))
        return table

    @classmethod
    def attach(
        cls, name: Place, row: type[W2] | None = None, *, mode: int = 0o600, patience: Seconds = 1.0
    ) -> SharedTable[W2]:
        """Attach to an existing table.

        Args:
            name: as for ``open``.
            row: the class of its rows. Default: one made from the table's columns.
            mode, patience: as for ``open``.

        Raises:
            FileNotFoundError: no such table.
            SchemaMismatch, NotATable, PermissionError: as for ``open``.
        """
        waits = seconds(patience, "attach(): patience")
        _check("attach", "mode", mode, 0, 0o777)
        kind = cast("type[SharedTable[W2]]", cls)
        table = _core.Table.__new__(kind, *_placed(name), None, 1, 32, None, True, 1, mode, waits)
        made = cast("type[W2]", Schema.parse(table.schema).row()) if row is None else row
        if row is not None and str(Schema.of(row)) != table.schema:
            # The errors' wording is that of opening it.
            return cls.open(name, row, capacity=table.capacity, mode=mode, patience=patience)
        table._use(made, *_converters(made))
        return table

    @staticmethod
    def remove(name: Place) -> bool:
        """Remove a table, and return whether there was one.

        Processes that have it open keep using it; its memory is freed when the last one closes it.
        """
        return _core.remove_table(*_placed(name))

    if TYPE_CHECKING:
        # The native class implements these, and knows no row classes.
        def __getitem__(self, key: Key, /) -> W: ...
        def __setitem__(self, key: Key, row: W, /) -> None: ...
        @overload
        def get(self, key: Key, default: None = None, /) -> W | None: ...
        @overload
        def get(self, key: Key, default: W | T, /) -> W | T: ...
        def get(self, key: Key, default: Any = None, /) -> Any: ...  # noqa: D102
        @overload
        def pop(self, key: Key, /) -> W: ...
        @overload
        def pop(self, key: Key, default: W | T, /) -> W | T: ...
        def pop(self, key: Key, /, *default: Any) -> Any: ...  # noqa: D102
        def set(  # noqa: D102
            self,
            key: Key,
            row: W,
            /,
            *,
            ttl: Seconds | None = None,
            only: Literal["absent", "present"] | None = None,
        ) -> bool: ...
        @overload
        def get_many(self, keys: Iterable[Key], column: None = None, /) -> list[W | None]: ...
        @overload
        def get_many(self, keys: Iterable[Key], column: str, /) -> list[Any]: ...
        def get_many(self, keys: Iterable[Key], column: str | None = None, /) -> list[Any]: ...  # noqa: D102
        @overload
        def get_bytes(self, key: Key, default: None = None, /) -> bytes | None: ...
        @overload
        def get_bytes(self, key: Key, default: bytes | T, /) -> bytes | T: ...
        def get_bytes(self, key: Key, default: Any = None, /) -> Any: ...  # noqa: D102
        def set_many(self, rows: Mapping[Any, W], /) -> None: ...  # noqa: D102

    def __bool__(self) -> bool:
        # Counting all of them would take long.
        return bool(self._scan().next(1))

    def __iter__(self) -> Iterator[Key]:
        for key, _ in self.scan():
            yield key

    def scan(self, *, batch: int = 1000) -> Iterator[tuple[Key, W]]:
        """Iterate over all rows: keys with rows, each as it is when it is reached.

        Args:
            batch: rows per read. Default 1,000.

        Raises:
            TypeError, ValueError: ``batch`` is not an int, or less than 1.
        """
        _check("scan", "batch", batch, 1, 2**32)
        return self._scanned(batch)

    def _scanned(self, batch: int) -> Iterator[tuple[Key, W]]:
        scan = self._scan()
        while rows := scan.next(batch):
            for key, row, _ in rows:
                yield key, row

    def keys(self) -> KeysView[Key]:
        """Return a view of the keys."""
        return TableKeys(self)

    def values(self) -> ValuesView[W]:
        """Return a view of the rows."""
        return TableValues(self)

    def items(self) -> ItemsView[Key, W]:
        """Return a view of the keys and rows."""
        return TableItems(self)

    def setdefault(self, key: Key, default: W | None = None, /) -> W:
        """Return the row of a key; set it to ``default`` first if the key is missing.

        If several processes do so concurrently, one sets it, and all return the row it set.

        Raises:
            TypeError: the key is missing, and no default is given.
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

    def popitem(self) -> tuple[Key, W]:
        """Delete an arbitrary row, and return it with its key.

        If several processes do so concurrently, each gets different rows.

        Raises:
            KeyError: the table is empty.
        """
        # Continue where the last call stopped: otherwise emptying a table would pass over its free
        # slots each time. An iteration is taken out while in use: each thread has its own.
        for begun in (True, False):
            for scan in self._taken(begun):
                for key, _ in scan:
                    if (row := self.pop(key, None)) is not None:
                        self._popping.append(scan)
                        return key, row
        raise KeyError("popitem(): the table is empty")

    def _taken(self, begun: bool) -> Iterator[Iterator[tuple[Key, W]]]:
        """Yield iterations for ``popitem``: those already begun, or a new one."""
        if not begun:
            yield self.scan(batch=100)
            return
        while self._popping:
            with contextlib.suppress(IndexError):  # another thread was quicker
                yield self._popping.pop()

    @functools.cached_property
    def _popping(self) -> list[Iterator[tuple[Key, W]]]:
        return []

    def update(self, rows: Any = (), /, **named: W) -> None:
        """Set rows from a mapping, an iterable of pairs, or keywords; each row separately.

        Args:
            rows: a mapping of keys to rows, or an iterable of pairs. Default: none.
            named: rows by name.

        Raises:
            TypeError, ValueError: an argument is none of these, or not a row of this table; the
                rows before it are set.
        """
        # A table's items are read once; by its keys, a row might have been deleted meanwhile.
        super().update(rows.items() if isinstance(rows, SharedTable) else rows, **named)

    def clear(self) -> None:
        """Delete all rows, as ``reset`` does."""
        self.reset()

    def copy(self) -> NoReturn:
        """Refuse: a copy is seldom wanted, and ``dict(table.items())`` has the rows.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            "a table cannot be copied; `dict(table.items())` takes its rows, `attach` opens it "
            "again"
        )

    def __eq__(self, other: object) -> bool:
        """Return whether a mapping has the same rows, at keys that are equal for a table."""
        if self is other:
            return True
        if not isinstance(other, Mapping):
            return NotImplemented
        if len(self) != len(other):
            return False
        # By items: dict(self) would read each key again, which may be deleted by then.
        rows = dict(self.items())
        try:
            theirs = {shown(_core.canonical(key)): row for key, row in other.items()}
        except (TypeError, ValueError):
            # A value that cannot be a key of a table is not in this one.
            return False
        return len(theirs) == len(other) and rows == theirs

    __hash__ = None  # type: ignore[assignment]  # as of a dict

    def __ior__(self, rows: Mapping[Any, W] | Iterable[tuple[Key, W]]) -> Self:
        self.update(rows)
        return self

    @property
    def closed(self) -> bool:
        """True after ``close``."""
        return False

    def close(self) -> None:
        """Close this handle: every further call through it raises ``ValueError``.

        Other handles stay open, and the rows stay. An iteration that has reached a row continues to
        its end. The memory is unmapped when the last reference to this handle is dropped. You need
        not close a table: a write is visible to all when the call returns. A second call does
        nothing.
        """
        self.__class__ = closed_kind(type(self))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def resize(self, capacity: int, *, drop: bool = False) -> Resized:
        """Make room for more rows, or for fewer, while all processes keep working.

        Every process that has the table open follows with its next call. Readers never wait;
        writers wait while the last rows are copied, and raise ``RowBusy`` if that takes longer than
        their patience (a table of many million rows with many writers). If a process is killed
        during a resize, the table stays as it was. Old and new are both in memory until all
        processes have followed.

        Args:
            capacity: rows that are guaranteed to fit from now on.
            drop: drop live rows that do not fit, the least recently accessed ones.
                Default: refuse.

        Raises:
            TableFull: the table holds more rows than ``capacity``, and ``drop`` is not set.
            RowBusy: a live writer does not finish, or another process resizes.
            FileNotFoundError: the table was removed.
            PermissionError: the table is another user's.
            OSError: not enough memory or disk space for both.
            TypeError, ValueError: an argument has a wrong type or is out of range.
        """
        _check("resize", "capacity", capacity, 1, 2**40)
        if not isinstance(drop, bool):
            raise TypeError(f"resize(): drop is {type(drop).__name__}; allowed: bool")
        return Resized(*self._resize(capacity, drop))

    def stats(self) -> TableStats:
        """Return the number of rows and the counts of the table's events."""
        return TableStats.of(self.capacity, self._stats())

    def export(
        self,
        *,
        keys: Literal["str", "bytes"] = "str",
        columns: Sequence[str] | None = None,
        expiry: bool = False,
    ) -> TableExport:
        """Return a view of the rows for programs that read columns.

        ``polars.DataFrame(table.export())``, ``pyarrow.table(table.export())`` and everything else
        that reads the Arrow PyCapsule interface accept it. Readers that do not check for a mapping
        first, such as polars, accept the table itself too.

        Args:
            keys: ``"str"``, or ``"bytes"`` for a table with keys that are not UTF-8.
            columns: names of columns, in this order. Default: all.
            expiry: adds the column ``_expires``: the time a row expires. Default False.

        Raises:
            TypeError, ValueError: no such column, or an argument is out of range.
        """
        return TableExport(self, keys=keys, columns=columns, expiry=expiry)

    def to_numpy(
        self,
        *,
        keys: Literal["str", "bytes"] = "str",
        columns: Sequence[str] | None = None,
        expiry: bool = False,
    ) -> np.ndarray[Any, np.dtype[np.void]]:
        """Return the rows as a structured array of NumPy.

        Args:
            keys, columns, expiry: as for ``export``.

        Raises:
            ImportError: NumPy is not installed.
            TypeError, ValueError: as for ``export``, or a key is not UTF-8.
        """
        return self.export(keys=keys, columns=columns, expiry=expiry).to_numpy()

    def __arrow_c_schema__(self) -> object:
        """Return the columns for an Arrow reader."""
        return self.export().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows for an Arrow reader."""
        return self.export().__arrow_c_stream__(requested_schema)

    @functools.cached_property
    def row(self) -> type[W]:
        """The class of its rows."""
        return cast("type[W]", self._class())

    def _scan(self) -> _core.TableScan:
        return _core.TableScan(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # By reference: the receiver attaches to the same memory.
        path, row = os.fspath(self.path), self._class()
        # A class that attaching made is made again by the receiver.
        given = None if row is Schema.parse(self.schema).row() else row
        return _attached, (type(self), path, given, self.mode)

    def __copy__(self) -> NoReturn:
        self.copy()

    def __deepcopy__(self, _: object) -> NoReturn:
        self.copy()

    def __repr__(self) -> str:
        kind = f"{'closed ' * self.closed}{type(self).__name__}"
        return f"<{kind} {str(self.path)!r} of {self._class().__qualname__}>"


def _attached(
    kind: type[SharedTable[Any]], path: str, row: type[Row] | None, mode: int
) -> SharedTable[Any]:
    from pathlib import Path

    return kind.attach(Path(path), row, mode=mode)


def _placed(name: Place) -> tuple[str, bool]:
    """Return the name or path of a table, and whether it is a path."""
    if isinstance(name, str):
        return name, False
    if isinstance(name, os.PathLike):
        path = os.fspath(name)
        if isinstance(path, str):
            return path, True
    raise TypeError(
        f"the name of a table is {type(name).__name__}; allowed: str for one in shared memory, "
        f"pathlib.Path for one in a file"
    )


def _converters(row: type[Row]) -> tuple[Callable[..., Row], Callable[[Row], tuple[Any, ...]]]:
    """Return what makes a row from its values, and what returns the values of a row."""
    names = row.__struct_fields__
    # A function that passes keywords without a dict; column names are identifiers.
    given = ", ".join(f"{name}={name}" for name in names)
    make = eval(f"lambda {', '.join(names)}: _row({given})", {"_row": row})
    values = operator.attrgetter(*names)
    if len(names) == 1:
        return make, lambda one: (values(one),)
    return make, values


def _check(call: str, argument: str, number: object, least: int, most: int) -> None:
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"{call}(): {argument} is {type(number).__name__}; allowed: int")
    if not least <= number <= most:
        given, bound = (oct(number), oct(most)) if argument == "mode" else (number, f"{most:,}")
        raise ValueError(f"{call}(): {argument} is {given}; allowed: {least} to {bound}")
