"""`interlock table import`: restores rows from `interlock table export`."""

from __future__ import annotations

import argparse
import base64
import codecs
import csv
import datetime as dt
import io
import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, Any

from interlock.cli.flags import Flag
from interlock.cli.table.export import pyarrow
from interlock.cli.table.subcommand import attach, declare, emit, key_of, schema, value
from interlock.cli.tables import printable
from interlock.table.export import EXPIRES

if TYPE_CHECKING:
    from interlock.table.schema import Column
    from interlock.table.table import SharedTable

ABSENT = Flag("--absent", "leave existing rows unchanged")
Record = dict[str, Any]


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(
        commands,
        "import",
        restore,
        "set the rows of an export",
        (ABSENT,),
        arguments=(
            ("NAME", "the table, which must exist", None),
            ("FILE", "CSV, JSON lines or an Arrow file; - is standard input (-)", "?"),
        ),
        about="Columns are matched by name; a missing one is 0, false or empty. Rows keep their "
        "expiry, and expired rows are left out. At an invalid line the import stops and names it; "
        "the rows before it are set.",
    )


def restore(given: argparse.Namespace) -> int:
    """Set the rows."""
    opened = attach(given)
    counts = {"set": 0, "present": 0, "expired": 0}
    from_stdin = given.file in (None, "-")
    with ExitStack() as held:
        source = held.enter_context(
            open(0 if from_stdin else given.file, "rb", closefd=not from_stdin)
        )
        spelled, rows = records(source, held)
        for number, one in enumerate(rows, 1):
            try:
                counts[put(opened, one, spelled, given.absent)] += 1
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"row {number}: {error}; {counts['set']:,} before it are set"
                ) from None
    if given.json:
        emit({"table": given.name, **counts})
    else:
        rest = [f"{counts[name]:,} {text}" for name, text in LEFT.items() if counts[name]]
        told = ", ".join([f"{counts['set']:,} rows set", *rest])
        print(f"{printable(given.name)}  {told}")
    return 0


def records(source: io.BufferedReader, held: ExitStack) -> tuple[bool, Iterator[Record]]:
    """Return whether a file spells all values as text, and its rows.

    Its first bytes show the format.
    """
    head = source.peek(8)[:8].removeprefix(codecs.BOM_UTF8)
    if head.startswith(b"ARROW1"):
        return False, of_arrow(source)
    text = held.enter_context(io.TextIOWrapper(source, encoding="utf-8-sig", newline=""))
    spelled = head[:1] != b"{"
    return spelled, decoded(of_csv(text) if spelled else of_json(text))


def of_csv(text: IO[str]) -> Iterator[Record]:
    """Yield rows of CSV."""
    csv.field_size_limit(1 << 24)
    reader = csv.DictReader(text, strict=True)
    try:
        names = list(reader.fieldnames or ())
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"the first line names {twice[0]!r} twice")
        for row in reader:
            if None in row.values():
                raise ValueError(f"line {reader.line_num} has fewer cells than the first")
            if None in row:
                raise ValueError(f"line {reader.line_num} has more cells than the first")
            yield row
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num} is not CSV: {error}") from None


def decoded(rows: Iterator[Record]) -> Iterator[Record]:
    """Yield rows of a text; raise an error if it is not a text."""
    try:
        yield from rows
    except UnicodeDecodeError as error:
        raise ValueError(f"not a CSV, JSON lines or Arrow file: {error.reason}") from None


def of_json(text: IO[str]) -> Iterator[Record]:
    """Yield JSON objects."""
    for number, line in enumerate(text, 1):
        try:
            one = json.loads(line)
        except (RecursionError, ValueError) as error:
            raise ValueError(f"line {number} is not JSON: {error}") from None
        if not isinstance(one, dict):
            raise ValueError(f"line {number} is not a JSON object")
        yield one


def of_arrow(source: IO[bytes]) -> Iterator[Record]:
    """Yield rows of an Arrow file."""
    arrow = pyarrow()
    whole = source if source.seekable() else arrow.BufferReader(source.read())
    try:
        file = arrow.ipc.open_file(whole)
    except arrow.ArrowInvalid as error:
        raise ValueError(f"not an Arrow file: {error}") from None
    for at in range(file.num_record_batches):
        yield from file.get_batch(at).to_pylist()


def put(table: SharedTable[Any], given: Record, spelled: bool, absent: bool) -> str:
    """Set a row; return the outcome: set, present or expired."""
    from interlock.table.export import key_name

    columns = schema(table)
    known = {key_name(columns), EXPIRES, *columns.names}
    if unknown := [name for name in given if name not in known]:
        raise ValueError(f"there is no column {unknown[0]!r}; there are {', '.join(columns.names)}")
    if given.get(key_name(columns)) is None:
        raise ValueError(f"there is no {key_name(columns)!r}")
    key = as_key(given[key_name(columns)], spelled)
    left = None
    if (expires := given.get(EXPIRES)) not in (None, ""):
        left = (moment_of(expires) - dt.datetime.now(dt.UTC)).total_seconds()
        if left <= 0:
            return "expired"
    row = table.row(**{column.name: cell(column, given, spelled) for column in columns.columns})
    # For ever if the file says so, whatever the table's default.
    ttl = float("inf") if left is None else left
    done = table.set(key, row, ttl=ttl, only="absent" if absent else None)
    return "set" if done else "present"


def moment_of(given: Any) -> dt.datetime:
    """Return when a row expires from a file's value; without a zone it is UTC."""
    at = dt.datetime.fromisoformat(given) if isinstance(given, str) else given
    if not isinstance(at, dt.datetime):
        raise TypeError(f"{EXPIRES} is {type(at).__name__}; allowed: a time such as {SUCH}")
    return at.replace(tzinfo=dt.UTC) if at.tzinfo is None else at


def as_key(given: Any, spelled: bool) -> str | bytes:
    """Return a key from a file's value."""
    if isinstance(given, str):
        return key_of(given) if spelled else given
    found = as_value(given)
    if not isinstance(found, bytes):
        raise TypeError(f"the key is {type(found).__name__}; allowed: text, or base64")
    return found


def cell(column: Column, given: Record, spelled: bool) -> Any:
    """Return the value of a column from a file's value."""
    found = as_value(given.get(column.name))
    if found is None:
        return column.rule.zero
    if not isinstance(found, str):
        return found
    return value(column, found) if spelled or column.kind != "bytes" else found.encode()


def as_value(given: Any) -> Any:
    """Return the bytes of a JSON object."""
    if isinstance(given, dict) and isinstance(given.get("base64"), str):
        return base64.b64decode(given["base64"], validate=True)
    return given


SUCH = "2026-01-31T12:00:00+00:00"
LEFT = {"present": "were there", "expired": "had expired"}
