"""The columns of a table: read from a row's class, or from the text that a table carries."""

from __future__ import annotations

import functools
import keyword
import re
import struct
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, cast

import msgspec

from interlock.table.kinds import INTEGERS, KINDS, NUMBERS, Kind, Number, Rule, ranges, rule
from interlock.table.row import MOST_BYTES, Row, RowType, Size

__all__ = ["Column", "Schema"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Raises:
        ValueError: its kind is unknown.
    """

    name: str
    kind: Kind
    size: int = 0
    """Maximum bytes of a ``str`` or ``bytes``; 0 for all others."""

    def __post_init__(self) -> None:
        rule(self.kind)

    @property
    def rule(self) -> Rule:
        """Properties of its kind."""
        return KINDS[self.kind]

    def __str__(self) -> str:
        size = f"[{self.size}]" if self.size else ""
        return f"{self.name}: {self.kind}{size}"


@dataclass(frozen=True)
class Schema:
    """The columns of a table, in their order.

    Its text is ``app_id: U32, background: bool, token: str[32]``: the form that errors print, the
    command accepts and a table keeps in its header.
    """

    columns: tuple[Column, ...]

    @classmethod
    def of(cls, row: type[Row]) -> Schema:
        """Return the schema of a row's class.

        Raises:
            TypeError: not a subclass of ``Row``, no column, or a column of another type.
            ValueError: a column cannot hold its default.
        """
        if not (isinstance(row, type) and issubclass(row, Row)):
            raise TypeError(f"the row is {row!r}; allowed: a class made from interlock.Row")
        try:
            hints = typing.get_type_hints(row, include_extras=True)
        except NameError as error:
            raise TypeError(
                f"{row.__qualname__}: the type of a column cannot be resolved: {error}. Define "
                "the names in it at the top of the module"
            ) from None
        names = row.__struct_fields__
        if not names:
            raise TypeError(
                f"{row.__qualname__} has no column; annotate one, such as `unread: U32`"
            )
        schema = cls(tuple(_column(row, name, hints[name]) for name in names))
        # Trailing columns without a default.
        defaults = row.__struct_defaults__
        for column, default in zip(schema.columns[-len(defaults) :], defaults, strict=False):
            # A default factory's value is checked when the row is written.
            if default is not msgspec.NODEFAULT and type(default).__name__ != "Factory":
                _check_default(f"{row.__qualname__}.{column.name}", column, default)
        return schema

    @classmethod
    def parse(cls, text: str) -> Schema:
        """Return the schema of a text.

        Raises:
            ValueError: a column is not of the form ``name: type`` or ``name: str[32]``, or two
                columns have the same name.
        """
        columns = [_parsed(part) for part in text.split(",")]
        names = [column.name for column in columns]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two columns are called {twice[0]!r}")
        return cls(tuple(columns))

    def __str__(self) -> str:
        return ", ".join(map(str, self.columns))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    def row(self) -> type[Row]:
        """Return a class of rows with these columns; all tables with these columns share it."""
        return _row_class(self)

    def column(self, name: str) -> Column:
        """Return a column by its name.

        Raises:
            ValueError: no such column; the message lists the columns.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise ValueError(f"there is no column {name!r}; there are {', '.join(self.names)}")


@functools.cache
def _row_class(schema: Schema) -> type[Row]:
    hints = {column.name: _annotation(column) for column in schema.columns}
    # The class is in no module: unpickling a row makes the class from its columns.
    reduced = {"__reduce__": lambda row: (_made, (str(schema), msgspec.structs.asdict(row)))}
    made: Any = RowType("Row", (Row,), {"__annotations__": hints, **reduced})
    return cast("type[Row]", made)


def _made(schema: str, values: dict[str, Any]) -> Row:
    return Schema.parse(schema).row()(**values)


def _column(row: type[Row], name: str, hint: Any) -> Column:
    place = f"{row.__qualname__}.{name}"
    if not _named(name):
        raise TypeError(f"{place} cannot be a column; allowed: a name as of a variable, without _")
    plain: Any = hint
    extras: Iterable[Any] = ()
    if typing.get_origin(hint) is Annotated:
        plain, *extras = typing.get_args(hint)
    sizes = [extra for extra in extras if isinstance(extra, Size)]
    numbers = [extra for extra in extras if isinstance(extra, Number)]
    if len(sizes) + len(numbers) > 1:
        raise TypeError(f"{place} has several sizes; allowed: one")
    if plain in (str, bytes):
        if not sizes:
            raise TypeError(
                f"{place} is {plain.__name__} without a size; give its maximum bytes: "
                f"Annotated[{plain.__name__}, Size(32)]"
            )
        return Column(name, "str" if plain is str else "bytes", sizes[0].bytes)
    if sizes:
        raise TypeError(f"{place} has a Size, which is for str and bytes")
    if plain is bool and not numbers:
        return Column(name, "bool")
    if plain is float and not numbers:
        return Column(name, "F64")
    if numbers and plain is rule(numbers[0].kind).python:
        return Column(name, numbers[0].kind)
    if plain is int:
        sizes_of_int = f"{', '.join(INTEGERS[:-1])} or {INTEGERS[-1]}"
        raise TypeError(f"{place} is int; choose a size: {sizes_of_int}")
    if typing.get_origin(plain) in (types.UnionType, typing.Union):
        raise TypeError(
            f"{place} is a union; a row has a value in every column: choose one that means none, "
            "such as 0, or add a bool column that says whether there is one"
        )
    given = getattr(plain, "__name__", None) or repr(plain)
    raise TypeError(
        f"{place} is {given}; allowed: {ranges(NUMBERS)}, float, bool, and "
        f"Annotated[str, Size(n)] or Annotated[bytes, Size(n)]"
    )


def _check_default(place: str, column: Column, default: Any) -> None:
    kind, name = column.kind, type(default).__name__
    rule = column.rule
    right = (float, int) if rule.python is float else rule.python
    if not issubclass(type(default), right) or (name == "bool") != (kind == "bool"):
        raise TypeError(f"{place} has a default that is {name}; allowed: {kind}")
    if kind == "str" and not default.isascii():
        try:
            default = default.encode()
        except UnicodeEncodeError:
            raise ValueError(
                f"{place} has a default with a lone surrogate; a str must encode as UTF-8"
            ) from None
    if kind in ("str", "bytes"):
        size = len(default)
        if size > column.size:
            raise ValueError(f"{place} has a default of {size} bytes; its size is {column.size}")
    elif rule.python is int:
        if not rule.least <= default <= rule.most:
            raise ValueError(
                f"{place} has a default of {default}; allowed: {rule.least} to {rule.most}"
            )
    elif rule.python is float:
        try:
            struct.pack("<f" if kind == "F32" else "<d", float(default))
        except OverflowError:
            raise ValueError(f"{place} has a default that is beyond {kind}") from None


def _named(name: str) -> bool:
    """Return whether a column may have this name."""
    return name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_")


def _parsed(text: str) -> Column:
    found = _COLUMN.fullmatch(text.strip())
    if found is None:
        raise ValueError(
            f"{text.strip()!r} is not a column; allowed: NAME: TYPE, of {_KINDS}, "
            f"str[SIZE], bytes[SIZE]; such as `unread: U32, token: str[32]`"
        )
    name, kind, size = found["name"], found["kind"], int(found["size"] or 0)
    if not _named(name):
        raise ValueError(
            f"a column is called {name!r}; allowed: a name as of a variable, without _"
        )
    if (kind in ("str", "bytes")) != bool(size) or size > MOST_BYTES:
        raise ValueError(
            f"{text.strip()!r}: str and bytes have a size from 1 to {MOST_BYTES:,} in brackets, "
            f"others have none"
        )
    return Column(name, cast("Kind", kind), size)


def _annotation(column: Column) -> Any:
    match column.kind:
        case "bool":
            return bool
        case "str" | "bytes":
            return Annotated[column.rule.python, Size(column.size)]
        case kind:
            return Annotated[column.rule.python, Number(kind)]


_KINDS = ", ".join((*NUMBERS, "bool"))
_COLUMN = re.compile(
    rf"(?P<name>\w+)\s*:\s*(?P<kind>{_KINDS.replace(', ', '|')}|str|bytes)"
    r"(\[(?P<size>\d{1,9})\])?"
)
