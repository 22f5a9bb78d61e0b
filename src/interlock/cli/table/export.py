"""`interlock table export`: all rows as CSV or JSON lines."""

from __future__ import annotations

import argparse
import csv
import sys
from typing import Any

from interlock.cli.flags import Flag
from interlock.cli.table.subcommand import as_json, attach, declare, emit, plain, text_of

FORMAT = Flag("--format", "csv, or jsonl for a JSON object a line (csv)",
              default="csv", choices=("csv", "jsonl"))  # fmt: skip


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(commands, "export", export, "write all rows to standard output", (FORMAT,))


def export(given: argparse.Namespace) -> int:
    """Write all rows."""
    opened = attach(given)
    if given.json or given.format == "jsonl":
        for key, row in opened.scan():
            emit({"key": plain(key), **as_json(row)})
        return 0
    names = opened.row.__struct_fields__
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(("key", *names))
    for key, row in opened.scan():
        out.writerow((text_of(key), *(text_of(getattr(row, name)) for name in names)))
    return 0
