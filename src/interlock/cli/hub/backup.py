"""`interlock hub backup FROM DESTINATION`: a copy of a hub's journal, made while it runs."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from interlock.cli.flags import Flag
from interlock.cli.hub.connection import CA, JSON, ask
from interlock.cli.hub.info import size
from interlock.cli.pub import BAD_INPUT, BROKEN
from interlock.explanation import printable_json
from interlock.hub import backup
from interlock.hub.client import Client
from interlock.hub.url import parse, without_password

QUIET = Flag("--quiet", "do not show progress (shown on a terminal only)")
FLAGS = (CA, JSON, QUIET)


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "backup",
        help="copy the journal of a hub while it runs",
        description="Copy the journal of a hub while it runs, or after it was stopped. Every "
        "message that was acknowledged before the command began is in the copy, and the finished "
        "copy is checked. To restore it, start a hub on it: interlock hub --journal "
        "DESTINATION.",
        epilog="Exit codes: 0 copied, 1 reading or writing failed, or the hub refused, 2 wrong "
        "usage or DESTINATION is not empty, 130 Ctrl-C. An incomplete copy is removed.",
    )
    parser.add_argument(
        "source",
        metavar="FROM",
        nargs="?",
        help="the hub, as HOST:PORT, redis://USER:PASSWORD@HOST:PORT, rediss://... for TLS, or "
        "unix:PATH; or the folder of its journal, on this machine (the variable INTERLOCK_URL, "
        "else 127.0.0.1:6399)",
    )
    parser.add_argument(
        "destination",
        metavar="DESTINATION",
        type=Path,
        help=("a folder that is empty or does not exist"),
    )
    for flag in FLAGS:
        flag.add_to(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Copy, and print the result."""
    if given.source is None:
        given.source = os.environ.get("INTERLOCK_URL") or "127.0.0.1:6399"
    try:
        backup.check(given.destination)
    except OSError as error:
        return _failed(error, BAD_INPUT)
    if Path(given.source).is_dir():
        try:
            return copied(backup.Folder(Path(given.source)), given)
        except OSError as error:
            return _failed(error)
    try:
        parse(given.source)
    except ValueError as error:
        text = f"there is no folder {without_password(given.source)!r}, and no hub: {error}"
        return _failed(ValueError(text), BAD_INPUT)
    given.url = given.source

    def asked(client: Client) -> int:
        source = backup.Asked(client)
        try:
            code = copied(source, given)
        except (ConnectionError, TimeoutError):
            raise
        except OSError as error:
            # The local disk's error, not the hub's.
            return _failed(error)
        source.end()
        return code

    return ask(given, asked)


def _failed(error: Exception, code: int = BROKEN) -> int:
    words = str(error)
    if isinstance(error, OSError) and error.strerror:
        words = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    print(f"interlock: {words}", file=sys.stderr)
    return code


def copied(source: backup.Source, given: argparse.Namespace) -> int:
    """Write the copy, and print its size."""
    began = time.monotonic()
    progress = Progress(sys.stderr.isatty() and not given.quiet)
    try:
        written = backup.write(source, given.destination, progress)
    finally:
        progress.end()
    if given.json:
        told = {
            "from": without_password(given.source),
            "to": str(given.destination),
            "records": source.last,
            "bytes": written,
            "files": [part.name for part in source.parts],
            "seconds": round(time.monotonic() - began, 3),
        }
        print(printable_json(told))
        return 0
    print(f"{size(written)} in {len(source.parts)} files, up to record {source.last:,}: "
          f"{given.destination}")  # fmt: skip
    return 0


class Progress:
    """A progress line on standard error."""

    def __init__(self, shown: bool) -> None:
        self._shown = shown
        self._said = -1

    def __call__(self, done: int, all: int) -> None:
        """Show the bytes written so far, of the total."""
        percent = 100 * done // max(all, 1)
        if self._shown and percent != self._said:
            self._said = percent
            line = f"\r{size(done)} of {size(all)}, {percent} %"
            print(line, end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """End the line."""
        if self._said >= 0:
            print(file=sys.stderr)
