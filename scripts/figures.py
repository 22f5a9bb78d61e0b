"""Puts the newest run of the benchmarks into the README, or checks that it is there.

    scripts/figures.py [--check]

The README's tables are those of benchmarks/runs/, word for word but for the columns that only a
contributor needs, so that no figure stands there that was not measured. Between the marks
`figures:hub-topics` goes the table "Hub: topics" of the newest run that has it, by the time when
it was taken: a run of all rows and one of some may be of the same day.
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
SHOWN = ("row", "ours", "peer", "ratio", "bar", "met")
"""Columns of a run's summary that the README shows."""


def tables(summary: str) -> dict[str, list[str]]:
    """The lines under each heading of a run's summary. Early runs have one table without any."""
    _, *parts = re.split(r"^## (.+)$", summary, flags=re.MULTILINE)
    found = dict(zip(parts[::2], parts[1::2], strict=True)) or {"One process": summary}
    return {
        re.sub(r"[^a-z]+", "-", name.lower()): text.splitlines() for name, text in found.items()
    }


def figures(run: Path, table: str) -> str:
    """The README's lines on a table of a run."""
    summary = (run / "summary.md").read_text()
    head, lines = summary.splitlines(), tables(summary)[table]
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines if line[:1] == "|"]
    columns = [rows[0].index(name) for name in SHOWN]
    shown = ["| " + " | ".join(row[column] for column in columns) + " |" for row in rows]
    machine = head[0].removeprefix("# ")
    link = f"[{run.name}](benchmarks/runs/{run.name}/summary.md)"
    # The version stands in one place only.
    versions = re.sub(r"interlock [0-9.]+ \((\w+).*?\)", r"commit \1", head[2])
    said = f"Taken {machine}, with {versions} All of the run: {link}."
    missed = [line.removeprefix("- ") for line in lines if line.startswith("- Bars missed")]
    return "\n".join([*shown, "", said, *missed]) + "\n"


def taken(run: Path) -> tuple[str, str]:
    """The time at which a run was made; by its name where two say the same."""
    return json.loads((run / "machine.json").read_text())["taken"], run.name


def main() -> int:
    """0: the README shows the newest run."""
    runs = sorted((path.parent for path in ROOT.glob("benchmarks/runs/*/summary.md")), key=taken)
    if not runs:
        print(
            "scripts/figures.py: there is no run under benchmarks/runs: make bench", file=sys.stderr
        )
        return 1
    newest = {table: run for run in runs for table in tables((run / "summary.md").read_text())}

    def shown(mark: re.Match[str]) -> str:
        run = newest.get(mark["table"])
        # Other figures of the README, which no run has, are marked in the same way.
        return mark[0] if run is None else mark[1] + figures(run, mark["table"]) + mark[3]

    readme = ROOT / "README.md"
    before = readme.read_text()
    after = MARKS.sub(shown, before)
    if "--check" not in sys.argv[1:]:
        readme.write_text(after)
    elif after != before:
        print(
            "README.md does not show the figures of the newest runs: run scripts/figures.py",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
