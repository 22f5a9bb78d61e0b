"""`interlock hub topics [GLOB]`: the topics of a running hub, and how many receive each."""

from __future__ import annotations

import argparse
import json

from interlock.cli.connection import EXIT_CODES, FLAGS, ask
from interlock.cli.tables import table
from interlock.hub import introspection
from interlock.hub.client import Client


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "topics",
        help="the topics of a running hub, and how many receive each",
        description="Print the topics that have a subscriber, and how many connections are "
        "subscribed to each. Those that subscribe by a pattern are not among these.",
        epilog=EXIT_CODES,
    )
    parser.add_argument(
        "glob", metavar="GLOB", nargs="?", default="*", help="only topics that match"
    )
    for flag in FLAGS:
        flag.add_to(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Print the table."""
    return ask(given, lambda client: show(client, given))


def show(client: Client, given: argparse.Namespace) -> int:
    """Ask and print."""
    found = introspection.topics(client, given.glob)
    receivers = {
        name.decode(errors="backslashreplace"): count for name, count in found.receivers.items()
    }
    if given.json:
        print(json.dumps({"topics": receivers, "patterns": found.patterns}, ensure_ascii=False))
        return 0
    if receivers:
        print(table(("topic", "subscribers"), list(receivers.items())))
        print()
    print(f"topics: {len(receivers):,}, patterns: {found.patterns:,}")
    return 0
