"""`interlock hub stores`: the stores of a running hub, with their progress."""

from __future__ import annotations

import argparse

from interlock.cli.hub.connection import EXIT_CODES, FLAGS, ask
from interlock.cli.tables import printable, table
from interlock.explanation import printable_json
from interlock.hub import introspection
from interlock.hub.client import Client


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "stores",
        help="show the stores of a running hub and their progress",
        description="Print each store with the number of messages accepted, written and dropped, "
        "the length of its queue, and whether it can write.",
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
    found = introspection.store_list(client)
    if given.json:
        print(printable_json(found))
        return 0
    if found:
        rows = [[store[column] for column in COLUMNS] for store in found]
        print(table(list(COLUMNS.values()), rows))
        for store in found:
            if store.get("upstream"):
                state = f"connected: {store['connected']} of {store['upstreams']}"
                print(f"{printable(str(store['name']))}: to {store['upstream']}; {state}")
            if store["trouble"]:
                print(f"{printable(str(store['name']))}: {printable(str(store['trouble']))}")
        print()
    print(f"stores: {len(found):,}")
    return 0


COLUMNS = {
    "name": "store",
    "kind": "kind",
    "ack": "ack",
    "state": "state",
    "accepted": "accepted",
    "written": "written",
    "written_bytes": "bytes",
    "in_flight": "in flight",
    "in_flight_bytes": "bytes in flight",
    "spooled": "spooled",
    "replayed": "replayed",
    "oldest_age_ms": "oldest, ms",
    "dropped": "dropped",
    "retries": "retries",
}
