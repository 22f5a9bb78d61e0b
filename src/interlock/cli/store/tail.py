"""`interlock store tail PATH [TOPIC]`: the last messages of files, and new ones."""

from __future__ import annotations

import argparse
import signal
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from interlock.cli.flags import Flag, positive
from interlock.cli.store.subcommand import (
    BROKEN,
    FROM,
    JSON,
    PAUSE,
    Message,
    Report,
    declare,
    files,
    messages,
    write,
)

LINES = Flag("--lines", "number of existing messages to show first (10)", "N", positive, default=10)


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(commands, "tail", run, "print the last messages, then new ones",
            (FROM, LINES, JSON),
            about="Runs until Ctrl-C and follows new files. Missing messages are reported on "
            "standard error with their position.")  # fmt: skip


def run(given: argparse.Namespace) -> int:
    """Print, and follow."""
    found = files(given)
    report = Report(found)
    some: Iterable[Message] = deque(messages(found), maxlen=given.lines)
    try:
        while True:
            write(some, as_json=given.json)
            with uninterrupted():
                report.gaps()
                report.settle()
            time.sleep(PAUSE)
            some = messages(found)
    except KeyboardInterrupt:
        report.gaps()
        if report.complete:
            raise
        return BROKEN


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Have Ctrl-C wait: what is being reported is reported to the end, as it would not be again."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
