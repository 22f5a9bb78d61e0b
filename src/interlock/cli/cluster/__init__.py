"""`interlock cluster SUBCOMMAND`: look at a cluster, and operate it. A module a subcommand."""

from __future__ import annotations

import argparse

from interlock.cli.cluster import diff, drain, failover, nodes, resync, status

GROUPS = (status, nodes, failover, drain, resync, diff)
"""In the order of `--help`."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "cluster",
        help="look at a cluster of nodes that serve a table, and operate it",
        description="Look at a cluster of nodes that serve a table, and operate it. The nodes are "
        "found by what they announce in their engine.",
    )
    questions = parser.add_subparsers(prog="interlock cluster", metavar="COMMAND", required=True)
    for group in GROUPS:
        group.add_to(questions)
