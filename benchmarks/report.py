"""From samples to a table: medians, spread, bar met or not, and the files of a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.row import Row, Unit

HEAD = ("row", "ours", "peer", "ratio", "min – max", "bar", "met", "faults ours / peer")
NOISY = 0.05
BUSY = 0.9
"""Cores' worth of time below which a server with a core of its own was waiting."""


@dataclass(slots=True)
class Result:
    """A row and what came of it."""

    row: Row
    samples: list[dict[str, Any]] = field(default_factory=list)
    failure: str | None = None
    """The reason why there are no samples, or not all."""

    others: float | None = None
    """The part of the machine that other processes used meanwhile, 0 to 1."""

    def values(self, side: str) -> list[float]:
        """Return the values of one side, in the order of the pairs."""
        figure = self.row.figure
        return [sample[figure] for sample in self.samples if sample["side"] == side]

    def seen_as(self, row: Row) -> Result:
        """Return the same samples for another of the rows that share them."""
        return replace(self, row=row)

    @property
    def missing(self) -> str | None:
        """The reason why the row's peer cannot be had on this machine."""
        figure = self.row.figure
        said = (one for one in self.samples if one["side"] == "missing")
        return next((one["why"] for one in said if one["figure"] == figure), None)

    @property
    def figures(self) -> list[float]:
        """The values that are held against the bar, one a pair, as `Row.judged` says."""
        ours = self.values("ours")
        if self.row.is_absolute:
            return ours
        pairs = zip(ours, self.values("peer"), strict=True)
        if self.row.judged == "times":
            return [theirs / mine for mine, theirs in pairs]
        return [mine / theirs for mine, theirs in pairs]

    def faults(self, side: str) -> int:
        """Count the messages of one side that were lost or out of order, in all samples."""
        mine = [sample for sample in self.samples if sample["side"] == side]
        return sum(sample["lost"] + sample["misordered"] for sample in mine)

    @property
    def verdict(self) -> str:
        """yes, no, – without a bar, missing where the peer cannot be had, WRONG for a run that lost
        or misordered, or failed."""
        if self.failure is not None:
            return "failed"
        if self.faults("ours"):
            return "WRONG"
        if self.missing is not None:
            return "missing"
        if self.row.bar is None:
            return "–"
        figure, bar = median(self.figures), self.row.bar
        met = figure >= bar if self.row.judged == "times" else figure <= bar
        return "yes" if met else "no"

    def cells(self) -> tuple[str, ...]:
        """Return the line of the table, as HEAD names its columns."""
        row = self.row
        if row.bar is None:
            bar = "–"
        elif row.is_absolute:
            bar = _amount(row.bar, row.unit)
        else:
            bar = f"{'≥ ' if row.judged == 'times' else ''}{row.bar:g}"
        without = self.failure or self.missing
        if without is not None:
            return (row.title, without, row.peer, "", "", bar, self.verdict, "")
        ours, theirs = self.values("ours"), self.values("peer")
        figures = self.figures
        if row.is_absolute:
            spread = f"{_amount(min(figures), row.unit)} – {_amount(max(figures), row.unit)}"
            ratio = ""
        else:
            spread = f"{min(figures):.3g} – {max(figures):.3g}"
            ratio = f"{median(figures):.3g}"
        peer, faults = "", f"{self.faults('ours'):,}"
        if theirs and row.peer:
            peer = f"{_amount(median(theirs), row.unit)} {row.peer}"
            faults += f" / {self.faults('peer'):,}"
        mine = _amount(median(ours), row.unit)
        return (row.title, mine, peer, ratio, spread, bar, self.verdict, faults)


def tables(results: Sequence[Result]) -> str:
    """Return all tables of a run, each under its heading."""
    return "\n\n".join(f"{name}\n\n{table(part)}" for name, part in parted(results))


