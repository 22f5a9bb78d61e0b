"""`interlock cluster SUBCOMMAND`: inspect and operate a cluster. One module for each subcommand."""

from __future__ import annotations

import argparse

from interlock.cli.cluster import diff, drain, failover, forget, nodes, resync, status

GROUPS = (status, nodes, failover, drain, resync, forget, diff)
"""In the order of `--help`."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "cluster",
        description="Inspect and operate a cluster of nodes that serve a table. It finds the nodes "
        "by their announcements in the engine.",
    )
    questions = parser.add_subparsers(prog="interlock cluster", metavar="COMMAND", required=True)
    for group in GROUPS:
        group.add_to(questions)
