"""`interlock store SUBCOMMAND`: read the files that a hub's stores have written.

One module per subcommand.
"""

from __future__ import annotations

import argparse

from interlock.cli.store import cat, tail, verify

GROUPS = (cat, tail, verify)
"""In the order of `--help`."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "store",
        description="Read the files that the stores of a hub have written, whether or not it "
        "runs. A PATH is a folder, or one file in it.",
    )
    questions = parser.add_subparsers(prog="interlock store", metavar="COMMAND", required=True)
    for group in GROUPS:
        group.add_to(questions)
