"""The summary of many random schedules that is kept."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.engine.storage.kept_runs import one_run, redis_version

SUMMARY = Path(__file__).parents[1] / "SCHEDULES.md"
COUNTED = {
    "puts": "messages put",
    "deduplicated": "puts of a known dedup string",
    "leases": "messages leased",
    "acks": "acknowledged",
    "retries": "failed, to be retried",
    "releases": "released",
    "leases_expired": "leases that expired",
    "revoked": "leases revoked",
    "dead_lettered": "messages that became dead letters",
    "requeued": "dead letters put again",
    "cancelled": "messages cancelled",
    "skipped": "messages skipped",
    "LEASELOST": "settlements and extensions of a lost lease",
    "events told": "events sent to watchers",
    "again": "calls sent again and answered as before",
}
REFUSED = ("BADARG", "STALECALL", "FULL", "TOOBIG", "SEALED", "UNKNOWN", "OPTIONSMISMATCH")


def summary(tally: Counter[str], command: str, seed: int, seconds: float) -> str:
    calls = sorted(name for name in tally if name.startswith("il1_"))
    return f"""# Random schedules

{one_run(command, seed, seconds)}:
{tally["calls"]:,} random calls of the naive model, of a hub and of redis-server {redis_version()},
in which all three gave the same reply. `LISTED` in [forms.py](schedules/forms.py) names what may
differ between the servers. The test suite runs fewer calls, with a new seed.

| calls | |
|---|---|
{_rows({name: name for name in calls}, tally)}
| results, by the model | |
|---|---|
{_rows(COUNTED, tally)}
| refused | |
|---|---|
{_rows({code: code for code in REFUSED}, tally)}"""


def _rows(named: dict[str, str], tally: Counter[str]) -> str:
    return "".join(f"| {text} | {tally[name]:,} |\n" for name, text in named.items())
