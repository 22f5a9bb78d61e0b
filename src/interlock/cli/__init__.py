"""The `interlock` command, one module per subcommand; each flag is declared once, in its module."""

from __future__ import annotations

import argparse
import io
import os
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from typing import Any

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
        given = parser(words[0] if words else "--help").parse_args(arguments)
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


def parser(first: str = "") -> argparse.ArgumentParser:
    """Return the parser of a command line with this `first` word. Default: of any.

    Importing all subcommands takes time, and megabytes that a hub would keep. With a subcommand
    only that one is imported; for the help, or a wrong word, none.
    """
    whole = Parser(
        prog="interlock",
        description="Messages that share a key are handled in order, never at the same time; "
        "the rest runs in parallel.",
    )
    whole.add_argument("--version", action="version", version=f"interlock {__version__}")
    commands = whole.add_subparsers(metavar="COMMAND", required=True, action=_Subcommands)
    name = ALIASES.get(first, first)
    if name in COMMANDS:
        import_module(f"interlock.cli.{name}").add_to(commands)
    elif name in HELP or name[:1] not in ("", "-"):
        for one in COMMANDS:
            commands.add_parser(one)
    else:
        for one in COMMANDS:
            import_module(f"interlock.cli.{one}").add_to(commands)
    return whole


class _Subcommands(argparse._SubParsersAction):  # type: ignore[type-arg]
    """Gives each subcommand its aliases and its line in the help."""

    def add_parser(self, name: str, **given: Any) -> argparse.ArgumentParser:
        """Add a subcommand."""
        aliases = [alias for alias, of in ALIASES.items() if of == name]
        made: argparse.ArgumentParser = super().add_parser(
            name, help=COMMANDS[name], aliases=aliases, **given
        )
        return made


COMMANDS = {
    "replay": "replay recorded messages and check their order",
    "queue": "inspect and operate the queues of an engine",
    "table": "read and change tables in shared memory",
    "node": "serve a state table that is the same on several machines",
    "cluster": "inspect and operate a cluster of nodes that serve a table",
    "store": "read the files that the stores of a hub have written",
    "worker": "handle the messages of an app's tasks, or ask what workers are doing",
    "send": "send a call of a task",
    "cron": "show the timetable of an app, or send the call of an entry",
    "dashboard": "serve a web page with the queues of an engine",
    "top": "show all queues live in the terminal, with held and dead messages and workers",
    "exporter": "export the queues of an engine as metrics for Prometheus",
    "hub": "serve topics and keyed queues over the Redis protocol, or query a running hub",
    "pub": "publish messages to a topic",
    "sub": "print the messages published to topics",
    "outbox": "manage the outbox in a database",
    "completion": "print the completion of this command for a shell",
}
"""The subcommands, each a module of its name, and their lines in the help."""
ALIASES = {"postgres": "outbox"}
HELP = ("-h", "--help", "--version")
INTERRUPTED = 130
LONGEST_END = 2.0
