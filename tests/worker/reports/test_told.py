"""A worker's words about what it does: its log, and what it answers when it is asked."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from interlock.app import App
from interlock.worker.worker import Worker
from tests.worker.loop.test_worker import drained
from tests.worker.workers import OURS, wait_for

pytestmark = pytest.mark.parametrize("engine", ["memory", "redis", "hub"], indirect=True)


def test_each_handled_message_is_logged_with_its_task_unless_quiet(
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


@pytest.mark.parametrize("pool", ["thread", "asyncio"])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_stack_begins_with_the_handler(app: App, pool: str, threads: int) -> None:
    gate = threading.Event()

    @app.task
    def charge() -> None:
        gate.wait(30)

    @app.task
    async def awaited() -> None:
        while not gate.is_set():
            await asyncio.sleep(0.001)

    for task, first in ((charge, "in charge"), (awaited, "in awaited")):
        gate.clear()
        with app.worker(threads=threads, pool=pool) as worker:
            task.send()
            # A coroutine function has begun a moment before it has a task.
            wait_for(lambda: first in stack_of_the_one(worker), "not there")  # noqa: B023
            stack = stack_of_the_one(worker)
            gate.set()
            drained(app)
        assert first in stack.splitlines()[0]
        assert OURS not in stack and "bootstrap" not in stack


def stack_of_the_one(worker: Worker) -> str:
    found = [entry["stack"] for entry in worker.stacks()]
    return str(found[0]) if found else ""