def parted(results: Sequence[Result]) -> list[tuple[str, list[Result]]]:
    """Return the results of each table, in the order of the rows."""
    names = dict.fromkeys(result.row.table for result in results)
    return [(name, [one for one in results if one.row.table == name]) for name in names]


def table(results: Sequence[Result]) -> str:
    """Return a table with its columns aligned for a terminal."""
    lines = [HEAD, *(result.cells() for result in results)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    rule = tuple("-" * width for width in widths)
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (HEAD, rule, *lines[1:])
    )


def remarks(results: Sequence[Result]) -> list[str]:
    """Return the facts that a reader must know beside the table, a sentence each."""
    said = []
    there = [result for result in results if not (result.failure or result.missing)]
    repeats = sorted({len(result.figures) for result in there})
    if repeats:
        count = " to ".join(map(str, dict.fromkeys((repeats[0], repeats[-1]))))
        said.append(
            f"Ratio: ours ÷ peer within each of {count} pairs taken side by side; median, min, max."
        )
    if any(result.row.judged == "times" for result in results):
        said.append(
            "Where the bar is a floor (≥) it is peer ÷ ours: how many times less ours takes."
        )
    noisy = [result for result in results if (result.others or 0) > NOISY]
    if noisy:
        most = max(result.others or 0 for result in noisy)
        said.append(
            f"NOISY: other processes used up to {most:.0%} of the machine during {len(noisy)} of "
            f"{len(results)} rows; take the figures again when it is idle."
        )
    waited = [result.row.name for result in results if _waited(result)]
    if waited:
        said.append(
            "Ours was not busy all the time, so the load is the limit and not the server: "
            f"{', '.join(waited)}."
        )
    unmet = [result.row.name for result in results if result.verdict == "no"]
    said.append(f"Bars missed: {', '.join(unmet)}." if unmet else "No bar missed.")
    lacking = dict.fromkeys(result.missing for result in results if result.missing)
    if lacking:
        said.append(f"Peers that could not be had: {'; '.join(map(str, lacking))}.")
    bad = [result.row.name for result in results if result.verdict in ("WRONG", "failed")]
    if bad:
        said.append(f"Wrong or failed: {', '.join(bad)}.")
    return said


def write(folder: Path, results: Sequence[Result], machine: dict[str, Any], seconds: float) -> None:
    """Write samples.jsonl, machine.json and summary.md; what stood there before is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "samples.jsonl").open("w") as lines:
        written = set()
        for result in results:
            # Rows that share samples have them once, under the name of the row that took them.
            source = result.row.source
            if source in written:
                continue
            written.add(source)
            for sample in result.samples:
                line = {"row": source, "unit": result.row.unit} | sample
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
        f"key-message-channel {machine['key-message-channel']}, Redis {machine['redis']}, "
        f"{machine['rust']}.",
    ]
    for name, part in parted(results):
        lines += ["", f"## {name}", ""]
        lines.append("| " + " | ".join((*HEAD[:6], "prototype", *HEAD[6:])) + " |")
        lines.append("|" + "---|" * (len(HEAD) + 1))
        for result in part:
            prototype = f"{result.row.prototype:g}" if result.row.prototype else "–"
            cells = result.cells()
            lines.append("| " + " | ".join((*cells[:6], prototype, *cells[6:])) + " |")
        lines += ["", *(f"- {said}" for said in remarks(part))]
    return "\n".join(lines) + "\n"


def _waited(result: Result) -> bool:
    """Return whether the server of ours had time left in a row about its throughput."""
    if result.failure or result.row.judged != "times" or result.row.figure != "value":
        return False
    shares = [one.get("server_busy") for one in result.samples if one["side"] == "ours"]
    known = [share for share in shares if share is not None]
    return bool(known) and median(known) < BUSY


def _amount(value: float, unit: Unit) -> str:
    number = f"{value:,.0f}" if value >= 100 or unit == "B" else f"{value:.3g}"
    return f"{number} {unit}"
