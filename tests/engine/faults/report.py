"""The summary of many runs that is kept."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.engine.kept_runs import one_run, redis_version

SUMMARY = Path(__file__).parents[1] / "CRASHES.md"
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
    "puts answered": "of these answered to a process that lived on",
    "beyond the lease worker": "of these stops of workers beyond the lease",
    "beyond the lease producer": "of producers",
    "beyond the lease server": "of servers",
    "kill worker": "workers killed",
    "kill producer": "producers killed",
    "kill server": "servers killed",
    "stop worker": "workers stopped",
    "stop producer": "producers stopped",
    "stop server": "servers stopped",
    "grants": "messages handed out, again included",
    "settled acked": "settlements answered: acknowledged",
    "settled retried": "nacked",
    "settled released": "released",
    "settled lost": "refused, for the lease was lost",
    "settled unknown": "settlements never answered",
}


def summary(counts: dict[str, Counter[str]], seed: int, seconds: float) -> str:
    rows = "".join(
        f"| {NAMED.get(row, row)} | " + " | ".join(f"{counts[e][row]:,}" for e in counts) + " |\n"
        for row in ROWS
    )
    return f"""{head(seed, seconds)}
| | {" | ".join(counts)} |
|---|{"---|" * len(counts)}
{rows}"""


def head(seed: int, seconds: float) -> str:
    return f"""# Queues under crashes

{one_run("python -m tests.engine.faults --write", seed, seconds)}:
the hub with a journal (`always`), redis-server {redis_version()} with `appendonly yes` and
`appendfsync always`. Three workers and two producers move money between eight accounts while they
and the server are killed (`kill -9`) and stopped (`SIGSTOP`) at random; what is then checked stands
in [checks.py](faults/checks.py). The tests run a few, with a new seed.
"""
