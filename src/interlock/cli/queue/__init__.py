"""`interlock queue SUBCOMMAND`: inspect and operate the queues of an engine.

One module per group of subcommands; a server's client is imported when one runs.
"""

from __future__ import annotations

import argparse

from interlock.cli.queue.actions import (
    barrier,
    configure,
    dead_letters,
    drop,
    gates,
    installation,
    purge,
    settlement,
)
from interlock.cli.queue.transfer import export, restore
from interlock.cli.queue.views import check, contents, explanation, limits, overview, roots, watch

GROUPS = (
    overview,
    watch,
    contents,
    limits,
    explanation,
    roots,
    settlement,
    gates,
    configure,
    dead_letters,
    barrier,
    purge,
    drop,
    export,
    restore,
    installation,
    check,
)
"""In the order of `--help`."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "queue",
        description="Inspect and operate the queues of a hub or a Redis. Name the engine with "
        "the variable INTERLOCK_URL or with --url.",
    )
    questions = parser.add_subparsers(prog="interlock queue", metavar="COMMAND", required=True)
    for group in GROUPS:
        group.add_to(questions)
