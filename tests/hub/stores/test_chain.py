"""Agent and server under kills, stops and cuts: what was acknowledged arrives, once, in order."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.hub.servers import needs_hub
from tests.hub.stores.chain import Chain, Tally
from tests.seeds import seed

RUNS = int(os.environ.get("INTERLOCK_CHAIN", "8"))
"""Number of things that are done to it; tests/hub/STORES.md has what came of 1,000."""

SECONDS = float(os.environ.get("INTERLOCK_CHAIN_SECONDS", "inf"))
# Of one chain, in one folder.
LENGTH = 25


@pytest.mark.watchdog(120 + RUNS * 5)
def test_what_an_agent_acknowledged_is_with_its_server_once_and_in_order(tmp_path: Path) -> None:
    needs_hub()
    first, began, total, done = seed(), time.monotonic(), Tally(), 0
    while done < RUNS and time.monotonic() - began < SECONDS:
        count = min(LENGTH, RUNS - done)
        total.add(Chain(tmp_path / str(done), first + done).run(count))
        done += count
    print(f"{done} runs in {time.monotonic() - began:.0f} s, seed {first}: {total}")
    assert total.acknowledged > 0
