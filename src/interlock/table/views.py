"""The views of a table that ``keys``, ``values`` and ``items`` return: live, as those of a dict."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from typing import TYPE_CHECKING, TypeVar

from interlock.message import Key
from interlock.table.row import Row

if TYPE_CHECKING:
    from interlock.table.table import SharedTable

__all__ = ["TableItems", "TableKeys", "TableValues", "shown"]

W = TypeVar("W", bound=Row)


class TableKeys(KeysView[Key]):
    """The keys of a table."""


class TableValues(ValuesView[W]):
    """The rows of a table, each read once."""

    _mapping: SharedTable[W]

    def __iter__(self) -> Iterator[W]:
        for _, row in self._mapping.scan():
            yield row


class TableItems(ItemsView[Key, W]):
    """The keys and rows of a table, each read once."""

    _mapping: SharedTable[W]

    def __iter__(self) -> Iterator[tuple[Key, W]]:
        yield from self._mapping.scan()


def shown(key: bytes) -> Key:
    """Return a key as iteration gives it: as ``str``, or as ``bytes`` where it is no UTF-8."""
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key
