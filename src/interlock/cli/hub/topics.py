"""`interlock hub topics [GLOB]`: a running hub's topics, with their receivers."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict

from interlock.cli.flags import Flag, positive
from interlock.cli.hub.connection import EXIT_CODES, FLAGS, ask
from interlock.cli.pub import BAD_INPUT
from interlock.cli.tables import table
from interlock.explanation import printable_json
from interlock.hub import introspection
from interlock.hub.client import Client

USUAL = 1_000
CLIENTS = Flag("--clients", "show the subscribers of each; for administrators of a hub only")
LIMIT = Flag(
    "--limit", f"with --clients, most subscriptions to show ({USUAL}; up to 10000)", "N",
    positive,
)  # fmt: skip


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "topics",
        help="show the topics of a running hub and their numbers of subscribers",
        description="Print the topics that have a subscriber, and the number of connections "
        "subscribed to each, without those subscribed by a pattern. With --clients, print the "
        "subscribers of each topic, pattern and shard topic, which Redis cannot list.",
        epilog=EXIT_CODES,
    )
    parser.add_argument(
        "glob", metavar="GLOB", nargs="?", default="*", help="only topics that match"
    )
    for flag in (*FLAGS, CLIENTS, LIMIT):
        flag.add_to(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Print the table."""
    if given.limit is not None and not given.clients:
        print("interlock: --limit is for --clients only", file=sys.stderr)
        return BAD_INPUT
    if given.clients:
        return ask(given, lambda client: show_clients(client, given))
    return ask(given, lambda client: show(client, given))


def show(client: Client, given: argparse.Namespace) -> int:
    """Query and print."""
    found = introspection.topics(client, given.glob)
    receivers = {
        name.decode(errors="backslashreplace"): count for name, count in found.receivers.items()
    }
    if given.json:
        print(printable_json({"topics": receivers, "patterns": found.patterns}))
        return 0
    if receivers:
        print(table(("topic", "subscribers"), list(receivers.items())))
        print()
    print(f"topics: {len(receivers):,}, patterns: {found.patterns:,}")
    return 0


def show_clients(client: Client, given: argparse.Namespace) -> int:
    """Query the subscribers, and print them."""
    total, found = introspection.subscribers(client, given.glob, given.limit or USUAL)
    if given.json:
        topics = [
            {**asdict(one), "topic": one.topic.decode(errors="backslashreplace")} for one in found
        ]
        print(printable_json({"subscriptions": total, "topics": topics}))
        return 0
    rows = [
        (one.kind, one.topic.decode(errors="backslashreplace"), who.id, who.address, who.name,
         who.user)
        for one in found for who in one.clients
    ]  # fmt: skip
    if rows:
        print(table(("kind", "topic", "id", "address", "name", "user"), rows))
        print()
    more = f"; the first {len(rows):,} are shown, see --limit" if len(rows) < total else ""
    print(f"subscriptions: {total:,}{more}")
    return 0
