"""The views that ``keys``, ``values`` and ``items`` of a table return: live, as those of a dict."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from interlock.message import Key
from interlock.table.row import Row

if TYPE_CHECKING:
    from interlock.table.table import SharedTable

__all__ = ["TableItems", "TableKeys", "TableValues", "shown"]

W = TypeVar("W", bound=Row)


class TableKeys(KeysView[Key]):
    """The keys of a table."""

    _mapping: SharedTable[Any]

    def __contains__(self, key: object) -> bool:
        return bool(_can_be_key(key, self._mapping) and key in self._mapping)


class TableValues(ValuesView[W]):
    """The rows of a table, each read once."""

    _mapping: SharedTable[W]

    def __iter__(self) -> Iterator[W]:
        for _, row in self._mapping.scan():
            yield row


class TableItems(ItemsView[Key, W]):
    """The keys and rows of a table, each read once."""

    _mapping: SharedTable[W]

    def __contains__(self, item: object) -> bool:
        if not isinstance(item, tuple) or len(item) != 2:
            return False
        key: object
        key, value = item
        if not _can_be_key(key, self._mapping):
            return False
        row = self._mapping.get(key)
        return row is not None and bool(row == value)

    def __iter__(self) -> Iterator[tuple[Key, W]]:
        yield from self._mapping.scan()


def _can_be_key(key: object, table: SharedTable[Any]) -> TypeGuard[Key]:
    """Return whether a table can have such a key at all. If not, a view reports the key as missing,
    where the table itself raises. Raise TypeError, as a dict does, if it cannot be hashed."""
    hash(key)
    if isinstance(key, bool) or not isinstance(key, str | bytes | int):
        return False
    try:
        canonical = key if isinstance(key, bytes) else str(key).encode()
    except ValueError:
        # A lone surrogate, or an int of more digits than Python writes.
        return False
    return 1 <= len(canonical) <= table.key_size


def shown(key: bytes) -> Key:
    """Return a key as iteration returns it: as ``str``, or as ``bytes`` where it is not UTF-8."""
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key
