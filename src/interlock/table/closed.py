"""A closed handle."""

from __future__ import annotations

import functools
from typing import Any, NoReturn

__all__ = ["closed_kind"]


@functools.cache
def closed_kind(kind: type[Any]) -> type[Any]:
    """Return a kind of table whose every call raises: the class of a closed handle.

    An open table therefore checks nowhere whether it is closed: a read takes less time than a
    memory access.
    """
    if getattr(kind, "_is_closed", False):
        return kind
    names = {name for base in kind.__mro__[:-1] for name in vars(base) if _reads(name)}
    namespace: dict[str, Any] = dict.fromkeys(names - KEPT, _refused)
    namespace |= {
        "__slots__": (),
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
        "_is_closed": True,
        "closed": True,
        "close": lambda self: None,
    }
    return type(kind.__name__, (kind,), namespace)


def _reads(name: str) -> bool:
    """Return whether the attribute with this name reads or writes a table."""
    return name in INNER or not name.startswith("_")


def _refused(self: Any, *_: object, **__: object) -> NoReturn:
    raise ValueError(f"{self!r} was closed")


KEPT = frozenset({
    "attach", "capacity", "close", "closed", "copy", "created", "default_ttl", "key_size", "mode",
    "on_full", "open", "path", "remove", "row", "schema",
})  # fmt: skip
"""Facts of a table, closed or not, and methods that make other objects."""
INNER = frozenset({
    "__arrow_c_schema__", "__arrow_c_stream__", "__bool__", "__contains__", "__delitem__",
    "__enter__", "__eq__", "__getitem__", "__ior__", "__iter__", "__len__", "__reduce__",
    "__setitem__", "_export", "_scan", "_stats",
})  # fmt: skip
