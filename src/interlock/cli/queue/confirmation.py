"""Confirmation before data is lost."""

from __future__ import annotations

import argparse
import sys

from interlock.cli.flags import Flag
from interlock.cli.queue.subcommand import BAD_INPUT
from interlock.cli.tables import printable

YES = Flag("--yes", "do not ask; required without a terminal")


def refused(given: argparse.Namespace, what: str) -> int:
    """Return 0 if it is confirmed, by --yes or at the terminal; else the exit code."""
    if given.yes:
        return 0
    what = printable(what)  # a name in it comes from outside
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        print(f"interlock: {what}? confirm with --yes: without a terminal it cannot ask",
              file=sys.stderr)  # fmt: skip
        return BAD_INPUT
    print(f"{what}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return 0
    print("interlock: nothing was done", file=sys.stderr)
    return NOT_DONE


NOT_DONE = 1
