"""Values that a field of a key template may have, and the text of each in a key.

The same rules check a value when a call is sent and a type when a task is declared: a field whose
annotation rules out every allowed value is refused at declaration.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import inspect
import types
import typing
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from interlock.app.run import item_of

__all__ = ["ALLOWED", "NoField", "element", "fits", "hint_of", "key_value", "type_name"]

ALLOWED = "str, int, UUID, date, datetime, an enum of str or int"
"""The types of a field, in words; a field that is a whole template may be bytes as well."""

UNKNOWN: Any = Any
"""The type is unknown, so nothing is refused before a call is sent."""


class NoField(LookupError):
    """A type lacks this attribute or index; the text says what it has."""


def key_value(value: object, sole: bool) -> str | int | bytes | None:
    """Return the text of a value in a key; None: it cannot be part of one.

    The same moment gives the same key in every time zone: times with a zone are written in UTC.

    Args:
        sole: it is the whole template, so bytes are used as the key unchanged.
    """
    if value.__class__ is str or value.__class__ is int:
        # The common case, which needs none of the checks below.
        return value
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, bool):
        return None
    if isinstance(value, str | int):
        return value
    if isinstance(value, bytes):
        return value if sole else None
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, dt.datetime):
        return (value if value.tzinfo is None else value.astimezone(dt.UTC)).isoformat()
    if isinstance(value, dt.date):
        return value.isoformat()
    return None


def fits(hint: Any, sole: bool) -> bool:
    """Return False if no value of this type can be part of a key."""
    hint = _plain(hint)
    if hint is None or hint is type(None):
        return False
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return any(key_value(each, sole) is not None for each in typing.get_args(hint))
    if origin in (typing.Union, types.UnionType):
        return any(fits(each, sole) for each in typing.get_args(hint))
    kind = hint if origin is None else origin
    if not isinstance(kind, type) or kind is object:
        return True
    if issubclass(kind, enum.Enum):
        members = list(kind)
        return not members or any(key_value(each, sole) is not None for each in members)
    if issubclass(kind, bool):
        return False
    if issubclass(kind, (bytes if sole else str, str, int, uuid.UUID, dt.date)):
        return True
    # A subclass of some classes could derive from str as well; for these nobody sends one.
    return not (issubclass(kind, _NO_KEY) or is_record(kind))


def is_record(kind: type[Any]) -> bool:
    """Return whether it is a class with fields: a dataclass, a msgspec.Struct, a named tuple."""
    return dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct)


def element(hint: Any, is_attribute: bool, name: Any) -> Any:
    """Return the type of an attribute, or of the item at an index; Any: it is not known.

    Raises NoField if the type certainly lacks it.
    """
    hint = _plain(hint)
    origin, given = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return UNKNOWN
    kind = hint if origin is None else origin
    if not isinstance(kind, type):
        return UNKNOWN
    if is_attribute:
        return _attribute(kind, name)
    if typing.is_typeddict(kind):
        found = hints_of(kind)
        if name not in found:
            raise NoField(f"{kind.__name__} has {_names(found)}")
        return found[name]
    if issubclass(kind, tuple) and isinstance(name, int) and given:
        if len(given) == 2 and given[1] is Ellipsis:
            return given[0]
        if name >= len(given):
            raise NoField(f"it has {len(given)} parts")
        return given[name]
    if issubclass(kind, Mapping) and len(given) == 2:
        return given[1]
    if issubclass(kind, Sequence) and len(given) == 1:
        return given[0]
    return UNKNOWN


def hint_of(function: Any, argument: str) -> Any:
    """Return the annotation of one argument; Any if it has none, or names something not defined
    yet: a class may follow later in the module."""
    found = getattr(inspect.unwrap(function), "__annotations__", {}).get(argument, UNKNOWN)
    if not isinstance(found, str):
        return item_of(found)
    try:
        return item_of(
            typing.get_type_hints(
                types.SimpleNamespace(__annotations__={argument: found}),
                globalns=getattr(inspect.unwrap(function), "__globals__", {}),
                include_extras=True,
            )[argument]
        )
    except Exception:
        # An annotation is an expression of the program, and may raise anything.
        return UNKNOWN


def hints_of(kind: Any) -> dict[str, Any]:
    """Return the annotations of a class; Any for those that cannot be found."""
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except Exception:
        found: dict[str, Any] = {}
        for each in reversed(getattr(kind, "__mro__", (kind,))):
            found |= getattr(each, "__annotations__", {})
        return {name: UNKNOWN if isinstance(it, str) else it for name, it in found.items()}


def type_name(hint: Any) -> str:
    """Return a type as a program writes it."""
    if isinstance(hint, type) and typing.get_origin(hint) is None:
        return hint.__name__
    return str(hint).replace("typing.", "")


def _attribute(kind: type[Any], name: str) -> Any:
    found = hints_of(kind)
    if name in found:
        return found[name]
    there = inspect.getattr_static(kind, name, None)
    if isinstance(there, property):
        return hint_of(there.fget, "return") if there.fget else UNKNOWN
    if there is None and is_record(kind) and not hasattr(kind, "__getattr__"):
        raise NoField(f"{kind.__name__} has {_names(found)}")
    return UNKNOWN


def _plain(hint: Any) -> Any:
    """Return a type without its wrappers: Annotated, NewType, an alias."""
    while True:
        if typing.get_origin(hint) is typing.Annotated:
            hint = typing.get_args(hint)[0]
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":
            hint = hint.__value__
        else:
            return hint


def _names(found: Mapping[str, Any]) -> str:
    return ", ".join(found) or "no fields"


_NO_KEY = (
    float, complex, bytes, bytearray, list, tuple, dict, set, frozenset, dt.time, dt.timedelta,
    Mapping,
)  # fmt: skip
"""Kinds of values that cannot be part of a key; bytes only unless they are the whole key."""
