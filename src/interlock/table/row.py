"""Rows of a table, declared like a dataclass, and the types of their columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, dataclass_transform

import msgspec

__all__ = [
    "F32",
    "F64",
    "I8",
    "I16",
    "I32",
    "I64",
    "U8",
    "U16",
    "U32",
    "U64",
    "Number",
    "Row",
    "Size",
]

NumberKind = Literal["U8", "U16", "U32", "U64", "I8", "I16", "I32", "I64", "F32", "F64"]
NUMBER_KINDS = "U8 to U64, I8 to I64, F32, F64, float"
"""The kinds of numbers, as errors list them."""


class RowType(msgspec.StructMeta):
    """Metaclass of row classes: each is frozen and takes keyword arguments only."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> RowType:
        """Create a class of rows."""
        options = {**options, "frozen": True, "kw_only": True}
        made: RowType = super().__new__(mcs, name, bases, namespace, **options)
        return made


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Row(msgspec.Struct, frozen=True, kw_only=True, metaclass=RowType):
    """A row of a table. Subclass it, and annotate each column with its type.

    ::

        class Presence(Row):
            app_id: U32
            background: bool = False
            unread: U32 = 0
            token: Annotated[str, Size(32)]

    Columns are ``U8`` to ``U64``, ``I8`` to ``I64``, ``F32``, ``F64`` (or ``float``), ``bool``, and
    ``str`` or ``bytes`` with a ``Size``. A row is frozen, because ``row.unread += 1`` would change
    a copy and not the table. ``table.incr``, ``set_column`` and ``patch`` change the table.

    Where a cluster serves the table, a marker says how concurrent changes of a column are merged:
    ``unread: Annotated[U32, Sum]`` adds them up; ``Max``, ``Flags`` and ``Last`` are the others.

    Rows compare by value and can be hashed, pickled and matched; ``msgspec`` reads and writes them
    as JSON, and ``msgspec.structs.replace(row, unread=0)`` returns a changed copy. Values are
    checked when a row is written to a table, not when it is created.
    """


@dataclass(frozen=True, slots=True)
class Size:
    """The most bytes of a ``str`` (in UTF-8) or ``bytes`` column: ``Annotated[str, Size(32)]``.

    Raises:
        TypeError, ValueError: not an int from 1 to 32,768.
    """

    bytes: int

    def __post_init__(self) -> None:
        if not isinstance(self.bytes, int) or isinstance(self.bytes, bool):
            raise TypeError(f"Size(): bytes is {type(self.bytes).__name__}; allowed: int")
        if not 1 <= self.bytes <= MOST_BYTES:
            raise ValueError(f"Size(): bytes is {self.bytes}; allowed: 1 to {MOST_BYTES:,}")


@dataclass(frozen=True, slots=True)
class Number:
    """The form in which a column keeps a number."""

    kind: NumberKind


U8 = Annotated[int, Number("U8")]
"""An int from 0 to 255."""
U16 = Annotated[int, Number("U16")]
"""An int from 0 to 65,535."""
U32 = Annotated[int, Number("U32")]
"""An int from 0 to 2**32 - 1."""
U64 = Annotated[int, Number("U64")]
"""An int from 0 to 2**64 - 1."""
I8 = Annotated[int, Number("I8")]
"""An int from -128 to 127."""
I16 = Annotated[int, Number("I16")]
"""An int from -32,768 to 32,767."""
I32 = Annotated[int, Number("I32")]
"""An int from -2**31 to 2**31 - 1."""
I64 = Annotated[int, Number("I64")]
"""An int from -2**63 to 2**63 - 1."""
F32 = Annotated[float, Number("F32")]
"""A float stored with 24 bits of precision."""
F64 = Annotated[float, Number("F64")]
"""A float as in Python."""

MOST_BYTES = 32_768
