"""Stores of a hub at midnight."""

from __future__ import annotations

from pathlib import Path

from interlock.hub.client import Client
from tests.hub.operating.clocks import SetClock
from tests.hub.servers import hub_process


def test_a_hub_that_runs_over_midnight_begins_the_file_of_the_day(tmp_path: Path) -> None:
    clock = SetClock(tmp_path)
    config = tmp_path / "hub.toml"
    config.write_text(
        '[[store]]\nname = "days"\nkind = "file"\ntopics = ["*"]\nack = "disk"\n'
        f'path = "{tmp_path}/kept/[topic]-[date].log"\n'
    )
    clock.set_to("2026-03-01 23:59:30")
    with hub_process("--config", str(config), environment=clock.environment) as hub:
        client = Client(f"interlock://127.0.0.1:{hub.port}")
        client.publish("topic", "before midnight")
        # Half a minute passes quickly: in steps so small that none is a jump.
        for _ in range(90):
            clock.set(clock.ahead + 0.4)
            client.call("TIME")
        client.publish("topic", "after it")
        # Readers that continue must not find new messages before the ones they had.
        clock.set(clock.ahead - 3600)
        client.publish("topic", "set back")
        client.close()
    kept = {path.name: path.read_text() for path in (tmp_path / "kept").glob("*.log")}
    assert kept == {
        "topic-2026-03-01.log": "before midnight\n",
        "topic-2026-03-02.log": "after it\nset back\n",
    }
