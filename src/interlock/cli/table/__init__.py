"""`interlock table SUBCOMMAND`: look at tables in shared memory, and change them.

A module a group of subcommands.
"""

from __future__ import annotations

import argparse

from interlock.cli.table import export, restore, rows, watch, whole

GROUPS = (whole, rows, watch, export, restore)
"""In the order of `--help`."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "table",
        help="look at tables in shared memory, and change them",
        description="Look at tables in the shared memory of this machine, and change them. A NAME "
        "with a slash is the path of a table in a file.",
    )
    questions = parser.add_subparsers(prog="interlock table", metavar="COMMAND", required=True)
    for group in GROUPS:
        group.add_to(questions)
