"""`interlock table get`, `set`, `incr` and `scan`: rows of a table."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

from interlock.cli.flags import Flag, positive, seconds
from interlock.cli.table.subcommand import (
    BROKEN,
    Scanned,
    attach,
    declare,
    emit,
    failed,
    key_of,
    plain,
    record,
    scanned,
    schema,
    text_of,
    value,
)
from interlock.cli.tables import printable, table
from interlock.table.export import key_name

TTL = Flag("--ttl", "time to live of the row, in seconds", "S", seconds)
OVERFLOW = Flag(
    "--overflow", "what to do with a sum out of range (raise)",
    default="raise", choices=("raise", "wrap", "saturate"),
)  # fmt: skip
MATCH = Flag("--match", "only keys that match, with * and ?", "GLOB")
LIMIT = Flag("--limit", "exit after this many rows", "N", positive)
NAME = ("NAME", "the table", None)
KEY = ("KEY", "the row; base64:... for a key that is not text", None)


def add_to(commands: Any) -> None:
    """Declare the subcommands."""
    declare(
        commands,
        "get",
        get,
        "print a row, or one of its columns",
        arguments=(NAME, KEY, ("COLUMN", "one of its columns", "?")),
    )
    declare(
        commands,
        "set",
        set_,
        "set columns of a row, and create it if it is missing",
        (TTL,),
        arguments=(NAME, KEY, ("VALUE", "COLUMN=VALUE, such as unread=0", "*")),
        about="In a new row, columns that are not named are 0, false or empty.",
    )
    declare(
        commands,
        "incr",
        incr,
        "add to a column and print the new value",
        (OVERFLOW,),
        arguments=(NAME, KEY, ("COLUMN", "the column", None), ("BY", "by how much (1)", "?")),
    )
    declare(commands, "scan", scan, "print all rows", (MATCH, LIMIT))


def get(given: argparse.Namespace) -> int:
    """Print a row, or one of its columns."""
    opened, key = attach(given), key_of(given.key)
    if given.column is not None:
        found = opened.get_column(key, given.column)
        if given.json:
            emit(plain(found))
        else:
            print(printable(text_of(found)))
        return 0
    row, ttl = opened[key], opened.ttl(key)
    if given.json:
        emit(record(opened, key, row, None if ttl is None else time.time() + ttl))
        return 0
    for name in row.__struct_fields__:
        print(f"{name}: {printable(text_of(getattr(row, name)))}")
    if ttl is not None:
        print(f"expires in {ttl:,.1f} s")
    return 0


def set_(given: argparse.Namespace) -> int:
    """Set columns, or create the row."""
    opened, key = attach(given), key_of(given.key)
    columns = schema(opened)
    changes: dict[str, Any] = {}
    for word in given.value:
        name, equals, text = word.partition("=")
        if not equals:
            raise ValueError(f"{word!r}; allowed: COLUMN=VALUE, such as unread=0")
        if name in changes:
            raise ValueError(f"column {name} is given twice")
        changes[name] = value(columns.column(name), text)
    while not opened.patch(key, **changes):
        zeroes = {column.name: column.rule.zero for column in columns.columns}
        row = opened.row(**zeroes | changes)
        # With its time to live, so that the row never exists without it.
        if opened.set(key, row, ttl=given.ttl, only="absent"):
            break
    else:
        if given.ttl is not None and not opened.expire(key, given.ttl):
            return failed(f"row {given.key!r} was deleted meanwhile", BROKEN)
    if given.json:
        emit(record(opened, key, opened[key], None))
    return 0


def incr(given: argparse.Namespace) -> int:
    """Increment a column."""
    opened, key = attach(given), key_of(given.key)
    column = schema(opened).column(given.column)
    by = 1 if given.by is None else value(column, given.by)
    total = opened.incr(key, given.column, by, overflow=given.overflow)
    if given.json:
        emit({key_name(schema(opened)): plain(key), given.column: plain(total)})
    else:
        print(total)
    return 0


def scan(given: argparse.Namespace) -> int:
    """Print all rows, as they are read: a table may hold more than fits in memory as text."""
    opened = attach(given)
    found: Iterable[Scanned] = scanned(opened)
    if given.match is not None:
        found = (one for one in found if fnmatchcase(text_of(one[0]), given.match))
    found = islice(found, given.limit)
    if given.json:
        for key, row, expires in found:
            emit(record(opened, key, row, expires))
        return 0
    columns = opened.row.__struct_fields__
    head, shown, now = ("key", *columns), 0, time.time()
    expiring = opened.default_ttl is not None
    while some := list(islice(found, SCREEN)):
        rows = []
        if not shown and (expiring or any(expires is not None for _, _, expires in some)):
            expiring, head = True, (*head, "expires in")
        for key, row, expires in some:
            lives = "" if expires is None else f"{expires - now:,.1f} s"
            cells = (text_of(getattr(row, name)) for name in columns)
            rows.append((text_of(key), *cells, *([lives] if expiring else [])))
        lines = table(head, rows).splitlines()
        print("\n".join(lines[1:] if shown else lines), flush=True)
        shown += len(rows)
    if not shown:
        print("no rows")
    return 0


SCREEN = 1000
"""Number of rows whose columns are made equally wide."""
