"""`interlock hub stores`: the stores of a running hub, and how far each is."""

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
        "stores",
        help="the stores of a running hub, and how far each is",
        description="Print the stores, how many messages each has accepted, written and left out, "
        "what waits in its queue, and whether it can write.",
        epilog=EXIT_CODES,
    )
    for flag in FLAGS:
        flag.add_to(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Print the table."""
    return ask(given, lambda client: show(client, given))


def show(client: Client, given: argparse.Namespace) -> int:
    """Ask and print."""
    found = introspection.stores(introspection.info(client))
    if given.json:
        print(json.dumps(found, ensure_ascii=False))
        return 0
    if found:
        rows = [
            (name, *(figures.get(column, 0) for column in COLUMNS),
             "failing" if figures.get("failing") else "ok")
            for name, figures in found.items()
        ]  # fmt: skip
        print(table(("store", *HEADS, "state"), rows))
        print()
    print(f"stores: {len(found):,}")
    return 0


COLUMNS = ("accepted", "written", "written_bytes", "in_flight", "in_flight_bytes", "oldest_age_ms",
           "dropped", "retries")  # fmt: skip
HEADS = ("accepted", "written", "bytes", "in flight", "bytes in flight", "oldest ms", "dropped",
         "retries")  # fmt: skip
