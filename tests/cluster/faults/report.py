"""The summary of many runs that is kept."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from tests.cluster.faults.chaos import KINDS
from tests.engine.faults.report import Taken
from tests.engine.kept_runs import ROOT

SUMMARY = ROOT / "tests" / "cluster" / "FAULTS.md"
ROWS = (
    "runs",
    "runs with a violation",
    *KINDS,
    "writes",
    "writes failed",
    "writes unknown",
    "reads",
    "reads failed",
    "terms of primaries",
    "changes in entries that did not count",
)
NAMED = {
    "cut from engine": "nodes cut from their engine, in one or both directions",
    "nodes cut": "nodes cut from each other",
    "isolated": "nodes cut from everything",
    "centres parted": "data centres cut from each other",
    "loss": "5 to 45 % of packets lost, of a node or an engine",
    "delay": "up to 0.6 s of delay between data centres",
    "clock": "clocks set wrong, by up to 4 s",
    "kill": "nodes killed (-9) and started again",
    "kill primary": "primaries killed, also where an engine loses its end",
    "terminate": "nodes asked to end and started again",
    "kill all": "all nodes of a data centre killed at once",
    "stop": "nodes stopped (SIGSTOP)",
    "stop primary": "primaries stopped beyond their lease",
    "late stream": "primaries that lost their lease while what they appended was late",
    "full disk": "disks of nodes full",
    "engine full": "disks of engines full",
    "failover": "failovers asked for",
    "resync": "snapshots asked for",
    "engine emptied": "engines killed and started again with nothing",
    "engine killed": "engines killed and started again",
    "engine stopped": "engines stopped",
    "engine alone": "engines cut from everything",
    "promote": "replicas of engines promoted, which lacked what came last",
    "writes": "writes",
    "writes failed": "of these surely not done",
    "writes unknown": "of these with an unknown outcome",
    "reads failed": "of these refused or not answered",
}


def added(text: str, taken: Taken, counts: Mapping[str, int]) -> str:
    """The summary with more runs in it: a line that says where they are from, and their figures in
    the sums. `text` is what it was, or nothing."""
    lines = text.splitlines()
    listed = [line for line in lines if re.match(r"\| \d{4}-", line)]
    sums = Counter[str]()
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 2 and cells[0] in ROW_OF:
            sums[ROW_OF[cells[0]]] = int(cells[1].replace(",", ""))
    sums.update({row: counts.get(row, 0) for row in ROWS})
    of = [taken.date, taken.commit, str(taken.seed), str(counts.get("runs", 0))]
    of += [str(counts.get("runs with a violation", 0)), str(taken.minutes), taken.machine]
    listed.append("| " + " | ".join(of) + " |")
    return "\n".join(
        [
            HEAD,
            "| date | commit | first seed | runs | with a violation | minutes | machine |",
            "|---|---|---|---|---|---|---|",
            *listed,
            "",
            "| all of these | |",
            "|---|---|",
            *(f"| {NAMED.get(row, row)} | {sums[row]:,} |" for row in ROWS),
            "",
        ]
    )


ROW_OF = {NAMED.get(row, row): row for row in ROWS}
HEAD = """# Clusters under faults

The runs of `python -m tests.cluster.faults.runs --write`, each of which adds a line and its
figures. One or two data centres, each with a Redis or Valkey and one to three nodes, every one of
them in a network namespace of its own, under the load of six writers and a reader at each node,
while faults come and go at random. What is then checked stands in
[checker.py](faults/checker.py): an acknowledged write survives, a reader of one node never goes
back in time, what was refused is never seen, sums are exact, and all nodes of all data centres have
the same rows. The tests run a few, with a new seed.
"""
