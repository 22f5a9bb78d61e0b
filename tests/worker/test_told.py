"""What a worker says of what it does: its log, and what it answers when it is asked."""

from __future__ import annotations

import logging

import pytest

from interlock.app import App
from tests.worker.test_worker import drained

pytestmark = pytest.mark.parametrize("engine", ["memory", "redis", "hub"], indirect=True)


def test_each_handled_message_is_said_with_its_task_but_quiet_ones(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(keys="{n}")
    def charge(n: int) -> None: ...

    @app.task(quiet=True)
    def heartbeat() -> None: ...

    with caplog.at_level(logging.DEBUG, "interlock.queue"), app.worker(threads=2):
        said = [charge.send(1).id, heartbeat.options(quiet=False).send().id]
        charge.options(quiet=True).send(1)
        heartbeat.send()
        drained(app)
    records = [record for record in caplog.records if "handled" in vars(record)]
    assert sorted(vars(record)["id"] for record in records) == said
    first = vars(next(record for record in records if vars(record)["id"] == said[0]))
    assert (first["task"], first["keys"], first["attempt"]) == ("charge", ["1"], 1)
    assert first["waited"] >= 0 and first["handled"] >= 0 and first["token"] > 0
    assert f"message {said[0]} (charge) [1] waited " in first["message"]
