"""Columns of a table in a database: those of the row's class by SQL types, and our own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from interlock.errors import SchemaMismatch
from interlock.table.schema import Schema

OWN = "interlock_"
KEY = "interlock_key"


@dataclass(frozen=True)
class Dialect:
    """Differences between databases."""

    types: Mapping[str, str]
    """SQL type of each kind of column."""
    wider: Sequence[Sequence[str]]
    """Types of which each holds what those before it hold."""
    own: Mapping[str, str]
    """Our own columns, and their types."""
    can_widen: bool


def quoted(name: str) -> str:
    """Return a name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def row_columns(schema: Schema, dialect: Dialect) -> dict[str, str]:
    """Return the columns of the row's class with their SQL types, in their order.

    Raises:
        ValueError: one has a name that begins as our own do.
    """
    found = {}
    for column in schema.columns:
        if column.name.lower().startswith(OWN):
            raise ValueError(
                f"column {column.name!r} begins with {OWN!r}, which is reserved for Interlock's "
                "own columns"
            )
        found[column.name] = dialect.types[column.kind]
    return found


def changes(
    table: str,
    schema: Schema,
    dialect: Dialect,
    there: Mapping[str, str],
) -> list[str]:
    """Return the statements that bring a table that is there to the row's class.

    Raises:
        SchemaMismatch: a column's type there cannot hold the row's.
    """
    missing = [name for name in dialect.own if name not in there]
    if missing:
        raise SchemaMismatch(
            f"{table} has columns {_shown(there)}, and no {', '.join(missing)}: it is not a "
            "table of Interlock"
        )
    found = []
    wanted = row_columns(schema, dialect)
    # Names are the same to SQL that differ in case alone.
    known = {name.lower(): name for name in there}
    for name, kind in wanted.items():
        if name.lower() not in known:
            column = f"{quoted(name)} {kind}".rstrip()
            found.append(f"ALTER TABLE {quoted(table)} ADD COLUMN {column}")
            continue
        is_ = there[known[name.lower()]]
        if is_ == kind or _holds(dialect, is_, kind):
            continue
        if dialect.can_widen and _holds(dialect, kind, is_):
            found.append(f"ALTER TABLE {quoted(table)} ALTER COLUMN {quoted(name)} TYPE {kind}")
            continue
        declared = schema.column(name)
        raise SchemaMismatch(
            f"{table}.{name} is {is_ or 'without a type'} in the database, and {declared.kind} "
            f"({kind or 'without a type'}) in the row's class: {schema}; in the database: "
            f"{_shown(there)}. Rename the column there, or here"
        )
    lower = {name.lower() for name in wanted}
    for name in there:
        if name not in dialect.own and name.lower() not in lower:
            found.append(
                f"-- {quoted(table)}.{quoted(name)} is no longer a column of the rows: it is "
                f"kept, but not written"
            )
    return found


def check_part(url: str, table: str, there: str, wanted: str) -> None:
    """Check that a database has the part of the rows that it is wanted for.

    Raises:
        SchemaMismatch: it has another.
    """
    if there != wanted:
        raise SchemaMismatch(
            f"{table} at {url} was created as database {there}, and is given as {wanted}; the "
            "hash of a key chooses its database, so name the same number of databases in the "
            "same order"
        )


def _holds(dialect: Dialect, wide: str, narrow: str) -> bool:
    return any(
        wide in types and narrow in types and types.index(wide) >= types.index(narrow)
        for types in dialect.wider
    )


def _shown(there: Mapping[str, str]) -> str:
    return ", ".join(f"{name}: {kind or 'any'}" for name, kind in there.items())
