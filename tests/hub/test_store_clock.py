"""Stores of a hub whose clock is set, by a library that stands in for the system's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from interlock.hub.client import Client
from tests.hub.servers import hub_process, missing

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


class SetClock:
    """A clock that people set; what is measured from a moment on goes on as it did."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "clock"
        self.environment = {
            "LD_PRELOAD": str(LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "TZ": "UTC",
        }

    def set(self, moment: str) -> None:
        following = self.file.with_suffix(".next")
        following.write_text(f"@{moment}\n")
        os.replace(following, self.file)


@pytest.fixture
def clock(tmp_path: Path) -> SetClock:
    if not LIBRARIES:
        missing("no libfaketime: install the package faketime")
    return SetClock(tmp_path)


def test_a_hub_that_runs_over_midnight_begins_the_file_of_the_day(
    clock: SetClock, tmp_path: Path
) -> None:
    config = tmp_path / "hub.toml"
    config.write_text(
        '[[store]]\nname = "days"\nkind = "file"\ntopics = ["*"]\nack = "disk"\n'
        f'path = "{tmp_path}/kept/[topic]-[date].log"\n'
    )
    clock.set("2026-03-01 23:59:50")
    with hub_process("--config", str(config), environment=clock.environment) as hub:
        client = Client(f"interlock://127.0.0.1:{hub.port}")
        client.publish("topic", "before midnight")
        clock.set("2026-03-02 00:00:05")
        client.publish("topic", "after it")
        # Those who read on must not find new messages before the ones they had.
        clock.set("2026-03-01 23:00:00")
        client.publish("topic", "set back")
        client.close()
    kept = {path.name: path.read_text() for path in (tmp_path / "kept").glob("*.log")}
    assert kept == {
        "topic-2026-03-01.log": "before midnight\n",
        "topic-2026-03-02.log": "after it\nset back\n",
    }
