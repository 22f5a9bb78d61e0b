"""Puts the newest benchmark runs into the pages that show them, or checks the pages.

    scripts/figures.py [--check]

The tables of benchmarks/FIGURES.md are those of benchmarks/runs/, word for word except for the
columns that only a contributor needs, so that every figure is a measured one. Between the marks
`figures:hub-topics` goes the table "Hub: topics" of the newest run that has it, by the time of the
run: a run of all rows and one of some may have the same date. Between the marks `figures:ratios` of
the README go a few rows of all of them, each as a ratio.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARKS = re.compile(
    r"(<!-- figures:(?P<table>[a-z-]+) -->\n).*?(<!-- /figures:(?P=table) -->)", flags=re.DOTALL
)
PAGES = ("README.md", "benchmarks/FIGURES.md")
SHOWN = ("row", "ours", "peer", "ratio", "bar", "met")
"""Columns of a run's summary that a page shows."""
RATIOS = (
    ("one process: put, get, ack", "one-process", "put+get+ack, 1 str key", "queue.Queue"),
    ("executor: call and result", "one-process", "submit_keyed + res", "ThreadPoolExecutor"),
    ("hub: put, lease, ack, 16 per call", "hub-keyed-queues", "connections, batch 16", "streams"),
    ("hub: topic with 10 subscribers", "hub-topics", "fan-out 10, 4 connections", "Redis"),
    ("store: publish to a file", "stores", "publish to a file", "XADD"),
    ("table: read a column", "state-table", "get one column", "dict"),
    ("table: two processes increment", "state-table", "both incr", "lmdb"),
    ("worker on Redis: no-op task", "workers", "no-op tasks", "huey"),
    ("Redis engine: put, lease, ack, 16 per call", "redis-engine", "1 key, batch 16", "streams"),
)
"""Rows of the README: the name shown, the table, and texts that a row and its peer contain. The
first row with both is taken."""


def tables(summary: str) -> dict[str, list[str]]:
    """Return the lines under each heading of a run's summary.

    Early runs have one table without a heading.
    """
    _, *parts = re.split(r"^## (.+)$", summary, flags=re.MULTILINE)
    found = dict(zip(parts[::2], parts[1::2], strict=True)) or {"One process": summary}
    return {
        re.sub(r"[^a-z]+", "-", name.lower()): text.splitlines() for name, text in found.items()
    }


def shown_rows(run: Path, table: str) -> list[list[str]]:
    """Return the cells that a page shows of a run's table: its head, a line under it, its rows."""
    lines = tables((run / "summary.md").read_text())[table]
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines if line[:1] == "|"]
    columns = [rows[0].index(name) for name in SHOWN]
    return [[row[column] for column in columns] for row in rows]


def figures(run: Path, table: str) -> str:
    """Return the lines of benchmarks/FIGURES.md for a table of a run."""
    summary = (run / "summary.md").read_text()
    head, lines = summary.splitlines(), tables(summary)[table]
    shown = ["| " + " | ".join(row) + " |" for row in shown_rows(run, table)]
    machine = head[0].removeprefix("# ")
    link = f"[{run.name}](runs/{run.name}/summary.md)"
    # The version is in one place only.
    versions = re.sub(r"interlock \S+ \((\w+).*?\)", r"commit \1", head[2])
    said = f"Taken {machine}, with {versions} All of the run: {link}."
    missed = [line.removeprefix("- ") for line in lines if line.startswith("- Bars missed")]
    return "\n".join([*shown, "", said, *missed]) + "\n"


def ratios(newest: dict[str, Path]) -> str:
    """Return the README's lines: the time a peer takes divided by the time Interlock takes."""
    lines = ["| | compared with | times as fast |", "| --- | --- | --- |"]
    for name, table, row, peer in RATIOS:
        found = [
            (" ".join(cells[2].split(" ")[2:]), float(cells[3]), cells[4].startswith("≥"))
            for cells in shown_rows(newest[table], table)
            if row in cells[0] and peer in cells[2]
        ]
        if not found:
            raise LookupError(f"{newest[table]}: no row {row!r} beside {peer!r}")
        beside, ratio, floor = found[0]
        # A floor bounds peer ÷ ours, a ceiling ours ÷ peer.
        times = ratio if floor else 1 / ratio
        lines.append(f"| {name} | {beside} | {times:.2g} |")
    return "\n".join(lines) + "\n"


def taken(run: Path) -> tuple[str, str]:
    """Return the time of a run; by its name if two are equal."""
    return json.loads((run / "machine.json").read_text())["taken"], run.name


def main() -> int:
    """Write the pages, or with --check compare them; return 0 if they show the newest runs."""
    runs = sorted((path.parent for path in ROOT.glob("benchmarks/runs/*/summary.md")), key=taken)
    if not runs:
        print(
            "scripts/figures.py: there is no run under benchmarks/runs: make bench", file=sys.stderr
        )
        return 1
    newest = {table: run for run in runs for table in tables((run / "summary.md").read_text())}

    def shown(mark: re.Match[str]) -> str:
        if mark["table"] == "ratios":
            return mark[1] + ratios(newest) + mark[3]
        run = newest.get(mark["table"])
        # Other figures of a page, which are in no run, are marked in the same way.
        return mark[0] if run is None else mark[1] + figures(run, mark["table"]) + mark[3]

    stale = False
    for page in [ROOT / page for page in PAGES]:
        before = page.read_text()
        after = MARKS.sub(shown, before)
        if "--check" not in sys.argv[1:]:
            page.write_text(after)
        elif after != before:
            stale = True
            print(
                f"{page.name} does not show the figures of the newest runs: run scripts/figures.py",
                file=sys.stderr,
            )
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
