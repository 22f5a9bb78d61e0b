"""`interlock queue watch` without a queue: all of them live, a line for each."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from typing import TYPE_CHECKING

from interlock.cli.queue.subcommand import emit, emit_all
from interlock.cli.queue.views.overview import aged, gates_text
from interlock.cli.tables import printable, table
from interlock.runtime.queue_figures import RATED, rates_of

if TYPE_CHECKING:
    from interlock.client.admin.operator import Operator

Counts = dict[str, dict[str, int]]
Rates = dict[str, dict[str, float]]


def watch_all(operator: Operator, given: argparse.Namespace) -> int:
    """Take snapshots of all queues repeatedly."""
    screen = sys.stdout.isatty() and not given.json
    before: Counts = {}
    asked = 0.0
    looks = 0
    while True:
        now, counts = time.monotonic(), operator.all_stats()
        rates = {
            name: rates_of(before[name], counts[name], now - asked)
            for name in counts
            if name in before
        }
        if given.json:
            at = time.time()
            emit_all(
                {"queue": name, "time": at, "counts": aged(one), "rates": rates.get(name, {})}
                for name, one in counts.items()
            )
            if not counts:
                emit({"time": at, "queues": 0})
        elif screen:
            head = f"{len(counts)} queues  {time.strftime('%H:%M:%S')}"
            print(CLEAR + fitted(f"{head}\n\n{lines(counts, rates)}"), flush=True)
        else:
            print(f"{time.strftime('%H:%M:%S')}\n{lines(counts, rates)}", flush=True)
        looks += 1
        if looks == given.count:
            return 0
        before, asked = counts, now
        time.sleep(given.every)


def lines(counts: Counts, rates: Rates) -> str:
    """Return a line for each queue, the one with most messages first."""
    if not counts:
        return "no queues"
    order = sorted(counts, key=lambda name: (-counts[name]["unsettled"], name))
    rows: list[tuple[str | int, ...]] = [
        (
            printable(name),
            *(counts[name].get(state, 0) for state in SHOWN),
            *(f"{rates[name][rate]:,.1f}" if name in rates else "" for rate in RATED),
            gates_text(counts[name]),
        )
        for name in order
    ]
    return table(("queue", "depth", *SHOWN[1:], *(f"{rate}/s" for rate in RATED), ""), rows)


def fitted(text: str) -> str:
    """Cut a page to the terminal: wrapped lines would push the first ones out."""
    columns, rows = shutil.get_terminal_size()
    return "\n".join(line[:columns] for line in text.splitlines()[: max(rows - 1, 1)])


CLEAR = "\x1b[H\x1b[2J"
SHOWN = ("unsettled", "ready", "leased", "held", "dead")
