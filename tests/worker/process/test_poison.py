"""A message that ends its process among innocent ones (clauses 9 and 10), by kill -9."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from interlock import Retry, connect
from interlock.app import App
from interlock.worker.loop import lease_plan
from interlock.worker.message.source import SourceState
from tests.worker.apps import lethal
from tests.worker.workers import PATIENCE, ROOT

LIVES = 3
"""In company, alone, and then for the innocent ones."""
KINDS = ["poison", *["innocent"] * (lethal.TOGETHER - 1)]
WORKER = [
    sys.executable,
    "-m",
    "interlock",
    "worker",
    "tests.worker.apps.lethal:app",
    "--lease",
    "1",
]
COMMANDS = {
    "thread": [*WORKER, "--concurrency", str(lethal.TOGETHER)],
    "asyncio": [*WORKER, "--concurrency", str(lethal.TOGETHER), "--pool", "asyncio"],
    "quick": [*WORKER, "--concurrency", "1"],
    "consume": [sys.executable, "-m", "tests.worker.apps.lethal"],
}


@pytest.mark.share(2)
@pytest.mark.watchdog(120)
@pytest.mark.parametrize(
    ("engine", "how"),
    [("redis", "thread"), ("hub", "asyncio"), ("redis", "consume"), ("hub", "quick")],
    indirect=["engine"],
)
def test_only_the_message_that_kills_its_process_is_charged_an_attempt(
    url: str, how: str, tmp_path: Path
) -> None:
    settings = {"LETHAL_MARK": str(tmp_path / "mark"), "LETHAL_HOW": how}
    with connect(url) as client:
        queue = client.queue("default", retry=Retry(attempts=1))
        queue.stats()
        if how == "consume":
            poison = queue.put_many(KINDS)[0]
        else:
            lethal.app.url = url
            task = lethal.acall if how == "asyncio" else lethal.call
            poison = min(task.send(kind).id for kind in KINDS)
            lethal.app.close()
        lives, until = 0, time.monotonic() + PATIENCE
        while queue.stats().unsettled:
            environment = {**os.environ, **settings}
            with subprocess.Popen(COMMANDS[how], cwd=ROOT, env=environment) as process:
                lives += 1
                while process.poll() is None and queue.stats().unsettled:
                    assert time.monotonic() < until
                    time.sleep(0.02)
                process.kill()
        stats = queue.stats()
        assert (stats.unsettled, stats.acks, stats.retries) == (0, lethal.TOGETHER - 1, 0)
        (letter,) = queue.dead_letters()
        assert (letter.id, letter.attempts, letter.error) == (poison, 1, "lease expired")
        assert lives == LIVES


@pytest.mark.parametrize("pool", ["thread", "asyncio"])
@pytest.mark.parametrize("engine", ["redis", "hub"], indirect=True)
def test_no_queue_is_leased_from_until_a_suspect_is_settled(
    url: str, pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The suspect waits until no call waits for work.
    monkeypatch.setattr(lease_plan, "LONGEST_WAIT", 1.0)
    app, seen, done = App(url), [], threading.Event()

    @app.task(queue="first")
    def suspect() -> None:
        other.send()
        for _ in range(20):
            seen.append(second.stats().leases)

    @app.task(queue="second")
    def other() -> None:
        seen.append(first.stats().unsettled)
        done.set()

    first, second = app._queue("first"), app._queue("second")
    suspect.send()
    dead = connect(url)
    lease = dead.queue("first").get()
    lease.stop_renewing()
    with app.worker(pool=pool, threads=3) as worker:
        while any(each.state is not SourceState.WAITING for each in worker._owner.state.sources):
            assert worker.broken is None
        lease.extend(0.001)
        assert done.wait(PATIENCE), worker.broken
    assert seen == [0] * 21
    app.close()
    dead.close()
