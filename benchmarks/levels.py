"""A message's cost when millions are pending: a table for a hub and for Redis, level by level.

    python -m benchmarks.levels [--hub 10000000] [--redis 1000000] [--out FOLDER]

Each level is ten times the one before, up to the given number of pending messages (0: not this
server). Messages have one key, of a million on the hub and of 100,000 on Redis. At each level the
messages that are missing are put, then 8 connections put, lease and ack batches of 16 for a second;
at the end all are taken out, each is looked at, and the order of every key is checked. Ten million
take some minutes and 4 GB or so: it is not part of `make bench`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import load, machine
from benchmarks.pipelines import connected
from benchmarks.servers import Kind, started

LANES = {"hub": 1_000_000, "redis": 100_000}
LONGEST = 1_800.0
HEAD = ("pending", "put", "put, lease, ack", "– server's CPU", "resident", "a message")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print all levels; return 0 if no message was lost or out of order."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.levels", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--hub", type=int, default=10_000_000, metavar="N")
    parser.add_argument("--redis", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="levels.json and levels.md")
    options = parser.parse_args(arguments)
    kinds: tuple[tuple[Kind, int], ...] = (("hub", options.hub), ("redis", options.redis))
    taken = {kind: take(kind, pending) for kind, pending in kinds if pending}
    text = "\n\n".join(table(kind, figures) for kind, figures in taken.items())
    print(text)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        described = {"machine": machine.describe(), "figures": taken}
        (options.out / "levels.json").write_text(json.dumps(described, indent=2) + "\n")
        (options.out / "levels.md").write_text(text + "\n")
    return int(any(faults(figures) for figures in taken.values()))


def take(kind: Kind, pending: int) -> load.Figures:
    """Run the program once, on a server of its own, and return what it printed."""
    print(f"{kind}: up to {pending:,} pending", file=sys.stderr, flush=True)
    options = {"backlog": pending, "keys": LANES[kind], "each": 1, "batch": 16}
    with started(kind) as server:
        if kind == "redis":
            connected(server).close()
        return load.run("levels-interlock", server, options, longest=LONGEST)


def faults(figures: load.Figures) -> int:
    """Count the messages that were lost, refused, came twice or out of order."""
    names = ("lost", "refused", "repeated", "misordered")
    return round(sum(figures[name] for name in names))


def table(kind: Kind, figures: load.Figures) -> str:
    """Return the table of one server, in Markdown."""
    found = [name.removeprefix("cycle_ns_") for name in figures if name.startswith("cycle_ns_")]
    lines = [
        f"## {kind}, {LANES[kind]:,} lanes",
        "",
        "| " + " | ".join(HEAD) + " |",
        "|" + "---|" * len(HEAD),
    ]
    empty = figures["empty_bytes"]
    for level in sorted(map(int, found)):
        put, cycle, cpu = (
            f"{figures[f'{name}_{level}']:,.0f} ns"
            for name in ("put_ns", "cycle_ns", "cycle_cpu_ns")
        )
        resident = figures[f"resident_bytes_{level}"]
        each = f"{(resident - empty) / level:,.0f} B"
        cells = (f"{level:,}", put, cycle, cpu, f"{resident / 1e6:,.0f} MB", each)
        lines.append("| " + " | ".join(cells) + " |")
    drained, drain = figures["drained_bytes"] / 1e6, figures["drain_ns"]
    lines += [
        "",
        f"All {figures['delivered']:,.0f} messages came out, at last within {drain:,.0f} ns each. "
        f"Then resident: {drained:,.0f} MB; before the first one: {empty / 1e6:,.0f} MB. "
        f"Lost, refused, repeated or misordered: {faults(figures)}.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
