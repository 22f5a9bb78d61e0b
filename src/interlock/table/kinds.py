"""Kinds of columns: types of values, ranges, and what else depends on the kind of a column.

A kind is declared here, for annotations, errors, help, databases and the page of the reference.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Any, Literal, get_args

__all__ = [
    "F32",
    "F64",
    "I8",
    "I16",
    "I32",
    "I64",
    "INTEGERS",
    "KINDS",
    "NUMBERS",
    "U8",
    "U16",
    "U32",
    "U64",
    "UNSIGNED",
    "Kind",
    "Number",
    "NumberKind",
    "ranges",
    "rule",
]

NumberKind = Literal["U8", "U16", "U32", "U64", "I8", "I16", "I32", "I64", "F32", "F64"]
Kind = NumberKind | Literal["bool", "str", "bytes"]


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


@dataclass(frozen=True, slots=True)
class Rule:
    """Properties of one kind."""

    python: type
    """Class of the values."""
    numpy: str
    """Type code in NumPy; the size follows for ``str`` and ``bytes``."""
    zero: Any
    """Value of a column that was not given."""
    sqlite: str
    """Type in SQLite; empty: a column without a type."""
    postgresql: str
    """Type in PostgreSQL."""
    holds: str
    """Description of the values in the reference."""
    least: int = 0
    most: int = 0
    """Range of an integer."""


def _integer(kind: str) -> Rule:
    bits = int(kind[1:])
    least = 0 if kind[0] == "U" else -(2 ** (bits - 1))
    most = least + 2**bits - 1
    return Rule(
        int,
        f"{kind[0].lower()}{bits // 8}",
        0,
        # An INTEGER holds 63 bits; larger values are kept as text, which no type does.
        "INTEGER" if most < 2**63 else "",
        next(sql for sql, limit in _POSTGRESQL_INTEGERS if most < limit),
        f"an int from {_power(least)} to {_power(most + 1)} − 1",
        least,
        most,
    )


def _power(number: int) -> str:
    """Return 0 or a power of two, as the reference writes it."""
    if not number:
        return "0"
    exponent = str(abs(number).bit_length() - 1).translate(_SUPERSCRIPTS)
    return f"{'−' * (number < 0)}2{exponent}"


_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_POSTGRESQL_INTEGERS = (
    ("smallint", 2**15),
    ("integer", 2**31),
    ("bigint", 2**63),
    ("numeric(20,0)", 2**64),
)
KINDS: dict[str, Rule] = {
    **{kind: _integer(kind) for kind in get_args(NumberKind) if kind[0] in "UI"},
    "F32": Rule(
        float, "f4", 0.0, "REAL", "real", "a float of 24 bits of precision; `nan` and `inf` too"
    ),
    "F64": Rule(float, "f8", 0.0, "REAL", "double precision", "a float as Python has it"),
    "bool": Rule(bool, "?", False, "BOOLEAN", "boolean", "`True` or `False`; no int"),
    "str": Rule(
        str, "U", "", "TEXT", "text",
        "text of up to n bytes in UTF-8, 1 to 32,768; zeros in it are kept",
    ),
    "bytes": Rule(bytes, "S", b"", "BLOB", "bytea", "up to n bytes"),
}  # fmt: skip


def rule(kind: str) -> Rule:
    """Return the properties of a kind.

    Raises:
        ValueError: it is unknown; the message lists all.
    """
    found = KINDS.get(kind)
    if found is None:
        raise ValueError(f"the kind of a column is {kind!r}; allowed: {', '.join(KINDS)}")
    return found


def ranges(kinds: Iterable[str]) -> str:
    """Return a list of kinds for people: three or more that differ in size only are a range."""
    found: list[str] = []
    for _, group in groupby(kinds, key=lambda kind: kind.rstrip("0123456789")):
        names = list(group)
        found += names if len(names) < 3 else [f"{names[0]} to {names[-1]}"]
    return ", ".join(found)


NUMBERS = get_args(NumberKind)
INTEGERS = tuple(kind for kind in NUMBERS if KINDS[kind].python is int)
UNSIGNED = tuple(kind for kind in INTEGERS if not KINDS[kind].least)
