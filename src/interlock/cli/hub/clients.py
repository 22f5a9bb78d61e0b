"""`interlock hub clients`: the connections of a running hub."""

from __future__ import annotations

import argparse
from dataclasses import asdict, fields

from interlock.cli.hub.connection import EXIT_CODES, FLAGS, ask
from interlock.cli.tables import table
from interlock.explanation import printable_json
from interlock.hub import introspection
from interlock.hub.client import Client


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "clients",
        help="who is connected to a running hub",
        description="Print one line per connection, oldest first; this command's own is named "
        "interlock-cli. age and idle are in seconds, owed is pending output in bytes, "
        "topics counts subscriptions of any kind, command is the last one.",
        epilog=EXIT_CODES,
    )
    for flag in FLAGS:
        flag.add_to(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Print the table."""
    return ask(given, lambda client: show(client, given))


def show(client: Client, given: argparse.Namespace) -> int:
    """Query and print."""
    found = [asdict(connection) for connection in introspection.connections(client)]
    if given.json:
        print(printable_json(found))
    else:
        head = [field.name for field in fields(introspection.Connection)]
        print(table(head, [list(row.values()) for row in found]))
    return 0
