"""A message's cost when millions are pending: a table for a hub and for Redis, level by level.

    python -m benchmarks.levels [--hub 10000000] [--redis 1000000] [--out FOLDER]

Each level is ten times the one before, up to the given number of pending messages (0: not this
server). Messages have one key, of a million on the hub and of 100,000 on Redis. At each level the
messages that are missing are put, then 8 connections put, lease and ack batches of 16 for a second;
at the end all are taken out, each is looked at, and the order of every key is checked. A second
table has the server's CPU time of calls that should cost the same at each level. Ten million take
some minutes and 4 GB or so: it is not part of `make bench`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import interlock
from benchmarks import load, machine
from benchmarks.pipelines import connected
from benchmarks.servers import Kind, started

LANES = {"hub": 1_000_000, "redis": 100_000}
LONGEST = 1_800.0
GROWTH = (1_000, 10_000, 100_000, 1_000_000)
"""Pending messages, two on each key, and a hundredth as many dead letters, one on each key."""
CALLS = 20
ENOUGH = 1e6
"""µs of a server after which no further calls are measured: some visit all messages."""
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
    grown = {kind: grow(kind, pending) for kind, pending in kinds if pending}
    text = "\n\n".join(
        [table(kind, figures) for kind, figures in taken.items()]
        + [growth_table(kind, rows) for kind, rows in grown.items()]
    )
    print(text)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        described = {"machine": machine.describe(), "figures": taken, "growth": grown}
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


def grow(kind: Kind, most: int) -> dict[str, dict[int, float]]:
    """Return the server's CPU time of each call in µs, by the number of pending messages."""
    taken: dict[str, dict[int, float]] = {}
    with started(kind) as server:
        scheme = "interlock" if kind == "hub" else "redis"
        with interlock.connect(f"{scheme}://127.0.0.1:{server.port}") as client:
            queue: interlock.RemoteQueue[Any] = client.queue("growth", warn_depth=0)
            pending = 0
            for level in (level for level in GROWTH if level <= most):
                die(queue, pending // 100, level // 100)
                for start in range(pending, level, 1_000):
                    batch = range(start, start + 1_000)
                    queue.put_many(batch, keys=lambda n: f"key {n // 2}")
                pending = level
                before = cpu_time(server.pid)
                with interlock.connect(f"{scheme}://127.0.0.1:{server.port}") as another:
                    another.queue("growth", warn_depth=0).messages(10)
                taken.setdefault("the first messages(10) of a client", {})[level] = (
                    cpu_time(server.pid) - before
                )
                for name, call in calls(queue).items():
                    taken.setdefault(name, {})[level] = cost(server.pid, call)
    return taken


def die(queue: interlock.RemoteQueue[Any], first: int, end: int) -> None:
    """Make dead letters: with a priority they are leased before all that is pending."""
    for start in range(first, end, 1_000):
        batch = range(start, min(start + 1_000, end))
        queue.put_many(batch, keys=lambda n: f"dead {n}", priority=1)
        left = len(batch)
        while left:
            for lease in queue.get_many(left):
                lease.reject("for the row of dead letters")
                left -= 1


def cost(pid: int, call: Callable[[], object]) -> float:
    """Return the CPU time of a process for one call, in µs, after a first one."""
    call()
    before, spent, count = cpu_time(pid), 0.0, 0
    while count < CALLS and spent < ENOUGH:
        call()
        spent, count = cpu_time(pid) - before, count + 1
    return spent / count


def calls(queue: interlock.RemoteQueue[Any]) -> dict[str, Callable[[], object]]:
    """Return the calls of which no cost should grow with the pending messages."""
    last = queue.messages(10)[-1].id
    return {
        "messages(10)": lambda: queue.messages(10),
        "messages(10, after=)": lambda: queue.messages(10, after=last),
        "messages(10, state=)": lambda: queue.messages(10, state="waiting"),
        "messages(10, state=), none in it": lambda: queue.messages(10, state="held"),
        "messages(10, key=)": lambda: queue.messages(10, key="key 1"),
        "hot_keys(10)": lambda: queue.hot_keys(10),
        "hot_keys(1000)": lambda: queue.hot_keys(1_000),
        "dead_letters(10)": lambda: queue.dead_letters(10),
        "dead_letters(10, key=)": lambda: queue.dead_letters(10, key="dead 1"),
        "explain()": lambda: queue.explain(last),
        "explain(key=)": lambda: queue.explain(key="key 1"),
        "roots()": lambda: queue.roots(),
        "stats()": lambda: queue.stats(),
    }


def cpu_time(pid: int) -> float:
    """Return the CPU time of a process in µs."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((one / "schedstat").read_text().split()[0]) for one in threads) / 1_000


def growth_table(kind: Kind, rows: dict[str, dict[int, float]]) -> str:
    """Return the table of what calls cost at each level, in Markdown."""
    levels = list(next(iter(rows.values())))
    lines = [
        f"## {kind}, server's CPU of a call",
        "",
        "| call | " + " | ".join(f"{level:,}" for level in levels) + " |",
        "|" + "---|" * (1 + len(levels)),
    ]
    for name, row in rows.items():
        lines.append(
            f"| {name} | " + " | ".join(f"{row[level]:,.0f} µs" for level in levels) + " |"
        )
    return "\n".join(lines)


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
