"""Scenarios of faults for a hub, how often in the tests, and how often in a full run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.hub.faults import abuse, churn, exhausted, interrupted, restarted, wire_fuzz


@dataclass(frozen=True)
class Scenario:
    """`run` takes a seed, a count and an empty folder. It raises, or tells figures."""

    title: str
    run: Callable[[int, int, Path], dict[str, object]]
    share: int
    full: int


SCENARIOS = {
    "wire": Scenario("Random requests to the hub and to Redis", wire_fuzz.run, 60_000, 5_000_000),
    "churn": Scenario("Connections opened and dropped", churn.run, 5_000, 100_000),
    "abuse": Scenario("Halves, giants, trickles, noise, TLS", abuse.run, 100, 500),
    "interrupted": Scenario("Peers stopped and killed", interrupted.run, 3_000, 100_000),
    "exhausted": Scenario("No descriptor left", exhausted.run, 20, 200),
    "restarted": Scenario("Killed and started again", restarted.run, 3, 50),
}
