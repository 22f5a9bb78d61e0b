"""The summary of many random schedules that is kept."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.engine.kept_runs import one_run, redis_version

SUMMARY = Path(__file__).parents[1] / "SCHEDULES.md"
COUNTED = {
    "puts": "messages put",
    "deduplicated": "puts of what was known already",
    "leases": "messages leased",
    "acks": "acknowledged",
    "retries": "failed, to be tried again",
    "releases": "released",
    "leases_expired": "leases that ran out",
    "revoked": "leases revoked",
    "dead_lettered": "messages that became dead letters",
    "requeued": "dead letters put again",
    "cancelled": "messages cancelled",
    "skipped": "messages skipped",
    "LEASELOST": "settlements and extensions of a lease that was lost",
    "events told": "events told to who watched",
    "again": "calls sent again and answered as before",
}
REFUSED = ("BADARG", "STALECALL", "FULL", "TOOBIG", "SEALED", "OPTIONSMISMATCH")


def summary(tally: Counter[str], command: str, seed: int, seconds: float) -> str:
    calls = sorted(name for name in tally if name.startswith("il1_"))
    return f"""# Random schedules

{one_run(command, seed, seconds)}:
{tally["calls"]:,} random calls of the naive model, of a hub and of redis-server {redis_version()},
in which all three gave the same reply to each. What may differ between the servers is `LISTED` in
[forms.py](schedules/forms.py). The tests run a part of it, with a new seed.

| calls | |
|---|---|
{_rows({name: name for name in calls}, tally)}
| what came of them, by the model | |
|---|---|
{_rows(COUNTED, tally)}
| refused | |
|---|---|
{_rows({code: code for code in REFUSED}, tally)}"""


def _rows(named: dict[str, str], tally: Counter[str]) -> str:
    return "".join(f"| {text} | {tally[name]:,} |\n" for name, text in named.items())
