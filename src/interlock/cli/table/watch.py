"""`interlock table watch`: a table's load and activity, live."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from interlock.cli.flags import Flag, positive, seconds
from interlock.cli.table.admin import COUNTS, page
from interlock.cli.table.subcommand import attach, declare, emit
from interlock.cli.tables import printable

EVERY = Flag("--every", "refresh every S seconds (2)", "S", seconds, 2.0)
COUNT = Flag("--count", "exit after this many refreshes", "N", positive)
CLEAR = "\x1b[H\x1b[2J"


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(
        commands,
        "watch",
        watch,
        "show rows and counters live",
        (EVERY, COUNT),
        about="On a terminal one screen, else one line per refresh. Ctrl-C ends it.",
    )


def watch(given: argparse.Namespace) -> int:
    """Take snapshots repeatedly."""
    opened = attach(given)
    looks = 0
    while True:
        stats = opened.stats()
        if given.json:
            counts = {name: getattr(stats, name) for name in COUNTS}
            emit({"table": given.name, "time": time.time(), "rows": stats.rows} | counts)
        elif sys.stdout.isatty():
            print(CLEAR + page(given.name, opened, stats), flush=True)
        else:
            told = [f"rows {stats.rows:,} of {opened.capacity:,}"]
            told += [f"{name} {getattr(stats, name):,}" for name in COUNTS if getattr(stats, name)]
            line = ", ".join(told)
            print(f"{time.strftime('%H:%M:%S')} {printable(given.name)}  {line}", flush=True)
        looks += 1
        if looks == given.count:
            return 0
        time.sleep(given.every)
