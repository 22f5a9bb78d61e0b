"""Figures of a node, without a node."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from interlock import _core
from interlock.cluster import figures
from interlock.cluster.figures import NodeFigures
from interlock.cluster.rules import state_rules
from interlock.cluster.settings import NodeSettings
from tests.cluster.nodes import Presence


def figures_of() -> NodeFigures:
    settings = NodeSettings(table="t", row=Presence, cluster="redis://127.0.0.1:1", name="a")
    rules = state_rules(Presence, tombstone_age=60.0)
    return NodeFigures(settings, rules, lambda: "", lambda: None, list)


def test_a_node_whose_lost_entries_are_not_back_is_read_only() -> None:
    found: dict[str, Any] = {"serves": True, "at_end": True, "trouble": []}
    assert figures_of().state(found) == "serving"
    found["trouble"] = [("lost", "entries that the log has lost are not back yet", 0)]
    assert figures_of().state(found) == "read-only"


def test_a_clock_that_is_set_right_is_no_trouble_before_the_next_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = figures_of()
    ahead = 0.0
    clock = SimpleNamespace(
        time=lambda: time.time() + ahead,
        monotonic=time.monotonic,
        clock_gettime=time.clock_gettime,
        CLOCK_BOOTTIME=time.CLOCK_BOOTTIME,
    )
    monkeypatch.setattr(figures, "time", clock)
    found: dict[str, Any] = {
        "position": 1, "rows_checksum": 0, "log_checksum": 0, "log_time": time.time() * 1000,
        "at_end": True, "serves": True, "behind": 0.0, "keepers": [], "cut": None, "trouble": [],
    }  # fmt: skip
    node.node = cast(_core.LogNode, SimpleNamespace(figures=lambda: found))

    def troubles() -> list[str]:
        return [one["kind"] for one in node.trouble(node.look())]

    assert troubles() == []
    # The log is far ahead of the machine: seen at the next entry.
    found.update(position=2, log_time=(time.time() + 30) * 1000)
    assert troubles() == ["clock"]
    assert troubles() == ["clock"], "it lasts as long as the clock is wrong"
    ahead = 30.0
    assert troubles() == []
    ahead = 90.0
    assert troubles() == ["clock"], "a clock that is set wrong is seen at once"
