"""`interlock sub TOPIC ...`: print publications, a line for each message."""

from __future__ import annotations

import argparse
import sys
import time

from interlock.cli.flags import Flag, positive, seconds
from interlock.cli.pub import URL, with_client
from interlock.explanation import printable_json
from interlock.hub.client import Client, Published

FLAGS = (
    URL,
    Flag("--pattern", "the topics are patterns: *, ?, [a-z]"),
    Flag("--count", "exit after this many messages", "N", positive),
    Flag("--seconds", (
         "exit after this many seconds; with --count, exit with 1 if fewer messages came"
    ),
         "S", seconds),
    Flag("--json", "print a JSON object per line, with topic, payload and pattern"),
)  # fmt: skip


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "sub",
        description="Print the messages published to topics, one line each: topic, space, payload. "
        "A line on standard error reports when the subscriptions are active.",
        epilog="Works with Redis too. Exit codes: 0 ended by --count or --seconds, 1 no "
        "connection, or it was lost, or too few messages, 2 wrong usage, 130 Ctrl-C.",
    )
    parser.add_argument("topics", metavar="TOPIC", nargs="+", help="topic to subscribe to")
    for flag in FLAGS:
        flag.add_to(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Print messages until the count, the time or the connection ends."""
    return with_client(given.url, lambda client: show(client, given))


def show(client: Client, given: argparse.Namespace) -> int:
    """Subscribe and print."""
    if given.pattern:
        client.psubscribe(*given.topics)
    else:
        client.subscribe(*given.topics)
    print(f"subscribed to {', '.join(given.topics)}", file=sys.stderr, flush=True)
    end = None if given.seconds is None else time.monotonic() + given.seconds
    printed = 0
    while given.count is None or printed < given.count:
        left = None if end is None else max(end - time.monotonic(), 0.0)
        published = client.message(left)
        if published is None:
            return 0 if given.count is None else TOO_FEW
        print(line(published, as_json=given.json), flush=True)
        printed += 1
    return 0


def line(published: Published, *, as_json: bool) -> str:
    """Return a message in printed form. Bytes that are not UTF-8 are escaped."""
    topic, payload, pattern = (
        None if part is None else part.decode(errors="backslashreplace")
        for part in (published.topic, published.payload, published.pattern)
    )
    if as_json:
        found = {"topic": topic, "payload": payload, "pattern": pattern}
        return printable_json(found)
    return f"{topic} {payload}"


TOO_FEW = 1
