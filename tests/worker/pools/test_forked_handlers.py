"""Handlers that fork, and return or raise in the child too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.app import App
from tests.worker.apps import forked
from tests.worker.workers import PATIENCE, Workers, wait_for

APP = "tests.worker.apps.forked:app"
QUICK = 100
"""Messages before each that forks, so that a thread handles it in a batch."""


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "notes"
    monkeypatch.setenv("FORKED", str(path))
    return path


@pytest.fixture
def app(url: str) -> Iterator[App]:
    forked.app.close()
    forked.app.url = url
    yield forked.app
    forked.app.close()


@pytest.mark.parametrize("task", forked.TASKS)
@pytest.mark.parametrize("pool", ["thread", "asyncio", "process"])
def test_a_child_forked_in_a_handler_exits_there_and_the_parent_settles_the_message(
    app: App, workers: Workers, notes: Path, pool: str, task: str
) -> None:
    queue = app._queue("default")
    # One more than there are ways: what comes behind a fork is handled too, and once.
    ways = [*forked.CODES, "returns"]
    for how in ways:
        for _ in range(QUICK):
            forked.quick.send()
        forked.TASKS[task](how)
    worker = workers.start("--pool", pool, "--concurrency", "1", app=APP)
    queue.join(PATIENCE)
    lines = [line.split() for line in notes.read_text().splitlines()]
    assert [(how, int(code)) for how, code in lines] == [(how, forked.CODES[how]) for how in ways]
    stats = queue.stats()
    assert (stats.acks, stats.retries, stats.dead) == (len(ways) * (QUICK + 1), 0, 0)
    assert worker.stopped() == 0, worker.output
    assert worker.output.count("ValueError: of the child") == 1
    assert worker.output.count("the child is here") == len(ways)


def test_a_surviving_child_does_not_hide_the_death_of_its_pool_process(
    app: App, workers: Workers, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds = tmp_path / "holds"
    os.mkfifo(holds)
    monkeypatch.setenv("FORKED_HOLDS", str(holds))
    queue = app._queue("default")
    forked.leave_a_child.send()
    workers.start("--pool", "process", "--concurrency", "1", app=APP)
    with open(holds, "w"):
        wait_for(lambda: queue.stats().dead == 1, "its end is not noticed")
    assert "SIGKILL" in queue.dead_letters(1)[0].error
