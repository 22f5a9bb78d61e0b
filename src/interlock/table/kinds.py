"""Kinds of columns: what depends on the kind of a column is declared here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from interlock.table.row import NumberKind

__all__ = ["KINDS", "Kind", "rule"]

Kind = NumberKind | Literal["bool", "str", "bytes"]


@dataclass(frozen=True, slots=True)
class Rule:
    """Properties of one kind."""

    python: type
    """Class of the values."""
    numpy: str
    """Type code in NumPy; the size follows for ``str`` and ``bytes``."""
    zero: Any
    """Value of a column that was not given."""
    least: int = 0
    most: int = 0
    """Range of an integer."""


def _integer(kind: str) -> Rule:
    bits = int(kind[1:])
    least = 0 if kind[0] == "U" else -(2 ** (bits - 1))
    return Rule(int, f"{kind[0].lower()}{bits // 8}", 0, least, least + 2**bits - 1)


KINDS: dict[str, Rule] = {
    **{kind: _integer(kind) for kind in get_args(NumberKind) if kind[0] in "UI"},
    "F32": Rule(float, "f4", 0.0),
    "F64": Rule(float, "f8", 0.0),
    "bool": Rule(bool, "?", False),
    "str": Rule(str, "U", ""),
    "bytes": Rule(bytes, "S", b""),
}


def rule(kind: str) -> Rule:
    """Return the properties of a kind.

    Raises:
        ValueError: it is unknown; the message lists all.
    """
    found = KINDS.get(kind)
    if found is None:
        raise ValueError(f"the kind of a column is {kind!r}; allowed: {', '.join(KINDS)}")
    return found
