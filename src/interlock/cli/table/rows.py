"""`interlock table get`, `set`, `incr` and `scan`: rows of a table."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

from interlock.cli.flags import Flag, positive, seconds
from interlock.cli.table.subcommand import (
    BROKEN,
    as_json,
    attach,
    declare,
    emit,
    failed,
    plain,
    schema,
    text_of,
    value,
)
from interlock.cli.tables import printable, table

TTL = Flag("--ttl", "seconds that the row lives from now", "S", seconds)
OVERFLOW = Flag(
    "--overflow", "what becomes of a sum beyond the column (raise)",
    default="raise", choices=("raise", "wrap", "saturate"),
)  # fmt: skip
MATCH = Flag("--match", "only keys like this, with * and ?", "GLOB")
LIMIT = Flag("--limit", "end after so many rows", "N", positive)
NAME = ("NAME", "the table", None)
KEY = ("KEY", "the row", None)


def add_to(commands: Any) -> None:
    """Declare the subcommands."""
    declare(
        commands,
        "get",
        get,
        "a row, or one of its columns",
        arguments=(NAME, KEY, ("COLUMN", "one of its columns", "?")),
    )
    declare(
        commands,
        "set",
        set_,
        "set columns of a row, which is made where there is none",
        (TTL,),
        arguments=(NAME, KEY, ("VALUE", "COLUMN=VALUE, such as unread=0", "*")),
        about="In a row that is made, columns that are not named are 0, false or empty.",
    )
    declare(
        commands,
        "incr",
        incr,
        "raise a column, and print what it is then",
        (OVERFLOW,),
        arguments=(NAME, KEY, ("COLUMN", "the column", None), ("BY", "by how much (1)", "?")),
    )
    declare(commands, "scan", scan, "all rows", (MATCH, LIMIT))


def get(given: argparse.Namespace) -> int:
    """Print a row, or one of its columns."""
    opened = attach(given)
    if given.column is not None:
        found = opened.get_column(given.key, given.column)
        if given.json:
            emit(plain(found))
        else:
            print(printable(text_of(found)))
        return 0
    row = opened[given.key]
    if given.json:
        emit({"key": given.key, **as_json(row)})
        return 0
    for name in row.__struct_fields__:
        print(f"{name}: {printable(text_of(getattr(row, name)))}")
    return 0


def set_(given: argparse.Namespace) -> int:
    """Set columns, or make the row."""
    opened = attach(given)
    columns = schema(opened)
    changes: dict[str, Any] = {}
    for word in given.value:
        name, equals, text = word.partition("=")
        if not equals:
            raise ValueError(f"{word!r}; allowed: COLUMN=VALUE, such as unread=0")
        changes[name] = value(columns.column(name), text)
    while not opened.patch(given.key, **changes):
        zeroes = {column.name: ZEROES.get(column.kind, 0) for column in columns.columns}
        if opened.set(given.key, opened.row(**zeroes | changes), only="absent"):
            break
    if given.ttl is not None and not opened.expire(given.key, given.ttl):
        return failed(f"row {given.key!r} was deleted meanwhile", BROKEN)
    if given.json:
        emit({"key": given.key, **as_json(opened[given.key])})
    return 0


def incr(given: argparse.Namespace) -> int:
    """Raise a column."""
    opened = attach(given)
    column = schema(opened).column(given.column)
    by = 1 if given.by is None else value(column, given.by)
    total = opened.incr(given.key, given.column, by, overflow=given.overflow)
    if given.json:
        emit({"key": given.key, given.column: total})
    else:
        print(total)
    return 0


def scan(given: argparse.Namespace) -> int:
    """Print all rows."""
    opened = attach(given)
    found: Iterable[tuple[Any, Any]] = opened.scan()
    if given.match is not None:
        found = (pair for pair in found if fnmatchcase(text_of(pair[0]), given.match))
    found = islice(found, given.limit)
    if given.json:
        for key, row in found:
            emit({"key": plain(key), **as_json(row)})
        return 0
    names = opened.row.__struct_fields__
    rows = [(text_of(key), *(text_of(getattr(row, name)) for name in names)) for key, row in found]
    print(table(("key", *names), rows) if rows else "no rows")
    return 0


ZEROES: dict[str, Any] = {"str": "", "bytes": b"", "bool": False}
