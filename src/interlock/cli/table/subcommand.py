"""Common parts of the subcommands of `interlock table`: flags, the table, errors, values."""

from __future__ import annotations

import argparse
import base64
import datetime as dt
import difflib
import functools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.cli.flags import Flag
from interlock.cli.tables import printable
from interlock.explanation import printable_json

if TYPE_CHECKING:
    from interlock.table.row import Row
    from interlock.table.schema import Column, Schema
    from interlock.table.table import SharedTable

Scanned = tuple[Any, Any, float | None]
"""A key, its row, and when it expires, in seconds since 1970."""
JSON = Flag("--json", "print JSON")
EXIT_CODES = "Exit codes: 0 done, 1 refused, or not found, 2 wrong usage, 130 Ctrl-C."


def declare(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
    flags: Sequence[Flag] = (),
    *,
    arguments: Sequence[tuple[str, str, str | None]] = (("NAME", "the table", None),),
    about: str = "",
) -> None:
    """Declare a subcommand: its help line, its arguments (metavar, help, nargs), its flags."""
    described = f"{text[:1].upper()}{text[1:]}."
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=f"{described} {about}".strip(), epilog=EXIT_CODES
    )
    for metavar, help_, nargs in arguments:
        parser.add_argument(metavar.lower(), metavar=metavar, help=help_, nargs=nargs)
    for flag in (JSON, *flags):
        flag.add_to(parser)
    parser.set_defaults(run=lambda given: told(run, given))


def told(run: Callable[[argparse.Namespace], int], given: argparse.Namespace) -> int:
    """Run a subcommand; an error in its arguments, or of the table, is printed in a line."""
    from interlock.errors import InterlockError

    try:
        return run(given)
    except BrokenPipeError:  # the reader closed standard output
        raise
    except KeyError as error:
        return failed(f"no row {text_of(error.args[0])!r}", BROKEN)
    except (InterlockError, OSError, OverflowError) as error:
        return failed(reason(error), BROKEN)
    except (TypeError, ValueError) as error:
        return failed(str(error), BAD_INPUT)


def reason(error: Exception) -> str:
    """Return an error's text, without its number; with the file name if it is missing."""
    text = getattr(error, "strerror", None) or str(error)
    file = getattr(error, "filename", None)
    return f"{file}: {text}" if file is not None else text


def failed(text: str, code: int) -> int:
    """Print the error, and return the exit code."""
    # Names and keys come from outside: their line breaks are escaped.
    shown = "\n".join(map(printable, text.split("\n")))
    print(f"interlock: {shown}", file=sys.stderr, flush=True)
    return code


def place(name: str) -> str | Path:
    """Return a table's location: a name with a slash is a path."""
    return Path(name) if "/" in name else name


def attach(given: argparse.Namespace) -> SharedTable[Any]:
    """Open the table that a command names.

    Raises:
        FileNotFoundError: no such table; the error suggests a similar name.
    """
    from interlock.table.table import SharedTable

    try:
        return SharedTable.attach(place(given.name), mode=0o777)
    except FileNotFoundError as error:
        near = difflib.get_close_matches(given.name, names(), n=1)
        if not near:
            raise
        raise FileNotFoundError(error.errno, f"{error.strerror}; did you mean {near[0]}?") from None


def names() -> list[str]:
    """Return the names of the tables in shared memory."""
    return sorted(path.name.removeprefix(PREFIX) for path in SHARED_MEMORY.glob(f"{PREFIX}*"))


def schema(table: SharedTable[Any]) -> Schema:
    """Return the columns of a table."""
    return _schema(table.schema)


@functools.cache
def _schema(text: str) -> Schema:
    from interlock.table.schema import Schema

    return Schema.parse(text)


def value(column: Column, text: str) -> Any:
    """Return the value of a column from the text of a command, or of a file.

    Raises:
        ValueError: the text is not of its type.
    """
    if column.kind == "str":
        return text
    if column.kind == "bytes":
        return as_bytes(text)
    if column.kind == "bool":
        if text.lower() in ("true", "1", "yes"):
            return True
        if text.lower() in ("false", "0", "no"):
            return False
        raise ValueError(f"column {column.name} is {text!r}; allowed: true, false")
    try:
        number = column.rule.python(text)
    except ValueError:
        allowed = "a number" if column.rule.python is float else "a whole number"
        raise ValueError(f"column {column.name} is {text!r}; allowed: {allowed}") from None
    return number


def key_of(text: str) -> str | bytes:
    """Return a key from the text of a command, or of a file."""
    found = as_bytes(text)
    return text if found == text.encode(errors="surrogateescape") and text.isprintable() else found


def as_bytes(text: str) -> bytes:
    """Return the bytes of a text in a command or a file: plain, or base64 after `base64:`."""
    if not text.startswith(BASE64):
        return text.encode(errors="surrogateescape")
    try:
        return base64.b64decode(text.removeprefix(BASE64), validate=True)
    except ValueError:
        raise ValueError(f"{text!r} is not base64") from None


def scanned(table: SharedTable[Any]) -> Iterator[Scanned]:
    """Iterate over the rows of a table: keys, rows, and when they expire."""
    scan = table._scan()
    while some := scan.next(1000):
        yield from some


def record(table: SharedTable[Any], key: Any, row: Row, expires: float | None) -> dict[str, Any]:
    """Return a row for JSON, with its key, and with its expiry if it has one."""
    from interlock.table.export import EXPIRES, key_name

    made = {key_name(schema(table)): plain(key), **as_json(row)}
    return made if expires is None else made | {EXPIRES: moment(expires)}


def moment(seconds: float) -> str:
    """Return seconds since 1970 in ISO 8601, in UTC; the end of time where it is later."""
    try:
        return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return dt.datetime.max.replace(tzinfo=dt.UTC).isoformat()


def as_json(row: Row) -> dict[str, Any]:
    """Return a row for JSON: bytes that are not UTF-8 as an object with base64."""
    return {name: plain(getattr(row, name)) for name in row.__struct_fields__}


def plain(value: Any) -> Any:
    """Return a value for JSON, which has no nan and inf: they are strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def text_of(value: Any) -> str:
    """Return a value, or a key, as a line shows it; ``value`` parses it."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, bytes):
        return str(value)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = BASE64
    return BASE64 + base64.b64encode(value).decode() if text.startswith(BASE64) else text


def emit(record: object) -> None:
    """Print a line of JSON."""
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    print(printable_json(record, ascii=encoding != "utf8"), flush=True)


BASE64 = "base64:"
SHARED_MEMORY = Path("/dev/shm")
PREFIX = "interlock."
BROKEN = 1
BAD_INPUT = 2
