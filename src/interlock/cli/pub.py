"""`interlock pub TOPIC [MESSAGE ...]`: publish arguments, or the lines of standard input."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from itertools import islice

from interlock.cli.flags import Flag
from interlock.hub.client import Client
from interlock.hub.resp import ReplyError
from interlock.hub.url import without_password

URL = Flag(
    "--url",
    "HOST:PORT, redis://USER:PASSWORD@HOST:PORT or unix:PATH of the hub (the "
    "variable INTERLOCK_URL, else 127.0.0.1:6399)",
    "URL",
)
FLAGS = (URL, Flag("--quiet", "do not print how many subscribers each message reached"))


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "pub",
        description="Publish each MESSAGE, or each line of standard input if there is none; print "
        "the number of subscribers that each reached.",
        epilog="Works with Redis too. Exit codes: 0 all were published, 1 no connection, or it "
        "was lost, or the server refused one, 2 wrong usage, 130 Ctrl-C.",
    )
    parser.add_argument("topic", metavar="TOPIC", help="topic to publish to")
    parser.add_argument("messages", metavar="MESSAGE", nargs="*", help="message to publish")
    for flag in FLAGS:
        flag.add_to(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Publish."""
    return with_client(given.url, lambda client: publish(client, given))


def publish(client: Client, given: argparse.Namespace) -> int:
    """Publish the arguments or the lines, many in one round trip."""
    lines = not given.messages
    messages = iter(given.messages or (line.rstrip(b"\n") for line in sys.stdin.buffer))
    # From a terminal each line is sent as it is typed.
    burst = 1 if lines and sys.stdin.isatty() else BURST
    while some := list(islice(messages, burst)):
        for reply in client.pipeline([("PUBLISH", given.topic, message) for message in some]):
            if isinstance(reply, ReplyError):
                raise reply
            if not given.quiet:
                print(reply, flush=burst == 1)
    return 0


def with_client(given: str | None, work: Callable[[Client], int]) -> int:
    """Return the result of `work`, or print the error that stopped it and return the exit code."""
    address = given or os.environ.get("INTERLOCK_URL") or "127.0.0.1:6399"
    try:
        with Client(address) as client:
            return work(client)
    except BrokenPipeError:  # the reader closed standard output
        raise
    except ValueError as error:
        print(f"interlock: {error}", file=sys.stderr)
        return BAD_INPUT
    except (OSError, ReplyError) as error:
        print(f"interlock: {without_password(address)}: {reason(error)}", file=sys.stderr)
        return BROKEN


def reason(error: Exception) -> str:
    """Return the kernel's text without its number."""
    return getattr(error, "strerror", None) or str(error)


BURST = 64
BROKEN = 1
BAD_INPUT = 2
