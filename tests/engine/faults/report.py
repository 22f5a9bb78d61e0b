"""The summary of many runs that is kept."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from tests.engine.faults.servers import ENGINES
from tests.engine.storage.kept_runs import ROOT, machine, one_run

SUMMARY = ROOT / "tests" / "engine" / "CRASHES.md"
ROWS = (
    "runs",
    "runs with a violation",
    "kill worker",
    "kill producer",
    "kill server",
    "stop worker",
    "stop producer",
    "stop server",
    "beyond the lease worker",
    "beyond the lease producer",
    "beyond the lease server",
    "puts",
    "puts answered",
    "messages handled",
    "messages granted more than once",
    "grants",
    "settled acked",
    "settled retried",
    "settled released",
    "settled lost",
    "settled unknown",
)
NAMED = {
    "puts": "puts begun",
    "puts answered": "of these answered to a process that survived",
    "beyond the lease worker": "of these stops of workers beyond the lease",
    "beyond the lease producer": "of producers",
    "beyond the lease server": "of servers",
    "kill worker": "workers killed",
    "kill producer": "producers killed",
    "kill server": "servers killed",
    "stop worker": "workers stopped",
    "stop producer": "producers stopped",
    "stop server": "servers stopped",
    "grants": "messages leased, including repeated leases",
    "settled acked": "settlements answered: acknowledged",
    "settled retried": "nacked",
    "settled released": "released",
    "settled lost": "refused, because the lease was lost",
    "settled unknown": "settlements never answered",
}


@dataclass(frozen=True)
class Taken:
    """The time and place of runs; a line of the first table."""

    date: str
    commit: str
    seed: int
    minutes: int
    machine: str

    @classmethod
    def now(cls, seed: int, seconds: float) -> Taken:
        """Of runs that end here and now."""
        commit = subprocess.run(
            ["git", "describe", "--always", "--dirty=, changed"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        date = f"{datetime.now(UTC):%Y-%m-%d}"
        return cls(date, commit, seed, round(seconds / 60), machine())


def added(text: str, taken: Taken, counts: Mapping[str, Mapping[str, int]]) -> str:
    """The summary with more runs in it: a line that says where they are from, and their figures in
    the sums. `text` is what it was, or nothing."""
    text, heading, poison = text.partition(POISONED)
    lines = text.splitlines()
    listed = [line for line in lines if re.match(r"\| \d{4}-", line)]
    begun = {engine: Counter[str]() for engine in ENGINES}
    for line in lines:
        name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        if name in ROW_OF:
            for engine, cell in zip(ENGINES, cells, strict=True):
                begun[engine][ROW_OF[name]] = int(cell.replace(",", ""))
    runs = [counts.get(engine, {}).get("runs", 0) for engine in ENGINES]
    of = [taken.date, taken.commit, str(taken.seed), *map(str, runs)]
    listed.append("| " + " | ".join([*of, str(taken.minutes), taken.machine]) + " |")
    for engine, figures in counts.items():
        begun[engine].update(figures)
    sums = (
        f"| {NAMED.get(row, row)} | " + " | ".join(f"{begun[e][row]:,}" for e in ENGINES) + " |"
        for row in ROWS
    )
    named = " | ".join(ENGINES)
    return "\n".join(
        [
            HEAD,
            f"| date | commit | first seed | {named} | minutes | machine |",
            f"|---|---|---|{'---|' * len(ENGINES)}---|---|",
            *listed,
            "",
            f"| all of these | {named} |",
            f"|---|{'---|' * len(ENGINES)}",
            *sums,
            "",
        ]
    ) + (f"\n{heading}{poison}" if heading else "")


def poisoned(text: str, seed: int, minutes: float, counts: Mapping[str, Mapping[str, int]]) -> str:
    """The summary with the figures of poison runs in place of those before, by engine and pool."""
    rows = (
        f"| {row} | " + " | ".join(f"{counts[name].get(row, 0):,}" for name in counts) + " |"
        for row in POISON_ROWS
    )
    names = " | ".join(counts)
    command = "python -m tests.engine.faults.poison --write"
    return (
        text.partition(POISONED)[0].rstrip("\n")
        + "\n"
        + "\n".join(
            [
                "",
                POISONED,
                "",
                one_run(command, seed, minutes * 60) + ":",
                POISON_HEAD,
                f"| {names} |".replace("| ", "| | ", 1),
                "|---|" + "---|" * len(counts),
                *rows,
                "",
            ]
        )
    )


ROW_OF = {NAMED.get(row, row): row for row in ROWS}
HEAD = """# Queues under crashes

Results of `python -m tests.engine.faults --write`; each call adds a line and its figures. The
servers are the hub with a journal (`always`), and redis-server 7.0.15 with `appendonly yes` and
`appendfsync always`. Three workers and two producers move money between eight accounts while they
and the server are killed (`kill -9`) and stopped (`SIGSTOP`) at random.
[checks.py](faults/checks.py) then checks the result. The test suite makes a few runs, with a new
seed.
"""
POISONED = "## Poison among innocent messages"
POISON_ROWS = (
    "runs",
    "runs with a violation",
    "messages",
    "poison messages dead",
    "ended by poison",
    "killed from outside",
    "innocent messages begun again",
    "innocent messages charged",
)
POISON_HEAD = """
60 messages with two keys each, 4 of which end their process, on two workers. In half of the runs
workers and children of their pools are killed from outside too; each such kill may charge one
innocent message. [poison.py](faults/poison.py) checks the result.
"""
