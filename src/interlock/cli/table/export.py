"""`interlock table export`: all rows as CSV, JSON lines or an Arrow file."""

from __future__ import annotations

import argparse
import csv
import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from interlock.cli.flags import Flag
from interlock.cli.table.subcommand import (
    BAD_INPUT,
    Scanned,
    attach,
    declare,
    failed,
    moment,
    record,
    scanned,
    schema,
    text_of,
)
from interlock.explanation import printable_json

if TYPE_CHECKING:
    from interlock.table.table import SharedTable

FORMAT = Flag("--format", "csv, jsonl (an object per line), arrow (a file; needs pyarrow) (csv)",
              default="csv", choices=("csv", "jsonl", "arrow"))  # fmt: skip
TO = Flag("--to", "write to FILE instead of standard output, once complete", "FILE", Path)
KEYS = Flag("--keys", "type of the keys in an Arrow file (str)",
            default="str", choices=("str", "bytes"))  # fmt: skip


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(
        commands,
        "export",
        export,
        "write all rows, with their expiry",
        (FORMAT, TO, KEYS),
        about="`interlock table import` reads all formats. The rows are not a snapshot: each is "
        "read at its own time while others write.",
    )


def export(given: argparse.Namespace) -> int:
    """Write all rows."""
    opened, format = attach(given), "jsonl" if given.json else given.format
    if format == "arrow" and given.to is None and sys.stdout.isatty():
        return failed("an Arrow file is not for a terminal: --to FILE, or a pipe", BAD_INPUT)
    with written(given.to, format == "arrow") as out:
        count = WRITERS[format](opened, out, given)
    if given.to is not None:
        print(f"{count:,} rows in {given.to}", file=sys.stderr)
    return 0


@contextmanager
def written(path: Path | None, binary: bool) -> Iterator[Any]:
    """Open the output: a file gets its name when it is complete. Text is UTF-8."""
    if path is None:
        if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8":
            sys.stdout.reconfigure(encoding="utf-8")
        yield sys.stdout.buffer if binary else sys.stdout
        sys.stdout.flush()
        return
    path = path.resolve()
    if path.exists() and not path.is_file():
        # A pipe or a device is written to directly: nothing replaces it, nor a link to it.
        with path.open("wb") as file:
            yield from as_wanted(file, binary)
        return
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("xb") as file:
            yield from as_wanted(file, binary)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def as_wanted(file: IO[bytes], binary: bool) -> Iterator[Any]:
    """Yield a file for bytes or for text."""
    if binary:
        yield file
        return
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    yield text
    text.detach()


class Lines:
    """Ends each line of a csv.writer with a newline alone.

    Before Python 3.13 it quotes only those line ends that are in its ``lineterminator``. With a
    newline alone there, a text that holds a carriage return would be read as two lines.
    """

    def __init__(self, out: IO[str]) -> None:
        self._out = out

    def write(self, line: str) -> None:
        """Write one line, which ends in both."""
        self._out.write(line.removesuffix("\r\n") + "\n")


def in_csv(table: SharedTable[Any], out: IO[str], _: argparse.Namespace) -> int:
    """Write CSV, and return the number of rows."""
    from interlock.table.export import EXPIRES, key_name

    columns = table.row.__struct_fields__
    writer = csv.writer(Lines(out), lineterminator="\r\n")
    writer.writerow((key_name(schema(table)), *columns, EXPIRES))
    count = 0
    for key, row, expires in told(table):
        count += 1
        cells = (text_of(getattr(row, name)) for name in columns)
        writer.writerow((text_of(as_key(key)), *cells, "" if expires is None else moment(expires)))
    return count


def as_key(key: str | bytes) -> bytes:
    """Return a key as bytes, because a text may look like base64:..."""
    return key.encode() if isinstance(key, str) else key


def in_json(table: SharedTable[Any], out: IO[str], _: argparse.Namespace) -> int:
    """Write JSON lines, and return the number of rows."""
    count = 0
    for key, row, expires in told(table):
        count += 1
        out.write(printable_json(record(table, key, row, expires)) + "\n")
    return count


def in_arrow(table: SharedTable[Any], out: IO[bytes], given: argparse.Namespace) -> int:
    """Write an Arrow file, and return the number of rows."""
    arrow = pyarrow()
    view = table.export(keys=given.keys, expiry=True)
    with arrow.RecordBatchReader.from_stream(view) as batches:
        count = 0
        with arrow.ipc.new_file(out, batches.schema) as file:
            for batch in batches:
                file.write_batch(batch)
                count += batch.num_rows
    return count


def pyarrow() -> Any:
    """Return pyarrow.

    Raises:
        OSError: pyarrow is not installed.
    """
    try:
        import pyarrow as arrow
    except ImportError as error:
        raise OSError(
            "Arrow files need pyarrow, which is not installed: pip install pyarrow; csv and jsonl "
            "need nothing"
        ) from error
    return arrow


def told(table: SharedTable[Any]) -> Iterator[Scanned]:
    """Iterate over the rows; show the progress on a terminal if it takes longer."""
    next_time = time.monotonic() + PROGRESS
    for count, one in enumerate(scanned(table)):
        yield one
        if count % 1000 == 0 and sys.stderr.isatty() and time.monotonic() > next_time:
            next_time = time.monotonic() + PROGRESS
            print(f"{count:,} rows of at most {table.capacity:,} so far", file=sys.stderr)


WRITERS: dict[str, Callable[[SharedTable[Any], Any, argparse.Namespace], int]] = {
    "csv": in_csv,
    "jsonl": in_json,
    "arrow": in_arrow,
}
PROGRESS = 2.0
"""Seconds."""
