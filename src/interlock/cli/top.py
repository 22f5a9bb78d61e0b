"""`interlock top`: all queues of an engine in the terminal, live."""

from __future__ import annotations

import argparse
import sys

from interlock.cli.flags import Flag, seconds
from interlock.cli.queue.subcommand import BAD_INPUT, EXIT_CODES, URL, ask, failed
from interlock.runtime.installation import needs

FLAGS = (
    URL,
    Flag("--every", "refresh every S seconds (1)", "S", seconds, 1.0),
    Flag("--write", "allow changes by keys: retry, skip, bury, requeue, discard, each after a "
         "confirmation"),
)  # fmt: skip


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "top",
        description="Show the queues of a hub or a Redis live in the terminal: rates, hot keys, "
        "held and dead messages, workers and their handlers. It only reads, unless --write is "
        f"given. Needs: {needs('top')}.",
        epilog=EXIT_CODES,
    )
    for flag in FLAGS:
        flag.add_to(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Show it until it is left."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        print("interlock: top needs a terminal; `interlock queue watch` does not", file=sys.stderr)
        return BAD_INPUT
    try:
        from interlock.top.application import Top
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("textual", "rich"):
            raise
        return failed(f"top needs textual: {needs('top')}")
    from interlock.top.board import Board

    def show(operator: object) -> int:
        from interlock.client.admin.operator import Operator

        assert isinstance(operator, Operator)
        # Checked before the screen changes: errors in the address are printed plainly.
        operator.queues()
        top = Top(Board(operator), operator.shown, every=given.every, write=given.write)
        top.run()
        return top.return_code or 0

    return ask(given, show)
