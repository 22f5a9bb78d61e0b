"""The `interlock` command, one module per subcommand; each flag is declared once, in its module."""

from __future__ import annotations

import argparse
import io
import os
import sys
import threading
from collections.abc import Sequence
from importlib import import_module

from interlock import __version__
from interlock.cli.usage import Parser
from interlock.runtime.interrupt import behind


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    It is 0 for success, 1 if violations were found or the run broke, 2 for wrong usage or bad
    input, 130 for Ctrl-C. Data goes to standard output, everything else to standard error. Wrong
    flags end with SystemExit, as in argparse.
    """
    words = sys.argv[1:] if arguments is None else arguments
    if arguments is None and isinstance(sys.stdout, io.TextIOWrapper):
        # Keys and payloads come from outside; an ASCII terminal shows them escaped.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        given = parser(*words[:1]).parse_args(arguments)
        code = int(given.run(given))
        if sys.stdout is not None:  # as if closed by `>&-`
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("interlock: interrupted", file=sys.stderr, flush=True)
    except BrokenPipeError:
        # The reader closed the pipe, as `head` does, and has all it wants. Python would raise once
        # more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except RuntimeError as error:
        if behind(error) is None:
            raise
        print("interlock: interrupted", file=sys.stderr, flush=True)
    if arguments is None:
        # In a program, the interpreter's end waits for handlers, and one may never return.
        end = threading.Timer(LONGEST_END, os._exit, (INTERRUPTED,))
        end.daemon = True
        end.start()
    return INTERRUPTED


def parser(only: str = "") -> argparse.ArgumentParser:
    """Return the parser of all subcommands, or of `only` one.

    Importing the others takes time, and megabytes that a hub would keep. An unknown subcommand
    imports all of them, `--version` none.
    """
    whole = Parser(
        prog="interlock",
        description="Messages that share a key are handled in order, never at the same time; "
        "the rest runs in parallel.",
    )
    whole.add_argument(VERSION, action="version", version=f"interlock {__version__}")
    commands = whole.add_subparsers(metavar="COMMAND", required=True)
    only = ALIASES.get(only or "", only)
    names = [only] if only in COMMANDS else () if only == VERSION else COMMANDS
    for name in names:
        import_module(f"interlock.cli.{name}").add_to(commands)
    return whole


COMMANDS = (
    *("replay", "queue", "table", "node", "cluster", "store", "worker", "send", "cron"),
    *("dashboard", "top", "exporter", "hub", "pub", "sub", "outbox", "completion"),
)
ALIASES = {"postgres": "outbox"}
VERSION = "--version"
INTERRUPTED = 130
LONGEST_END = 2.0
