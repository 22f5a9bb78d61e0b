"""`interlock store cat PATH [TOPIC]`: the messages of files, from a position or time on."""

from __future__ import annotations

import argparse
import time
from itertools import islice
from typing import Any

from interlock.cli.flags import Flag, positive
from interlock.cli.store.subcommand import (
    BROKEN,
    FROM,
    JSON,
    PAUSE,
    Report,
    declare,
    files,
    messages,
    write,
)

COUNT = Flag("--count", "maximum number of messages", "N", positive)


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(commands, "cat", run, "print messages", (FROM, COUNT, JSON),
            about="Prints topic by topic, each in its order, also from compressed files. Missing "
            "messages are reported on standard error with their position.")  # fmt: skip


def run(given: argparse.Namespace) -> int:
    """Print the messages."""
    found = files(given)
    report = Report(found)
    left = given.count
    while True:
        count = write(islice(messages(found), left), as_json=given.json)
        report.gaps()
        left = None if left is None else left - count
        if left == 0 or not report.settle():
            return 0 if report.complete else BROKEN
        time.sleep(PAUSE)
