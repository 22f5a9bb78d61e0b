"""Puts the newest run of the benchmarks into the README, or checks that it is there.

    scripts/figures.py [--check]

The README's table is that of benchmarks/runs/, word for word but for the columns that only a
contributor needs, so that no figure stands there that was not measured.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARKS = re.compile(
    r"(<!-- figures:one-process -->\n).*?(<!-- /figures:one-process -->)", flags=re.DOTALL
)
SHOWN = ("row", "ours", "peer", "ratio", "bar", "met")
"""Columns of a run's summary that the README shows."""


def figures(run: Path) -> str:
    """The README's lines on a run."""
    lines = (run / "summary.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines if line[:1] == "|"]
    columns = [rows[0].index(name) for name in SHOWN]
    table = ["| " + " | ".join(row[column] for column in columns) + " |" for row in rows]
    machine = lines[0].removeprefix("# ")
    link = f"[{run.name}](benchmarks/runs/{run.name}/summary.md)"
    # The version stands in one place only.
    versions = re.sub(r"interlock [0-9.]+ \((\w+).*?\)", r"commit \1", lines[2])
    said = f"Taken {machine}, with {versions} All of the run: {link}."
    missed = [line.removeprefix("- ") for line in lines if line.startswith("- Bars missed")]
    return "\n".join([*table, "", said, *missed]) + "\n"


def main() -> int:
    """0: the README shows the newest run."""
    runs = sorted(path.parent for path in ROOT.glob("benchmarks/runs/*/summary.md"))
    if not runs:
        print(
            "scripts/figures.py: there is no run under benchmarks/runs: make bench", file=sys.stderr
        )
        return 1
    readme = ROOT / "README.md"
    before = readme.read_text()
    after = MARKS.sub(lambda marks: marks[1] + figures(runs[-1]) + marks[2], before)
    if "--check" not in sys.argv[1:]:
        readme.write_text(after)
    elif after != before:
        print(
            f"README.md does not show the figures of {runs[-1].name}: run scripts/figures.py",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
