"""Rows of a table, declared like a dataclass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, dataclass_transform

import msgspec

__all__ = ["Row", "Size"]

MOST_BYTES = 32_768
"""Maximum size of a ``str`` or ``bytes`` column."""


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

    Columns are numbers, such as ``U32`` or ``F64`` (or ``float``), ``bool``, and ``str`` or
    ``bytes`` with a ``Size``. A row is frozen, because ``row.unread += 1`` would change a copy
    and not the table. ``table.incr``, ``set_column`` and ``patch`` change the table.

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
