"""Values that a field of a key template may stand for, and the text that each has in a key.

The same rules judge a value when a call is sent, and a type when a task is declared: a field whose
annotation rules out every allowed value is refused there.
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

__all__ = ["ALLOWED", "NoField", "element", "fits", "hint_of", "key_value", "type_name"]

ALLOWED = "str, int, UUID, date, datetime, an enum of str or int"
"""The types of a field, in words; one that is a whole template may be bytes as well."""

UNKNOWN: Any = Any
"""Nothing is known of the type, so nothing is refused before a call is sent."""


class NoField(LookupError):
    """A type has no such attribute or index; the text says what it has."""


def key_value(value: object, sole: bool) -> str | int | bytes | None:
    """Return what a value is in a key; None: it can be no part of one.

    The same moment is the same key, whatever its time zone: one that has a zone is told in UTC.

    Args:
        sole: it is the whole template, so that bytes are a key as they are.
    """
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
    # Of another class there may be one that derives from it and from str; of these there is none
    # that anybody sends.
    return not (issubclass(kind, _NO_KEY) or is_record(kind))


def is_record(kind: type[Any]) -> bool:
    """Return whether it is a class of fields: a dataclass, a msgspec.Struct, a named tuple."""
    return dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct)


def element(hint: Any, is_attribute: bool, name: Any) -> Any:
    """Return the type of an attribute, or of what lies under an index; Any: it is not known.

    Raises NoField where the type surely has no such one.
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
    """Return the annotation of one argument; Any where it has none, or names what is not there
    yet: a class may stand further down in the module."""
    found = getattr(inspect.unwrap(function), "__annotations__", {}).get(argument, UNKNOWN)
    if not isinstance(found, str):
        return found
    try:
        return typing.get_type_hints(
            types.SimpleNamespace(__annotations__={argument: found}),
            globalns=getattr(inspect.unwrap(function), "__globals__", {}),
            include_extras=True,
        )[argument]
    except Exception:
        # An annotation is an expression of the program's, and may raise anything.
        return UNKNOWN


def hints_of(kind: Any) -> dict[str, Any]:
    """Return the annotations of a class; those that cannot be found are Any."""
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
    """Return a type without what wraps it: Annotated, NewType, an alias."""
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
"""Kinds of values that are no part of a key; bytes only where they are not all of it."""
