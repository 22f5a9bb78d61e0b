"""The common part of the subcommands of `interlock table`: flags, the table, errors, values."""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.cli.flags import Flag

if TYPE_CHECKING:
    from interlock.table.row import Row
    from interlock.table.schema import Column, Schema
    from interlock.table.table import SharedTable

JSON = Flag("--json", "print JSON")
EXIT_CODES = "Exit codes: 0 done, 1 refused, or not there, 2 wrong usage, 130 Ctrl-C."


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
    """Declare a subcommand: its line of help, what it takes (metavar, help, nargs), its flags."""
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
    """Run a subcommand; what is wrong with its words, or with the table, is told in a line."""
    from interlock.errors import InterlockError

    try:
        return run(given)
    except BrokenPipeError:  # standard output's reader went away
        raise
    except KeyError as error:
        return failed(f"no row {str(error.args[0])!r}", BROKEN)
    except (InterlockError, OSError, OverflowError) as error:
        return failed(getattr(error, "strerror", None) or str(error), BROKEN)
    except (TypeError, ValueError) as error:
        return failed(str(error), BAD_INPUT)


def failed(text: str, code: int) -> int:
    """Tell what kept it, and return the exit code."""
    print(f"interlock: {text}", file=sys.stderr, flush=True)
    return code


def place(name: str) -> str | Path:
    """Return where a table lies: a name with a slash is a path."""
    return Path(name) if "/" in name else name


def attach(given: argparse.Namespace) -> SharedTable[Any]:
    """Open the table that a command names."""
    from interlock.table.table import SharedTable

    return SharedTable.attach(place(given.name), mode=0o777)


def schema(table: SharedTable[Any]) -> Schema:
    """Return the columns of a table."""
    from interlock.table.schema import Schema

    return Schema.parse(table.schema)


def value(column: Column, text: str) -> Any:
    """Return the value of a column from the words of a command.

    Raises:
        ValueError: the text is none of its type.
    """
    if column.kind == "str":
        return text
    if column.kind == "bytes":
        return text.encode(errors="surrogateescape")
    if column.kind == "bool":
        if text.lower() in ("true", "1", "yes"):
            return True
        if text.lower() in ("false", "0", "no"):
            return False
        raise ValueError(f"column {column.name} is {text!r}; allowed: true, false")
    try:
        return float(text) if column.kind.startswith("F") else int(text)
    except ValueError:
        allowed = "a number" if column.kind.startswith("F") else "a whole number"
        raise ValueError(f"column {column.name} is {text!r}; allowed: {allowed}") from None


def as_json(row: Row) -> dict[str, Any]:
    """Return a row as it stands in JSON: bytes that are no UTF-8 as an object with base64."""
    return {name: plain(getattr(row, name)) for name in row.__struct_fields__}


def plain(value: Any) -> Any:
    """Return a value as it stands in JSON."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def text_of(value: Any) -> str:
    """Return a value, or a key, as a line shows it."""
    if isinstance(value, bool):
        return str(value).lower()
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def emit(record: object) -> None:
    """Print a line of JSON."""
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    print(json.dumps(record, ensure_ascii=encoding != "utf8"), flush=True)


BROKEN = 1
BAD_INPUT = 2
