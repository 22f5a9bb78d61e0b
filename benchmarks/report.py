"""From samples to a table: medians, spread, bar met or not, and the files of a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.row import Row, Unit

HEAD = ("row", "ours", "peer", "ratio", "min – max", "bar", "met", "faults ours / peer")
NOISY = 0.05


@dataclass(slots=True)
class Result:
    """A row and what came of it."""

    row: Row
    samples: list[dict[str, Any]] = field(default_factory=list)
    failure: str | None = None
    """Why there are no samples, or not all."""

    others: float | None = None
    """Which part of the machine other processes used meanwhile, 0 to 1."""

    def values(self, side: str) -> list[float]:
        """The values of one side, in the order of the pairs."""
        return [sample["value"] for sample in self.samples if sample["side"] == side]

    @property
    def figures(self) -> list[float]:
        """What is held against the bar, one a pair: the ratio, or the value where no peer is."""
        ours = self.values("ours")
        if not self.row.peer:
            return ours
        return [mine / theirs for mine, theirs in zip(ours, self.values("peer"), strict=True)]

    def faults(self, side: str) -> int:
        """Messages of one side lost or out of order, in all samples."""
        mine = [sample for sample in self.samples if sample["side"] == side]
        return sum(sample["lost"] + sample["misordered"] for sample in mine)

    @property
    def verdict(self) -> str:
        """yes, no, WRONG for a run that lost or misordered, or failed."""
        if self.failure is not None:
            return "failed"
        if self.faults("ours"):
            return "WRONG"
        return "yes" if median(self.figures) <= self.row.bar else "no"

    def cells(self) -> tuple[str, ...]:
        """The line of the table, as HEAD names its columns."""
        row = self.row
        bar = f"{row.bar:g}" if row.peer else _amount(row.bar, row.unit)
        if self.failure is not None:
            return (row.title, self.failure, row.peer, "", "", bar, self.verdict, "")
        ours = _amount(median(self.values("ours")), row.unit)
        figures = self.figures
        if not row.peer:
            spread = f"{_amount(min(figures), row.unit)} – {_amount(max(figures), row.unit)}"
            faults = f"{self.faults('ours'):,}"
            return (row.title, ours, "", "", spread, bar, self.verdict, faults)
        peer = f"{_amount(median(self.values('peer')), row.unit)} {row.peer}"
        spread = f"{min(figures):.3g} – {max(figures):.3g}"
        faults = f"{self.faults('ours'):,} / {self.faults('peer'):,}"
        ratio = f"{median(figures):.3g}"
        return (row.title, ours, peer, ratio, spread, bar, self.verdict, faults)


def table(results: Sequence[Result]) -> str:
    """Columns aligned for a terminal."""
    lines = [HEAD, *(result.cells() for result in results)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    rule = tuple("-" * width for width in widths)
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (HEAD, rule, *lines[1:])
    )


def remarks(results: Sequence[Result]) -> list[str]:
    """What a reader must know beside the table, a sentence each."""
    said = []
    repeats = sorted({len(result.figures) for result in results if not result.failure})
    if repeats:
        count = " to ".join(map(str, dict.fromkeys((repeats[0], repeats[-1]))))
        said.append(
            f"Ratio: ours ÷ peer within each of {count} pairs taken side by side; median, min, max."
        )
    noisy = [result for result in results if (result.others or 0) > NOISY]
    if noisy:
        most = max(result.others or 0 for result in noisy)
        said.append(
            f"NOISY: other processes used up to {most:.0%} of the machine during {len(noisy)} of "
            f"{len(results)} rows; take the figures again when it is idle."
        )
    unmet = [result.row.name for result in results if result.verdict == "no"]
    said.append(f"Bars missed: {', '.join(unmet)}." if unmet else "No bar missed.")
    bad = [result.row.name for result in results if result.verdict in ("WRONG", "failed")]
    if bad:
        said.append(f"Wrong or failed: {', '.join(bad)}.")
    return said


def write(folder: Path, results: Sequence[Result], machine: dict[str, Any], seconds: float) -> None:
    """samples.jsonl, machine.json and summary.md; what stood there before is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "samples.jsonl").open("w") as lines:
        for result in results:
            for sample in result.samples:
                line = {"row": result.row.name, "unit": result.row.unit} | sample
                lines.write(json.dumps(line) + "\n")
    others = {result.row.name: result.others for result in results}
    machine = machine | {"seconds": round(seconds), "used_by_others": others}
    (folder / "machine.json").write_text(json.dumps(machine, indent=2) + "\n")
    (folder / "summary.md").write_text(_summary(results, machine))


def _summary(results: Sequence[Result], machine: dict[str, Any]) -> str:
    commit = (machine["commit"] or "no commit")[:12]
    changed = ", with uncommitted changes" if machine["changed_since_commit"] else ""
    lines = [
        f"# {machine['taken'][:10]}, {machine['cpu']}, {machine['cpus']} CPUs",
        "",
        f"{machine['python']}, interlock {machine['interlock']} ({commit}{changed}), culsans "
        f"{machine['culsans']}, bocpy {machine['bocpy']} on {machine['python_of_behaviours']}, "
        f"key-message-channel {machine['key-message-channel']}, {machine['rust']}.",
        "",
        "| " + " | ".join((*HEAD[:6], "prototype", *HEAD[6:])) + " |",
        "|" + "---|" * (len(HEAD) + 1),
    ]
    for result in results:
        prototype = f"{result.row.prototype:g}" if result.row.prototype else "–"
        cells = result.cells()
        lines.append("| " + " | ".join((*cells[:6], prototype, *cells[6:])) + " |")
    return "\n".join([*lines, "", *(f"- {said}" for said in remarks(results))]) + "\n"


def _amount(value: float, unit: Unit) -> str:
    number = f"{value:,.0f}" if value >= 100 or unit == "B" else f"{value:.3g}"
    return f"{number} {unit}"
