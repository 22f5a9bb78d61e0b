"""Brief handlers in the pools: messages are leased ahead and settled together, and nothing else
changes."""

from __future__ import annotations

import random
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock.app import App
from interlock.client.faces import handler_time
from interlock.worker import worker as worker_module
from interlock.worker.loop import owner
from interlock.worker.pools import process_pool
from tests.worker.apps import brief
from tests.worker.workers import wait_for

pytestmark = pytest.mark.parametrize("engine", ["memory"], indirect=True)
POOLS = pytest.mark.parametrize("pool", ["thread", "asyncio", "process"])
ATTEMPTS = {"": 1, "once": 2, "fails": 3, "reject": 1, "later": 2}
"""Handlers that begin, by what the message does."""


@pytest.fixture
def app(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    monkeypatch.setenv("BRIEF_FOLDER", str(tmp_path))
    monkeypatch.setattr(handler_time, "QUICK", 0.0)
    brief.app.close()
    brief.app.url = url
    yield brief.app
    brief.app.close()


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every handler is brief, however slow this machine is."""
    monkeypatch.setattr(handler_time, "BRIEF", 60.0)
    monkeypatch.setattr(handler_time, "LONGEST_BATCH", 0.1)


def events(folder: Path) -> list[tuple[str, str, int, int]]:
    """Returns what handlers noted: begun or ended, key, number, attempt."""
    file = folder / "events"
    lines = file.read_text().splitlines() if file.exists() else []
    words = [line.split() for line in lines]
    return [(what, key, int(number), int(attempt)) for what, key, number, attempt in words]


def send(pool: str, messages: list[tuple[str, int, str]]) -> Any:
    task: Any = brief.ahandle if pool == "asyncio" else brief.handle
    for message in messages:
        task.send(*message)
    return brief.app._queue("default")


@POOLS
@pytest.mark.parametrize("seed", [1, 2])
def test_random_outcomes_and_stops_are_the_same_when_messages_are_leased_ahead(
    app: App, tmp_path: Path, ahead: None, pool: str, seed: int
) -> None:
    chance = random.Random(seed)
    kinds = ["", "", "", *ATTEMPTS]
    messages = [(f"k{chance.randrange(12)}", n, chance.choice(kinds)) for n in range(150)]
    queue = send(pool, messages)
    for stop_at in (chance.randrange(60), None):
        worker = app.worker(pool=pool, threads=3).start()

        def enough(until: int | None = stop_at) -> bool:
            if until is None:
                return bool(queue.stats().unsettled == 0)
            return len(events(tmp_path)) >= until

        wait_for(enough, "the messages are not handled")
        assert worker.stop()
    found = events(tmp_path)
    for key, number, how in messages:
        count = sum(one[0] == "begun" and one[2] == number for one in found)
        assert count == ATTEMPTS[how], (key, number, how)
    running: dict[str, int] = {}
    for what, key, number, _ in found:
        assert running.get(key) == (None if what == "begun" else number), "two of a key overlap"
        running[key] = number
        if what == "ended":
            del running[key]
    for key in {key for key, *_ in messages}:
        order = [one[2] for one in found if one[0] == "begun" and one[1] == key]
        assert order == sorted(order), "a message of a key overtook another"
    assert not (tmp_path / "leaked").exists(), "a context variable of one message reached another"
    dead = sum(how in ("fails", "reject") for _, _, how in messages)
    assert len(list(queue.dead_letters())) == dead


@POOLS
def test_messages_leased_behind_a_slow_handler_are_handled_meanwhile(
    app: App, tmp_path: Path, ahead: None, pool: str
) -> None:
    how = "" if pool == "asyncio" else "slow"
    queue = send(pool, [(f"k{n}", n, how if n == 10 else "") for n in range(60)])
    with app.worker(pool=pool, threads=2):
        rest = 0 if pool == "asyncio" else 1
        wait_for(lambda: bool(queue.stats().unsettled == rest), "they wait behind the slow one")
        (tmp_path / "gate").touch()
        wait_for(lambda: bool(queue.stats().unsettled == 0), "the slow one does not end")


def test_messages_sent_to_a_process_that_dies_are_handled_by_others_at_the_same_attempt(
    app: App, tmp_path: Path, ahead: None
) -> None:
    queue = send("process", [(f"k{n}", n, "die" if n % 20 == 3 else "") for n in range(60)])
    with app.worker(pool="process", threads=2):
        wait_for(lambda: bool(queue.stats().unsettled == 0), "the messages are not handled")
    begun = [(number, attempt) for what, _, number, attempt in events(tmp_path) if what == "begun"]
    expected = [(n, 1) for n in range(60)] + [(n, 2) for n in (3, 23, 43)]
    assert sorted(begun) == sorted(expected)


@pytest.mark.parametrize("timeout", [0.0, None])
def test_a_stopped_worker_returns_the_messages_queued_in_a_process_at_once(
    app: App,
    tmp_path: Path,
    ahead: None,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    timeout: float | None,
) -> None:
    # The process may take long to answer, and the engine to be told, on a busy machine.
    monkeypatch.setattr(owner, "LONGEST_RECALL", 30.0)
    monkeypatch.setattr(worker_module, "LONGEST_FLUSH", 60.0)
    monkeypatch.setattr(worker_module, "SHORTEST_FLUSH", 60.0)
    queue = send("process", [(f"k{n}", n, "slow" if n >= 40 else "") for n in range(60)])
    with app.worker(pool="process", threads=1) as worker:
        wait_for(lambda: ("begun", "k40", 40, 1) in events(tmp_path), "the slow one does not begin")
        if timeout is None:
            stopping = threading.Thread(target=worker.stop)
            stopping.start()
            wait_for(lambda: worker.figures().running == 1, "the queued ones are not returned")
            (tmp_path / "gate").touch()
            stopping.join()
        else:
            assert not worker.stop(timeout)
    begun = [number for what, _, number, _ in events(tmp_path) if what == "begun"]
    # On a busy machine some are taken back from behind one that seems slow, and begin later.
    assert sorted(begun) == list(range(41))
    stopped = sum("was stopped while" in one.msg for one in caplog.records)
    assert stopped == (0 if timeout is None else 1)
    found = queue.stats()
    assert (found.ready, found.backing_off) == ((19, 0) if timeout is None else (19, 1))


def test_a_message_begun_in_a_process_that_is_killed_for_another_keeps_its_attempt(
    app: App, tmp_path: Path, ahead: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = process_pool.ProcessPool.advance
    killed: list[int] = []

    def advance(pool: process_pool.ProcessPool, child: Any) -> None:
        if len(child.sent) > 2 and not killed and child.progress.times(child.sent[0].number)[1]:
            killed.append(child.sent[1].held.id)
            # As ``kill`` does, with a message that has just ended.
            child._killed_for = child.busy
            child._process.kill()
        after(pool, child)

    monkeypatch.setattr(process_pool.ProcessPool, "advance", advance)
    queue = send("process", [(f"k{n}", n, "") for n in range(60)])
    with app.worker(pool="process", threads=1) as worker:
        wait_for(lambda: bool(queue.stats().unsettled == 0), "the messages are not handled")
        assert worker.figures().failed == 0
    assert killed
    assert {attempt for *_, attempt in events(tmp_path)} == {1}


def test_processes_share_memory_where_no_folder_for_temporary_files_is_writable(
    app: App, tmp_path: Path, ahead: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError("no usable temporary directory")

    queue = send("process", [(f"k{n}", n, "") for n in range(60)])
    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with app.worker(pool="process", threads=1):
        wait_for(lambda: bool(queue.stats().unsettled == 0), "the messages are not handled")
