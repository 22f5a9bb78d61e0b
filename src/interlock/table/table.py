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

    ``SharedTable.open("presence", Presence, capacity=100_000)`` makes it or attaches to it. It is a
    ``MutableMapping``: ``in``, ``len``, ``pop``, ``setdefault``, ``update``, ``items`` and the rest
    do what they do for a dict, each atomically for one row. Keys are ``str``, ``int`` or ``bytes``,
    and ``7``, ``"7"`` and ``b"7"`` are one key; iteration gives them as ``str``, or as ``bytes``
    where they are no UTF-8.

    Readers never wait. A write waits for another to the same row, which takes nanoseconds; what a
    killed process left is finished or undone by whoever comes upon it. ``len`` counts: it takes as
    long as going over all slots. What another process inserts or deletes during an iteration may be
    in it or not; what is there all the time is in it.
    """

    def __new__(cls, *_: object, **__: object) -> Self:
        """Refuse: ``open`` and ``attach`` say which is meant.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            f"{cls.__name__}() is not called; {cls.__name__}.open(name, row, capacity=...) makes a "
            f"table or attaches to it, {cls.__name__}.attach(name) attaches"
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
        """Attach to a table, or make it.

        What is there keeps the capacity, time to live and rule of whoever made it; its columns must
        be those of ``row``, and its key size the same. ``created`` says whether this call made it.

        Args:
            name: a name in the machine's shared memory, or the path of a file (``pathlib.Path``).
            row: the class of its rows.
            capacity: rows that it surely holds. Beyond them rows may be overwritten.
            key_size: most bytes of a key, 1 to 1,024. Default 32.
            ttl: seconds that a row lives after it was set, if it is not told. Default: for ever.
            on_full: ``"evict"`` overwrites the row that was accessed longest ago of those whose
                slot the new one may take, ``"raise"`` raises ``TableFull``. Default ``"evict"``.
            writers: most threads that write at once, 1 to 4,095. Default 1,024.
            mode: who may open it. Default 0o600, this user alone. Whoever may not write may not
                read it either.
            patience: seconds that a write waits for a process that holds the row, lives, and does
                not go on. Default 1.
            keeper: of nodes of a cluster: from now on nobody writes to it but this process, through
                what it has opened so. Default False.

        Raises:
            SchemaMismatch: the table that is there has other columns, or another key size.
            TableKept: with ``keeper``, where another process is it already, and lives.
            NotATable: no table lies there, or one of another version or namespace.
            PermissionError: it is another user's, or open to more than ``mode``.
            OSError: there is no room for it.
            TypeError, ValueError: an argument is of a wrong type or out of its range.
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
        """Attach to a table that is there.

        Args:
            name: as of ``open``.
            row: the class of its rows. Default: one made of the columns that it has.
            mode, patience: as of ``open``.

        Raises:
            FileNotFoundError: there is no such table.
            SchemaMismatch, NotATable, PermissionError: as of ``open``.
        """
        waits = seconds(patience, "attach(): patience")
        _check("attach", "mode", mode, 0, 0o777)
        kind = cast("type[SharedTable[W2]]", cls)
        table = _core.Table.__new__(kind, *_placed(name), None, 1, 32, None, True, 1, mode, waits)
        made = cast("type[W2]", Schema.parse(table.schema).row()) if row is None else row
        if row is not None and str(Schema.of(row)) != table.schema:
            # Its words are those of opening it.
            return cls.open(name, row, capacity=table.capacity, mode=mode, patience=patience)
        table._use(made, *_converters(made))
        return table

    @staticmethod
    def remove(name: Place) -> bool:
        """Remove a table, and return whether there was one.

        Who has it open goes on with it; its memory is given back when nobody has.
        """
        return _core.remove_table(*_placed(name))

    if TYPE_CHECKING:
        # The native class does these, and knows of no class of rows.
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
        # To count all of them would take long.
        return bool(self._scan().next(1))

    def __iter__(self) -> Iterator[Key]:
        for key, _ in self.scan():
            yield key

    def scan(self, *, batch: int = 1000) -> Iterator[tuple[Key, W]]:
        """Go over all rows: keys with rows, as they are when they are come upon.

        Args:
            batch: rows that are read at once. Default 1,000.

        Raises:
            TypeError, ValueError: batch is no int, or less than 1.
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
        """Return the row of a key; set it to ``default`` first where there is none.

        Of several processes that do so at once, one sets it, and all return what it set.

        Raises:
            TypeError: there is none, and no default.
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
        """Delete a row, whichever it is, and return it with its key.

        Of several processes that do so at once, each gets rows of its own.

        Raises:
            KeyError: there is none.
        """
        # On from where the last was, or emptying a table would go over its free slots each time.
        # An iteration is taken out while it is in use: of several threads each has its own.
        for begun in (True, False):
            for scan in self._taken(begun):
                for key, _ in scan:
                    if (row := self.pop(key, None)) is not None:
                        self._popping.append(scan)
                        return key, row
        raise KeyError("popitem(): the table is empty")

    def _taken(self, begun: bool) -> Iterator[Iterator[tuple[Key, W]]]:
        """Yield iterations for ``popitem``: those that were begun, or a new one."""
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
        """Set rows: of a mapping, of an iterable of pairs, of keywords; each by itself.

        Args:
            rows: a mapping of keys to rows, or an iterable of pairs. Default: none.
            named: rows by name.

        Raises:
            TypeError, ValueError: what is given is none of these, or no row of this table; what was
                before it is set.
        """
        # A table's items are read once; by its keys one would be asked for that has gone meanwhile.
        super().update(rows.items() if isinstance(rows, SharedTable) else rows, **named)

    def clear(self) -> None:
        """Delete all rows, as ``reset`` does."""
        self.reset()

    def copy(self) -> NoReturn:
        """Refuse: a copy is seldom meant, and ``dict(table.items())`` has the rows.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            "a table is not copied; `dict(table.items())` takes its rows, `attach` opens it again"
        )

    def __eq__(self, other: object) -> bool:
        """Return whether a mapping has the same rows, at keys that are the same for a table."""
        if self is other:
            return True
        if not isinstance(other, Mapping):
            return NotImplemented
        if len(self) != len(other):
            return False
        # By items: dict(self) would ask for each key again, which may be gone by then.
        rows = dict(self.items())
        try:
            theirs = {shown(_core.canonical(key)): row for key, row in other.items()}
        except (TypeError, ValueError):
            # What is no key of a table is not in this one.
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
        """Have every further call through this handle raise ``ValueError``.

        Others have the table open as before, and its rows stay. An iteration that has come upon a
        row goes on to its end. The memory is unmapped when the last reference to this handle goes.
        Nothing need be closed: what is written is there for all when the call returns. A second
        call does nothing.
        """
        self.__class__ = closed_kind(type(self))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def resize(self, capacity: int, *, drop: bool = False) -> Resized:
        """Make room for more rows, or for fewer, while all processes go on.

        Whoever has the table open follows with its next call. Readers never wait; writers do while
        the last rows are copied, and raise ``RowBusy`` where that takes longer than their patience
        (a table of many million rows that many write to). A process that is killed in the midst of
        it leaves the table as it was. Old and new are both in memory until all have followed.

        Args:
            capacity: rows that it surely holds from now on.
            drop: drop live rows for which there is no room, those that were accessed longest ago.
                Default: refuse.

        Raises:
            TableFull: it holds more rows than ``capacity``, and ``drop`` is not set.
            RowBusy: a writer that lives does not go on, or another process resizes.
            FileNotFoundError: it was removed.
            PermissionError: it is another user's.
            OSError: there is no room for both.
            TypeError, ValueError: an argument is of a wrong type or out of its range.
        """
        _check("resize", "capacity", capacity, 1, 2**40)
        if not isinstance(drop, bool):
            raise TypeError(f"resize(): drop is {type(drop).__name__}; allowed: bool")
        return Resized(*self._resize(capacity, drop))

    def stats(self) -> TableStats:
        """Count the rows, and return what has come to pass in the table."""
        return TableStats.of(self.capacity, self._stats())

    def export(
        self,
        *,
        keys: Literal["str", "bytes"] = "str",
        columns: Sequence[str] | None = None,
        expiry: bool = False,
    ) -> TableExport:
        """Return a view of the rows for programs that look at columns.

        ``polars.DataFrame(table.export())``, ``pyarrow.table(table.export())`` and all else that
        reads the Arrow PyCapsule interface take it. What does not look for a mapping first, as
        polars does, takes the table itself too.

        Args:
            keys: ``"str"``, or ``"bytes"`` for a table with keys that are no UTF-8.
            columns: names of columns, in the order wanted. Default: all.
            expiry: adds the column ``_expires``, when a row expires. Default: it is left out.

        Raises:
            TypeError, ValueError: there is no such column, or an argument is out of its range.
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
            keys, columns, expiry: as of ``export``.

        Raises:
            ImportError: NumPy is not installed.
            TypeError, ValueError: as of ``export``, or a key is not UTF-8.
        """
        return self.export(keys=keys, columns=columns, expiry=expiry).to_numpy()

    def __arrow_c_schema__(self) -> object:
        """Return the columns for a reader of Arrow."""
        return self.export().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows for a reader of Arrow."""
        return self.export().__arrow_c_stream__(requested_schema)

    @functools.cached_property
    def row(self) -> type[W]:
        """The class of its rows."""
        return cast("type[W]", self._class())

    def _scan(self) -> _core.TableScan:
        return _core.TableScan(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # By reference: whoever gets it attaches to the same memory.
        path, row = os.fspath(self.path), self._class()
        # A class that attaching made is made there again.
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
    """Return where a table lies, and whether that is a path."""
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
    """Return what makes a row of its values, and what gives the values of a row."""
    names = row.__struct_fields__
    # By a function, which passes keywords without a dict; columns' names are identifiers.
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
