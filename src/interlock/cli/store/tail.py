"""`interlock store tail PATH [TOPIC]`: the last messages of files, and those that come."""

from __future__ import annotations

import argparse
import time
from collections import deque
from typing import Any

from interlock.cli.flags import Flag, positive
from interlock.cli.store.subcommand import FROM, JSON, declare, files, messages, write

LINES = Flag("--lines", "so many of those that there are (10)", "N", positive, default=10)


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(commands, "tail", run, "print the last messages, and those that come",
            (FROM, LINES, JSON),
            about="Until Ctrl-C; files that are begun later are followed too.")  # fmt: skip


def run(given: argparse.Namespace) -> int:
    """Print, and follow."""
    found = files(given)
    write(deque(messages(found), maxlen=given.lines), as_json=given.json)
    while True:
        time.sleep(PAUSE)
        write(messages(found), as_json=given.json)


PAUSE = 0.1
