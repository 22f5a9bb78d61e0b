"""`interlock table SUBCOMMAND`: inspect and change tables in shared memory.

One module per group of subcommands.
"""

from __future__ import annotations

import argparse

from interlock.cli.table import admin, export, restore, rows, watch

GROUPS = (admin, rows, watch, export, restore)
"""In the order of `--help`."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "table",
        description="Read and change tables in the shared memory of this machine. A NAME "
        "with a slash is the path of a table in a file.",
    )
    questions = parser.add_subparsers(prog="interlock table", metavar="COMMAND", required=True)
    for group in GROUPS:
        group.add_to(questions)
