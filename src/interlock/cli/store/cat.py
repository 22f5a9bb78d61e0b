"""`interlock store cat PATH [TOPIC]`: the messages of files, from a position or time on."""

from __future__ import annotations

import argparse
from itertools import islice
from typing import Any

from interlock.cli.flags import Flag, positive
from interlock.cli.store.subcommand import (
    FROM,
    JSON,
    declare,
    files,
    left_out,
    messages,
    write,
)

COUNT = Flag("--count", "so many messages at most", "N", positive)


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(commands, "cat", run, "print messages", (FROM, COUNT, JSON),
            about="Topic by topic, each in its order, compressed files too.")  # fmt: skip


def run(given: argparse.Namespace) -> int:
    """Print the messages."""
    found = files(given)
    write(islice(messages(found), given.count), as_json=given.json)
    return left_out(found)
