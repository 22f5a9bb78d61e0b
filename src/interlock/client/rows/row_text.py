"""Rows as a hub writes and reads them: a text for each column."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from interlock.client.wire.bad_reply import nonsense
from interlock.table.row import Row
from interlock.table.schema import Column, Schema

W = TypeVar("W", bound=Row)


class RowText(Generic[W]):
    """The texts of rows of one class."""

    def __init__(self, row: type[W]) -> None:
        self.row = row
        self.schema = Schema.of(row)
        self.names = self.schema.names

    def written(self, row: W) -> list[bytes]:
        """Return the texts of a row's columns, in their order.

        Raises:
            TypeError, ValueError: it is not such a row, or a column cannot hold its value.
        """
        if not isinstance(row, self.row):
            raise TypeError(f"the row is {type(row).__name__}; allowed: {self.row.__qualname__}")
        return [column_text(column, getattr(row, column.name)) for column in self.schema.columns]

    def pairs(self, row: W) -> list[bytes]:
        """Return the names of the columns with their texts."""
        texts = self.written(row)
        return [word for pair in zip(map(str.encode, self.names), texts, strict=True)
                for word in pair]  # fmt: skip

    def read(self, texts: Any) -> W:
        """Return the row of a hub's answer.

        Raises:
            EngineUnavailable: that is not a row.
        """
        columns = self.schema.columns
        if not isinstance(texts, list) or len(texts) != len(columns):
            raise nonsense(texts)
        return self.row(**{
            column.name: column_value(column, text)
            for column, text in zip(columns, texts, strict=True)
        })  # fmt: skip


def column_text(column: Column, value: object) -> bytes:
    """Return the text of a value.

    Raises:
        TypeError, ValueError: the column cannot hold it.
    """
    rule = column.rule
    match rule.python.__name__:
        case "bool":
            if not isinstance(value, bool):
                raise _wrong_type(column, value, "bool")
            return b"1" if value else b"0"
        case "float":
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise _wrong_type(column, value, "float")
            try:
                return repr(float(value)).encode()
            except OverflowError:
                raise ValueError(f"column {column.name} is an int beyond any float") from None
        case "str":
            if not isinstance(value, str):
                raise _wrong_type(column, value, "str")
            try:
                text = value.encode()
            except UnicodeEncodeError:
                raise ValueError(
                    f"column {column.name} holds a lone surrogate; a str must encode as UTF-8"
                ) from None
            return _sized(column, text)
        case "bytes":
            if not isinstance(value, bytes | bytearray):
                raise _wrong_type(column, value, "bytes")
            return _sized(column, bytes(value))
        case _:
            if isinstance(value, bool) or not isinstance(value, int):
                raise _wrong_type(column, value, "int")
            if not rule.least <= value <= rule.most:
                shown = str(value) if value.bit_length() < 200 else "a larger number"
                allowed = f"{rule.least} to {rule.most}"
                raise ValueError(f"column {column.name} is {shown}; allowed: {allowed}")
            return b"%d" % value


def column_value(column: Column, text: Any) -> Any:
    """Return the value of a text, or of a number in a hub's answer.

    Raises:
        EngineUnavailable: it does not fit the column's type.
    """
    try:
        match column.kind:
            case "bytes":
                return bytes(text)
            case "str":
                return bytes(text).decode()
            case "bool":
                return {b"0": False, b"1": True}[text]
            case _:
                return column.rule.python(text)
    except (ValueError, TypeError, KeyError):
        raise nonsense(text) from None


def increment(column: Column, by: object) -> bytes:
    """Return the text of an increment.

    Raises:
        TypeError: the column or the increment is not a number.
    """
    if column.kind in ("bool", "str", "bytes"):
        raise TypeError(f"incr(): column {column.name} is {column}; allowed: a number")
    name = f"incr(): by of column {column.name}"
    if isinstance(by, bool) or not isinstance(by, int | float):
        raise TypeError(f"{name} is {type(by).__name__}; allowed: a number")
    if column.rule.python is float:
        try:
            return repr(float(by)).encode()
        except OverflowError:
            raise OverflowError(f"{name} is an int beyond any float") from None
    if not isinstance(by, int):
        raise TypeError(f"{name} is {type(by).__name__}; allowed: int")
    if -(2**64) < by < 2**64:
        return b"%d" % by
    # Out of range for every column, and wraps by the column's number of bits.
    return b"%d" % (by % 2**64 + (2**100 if by > 0 else -(2**100)))


def _sized(column: Column, text: bytes) -> bytes:
    if len(text) > column.size:
        raise ValueError(f"column {column.name}: {len(text)} bytes; its size is {column.size}")
    return text


def _wrong_type(column: Column, value: object, allowed: str) -> TypeError:
    return TypeError(f"column {column.name} is {type(value).__name__}; allowed: {allowed}")
