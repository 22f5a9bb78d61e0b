"""Messages that are leased ahead, while the queue, the clock and the worker change."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock.app import App
from interlock.client.faces import handler_time
from interlock.worker.loop import owner
from tests.worker.apps import brief
from tests.worker.workers import wait_for

pytestmark = pytest.mark.parametrize("engine", ["memory"], indirect=True)
POOLS = pytest.mark.parametrize("pool", ["thread", "asyncio", "process"])


@pytest.fixture
def app(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    """Every handler is brief, however slow this machine is; none is run in a batch."""
    monkeypatch.setenv("BRIEF_FOLDER", str(tmp_path))
    monkeypatch.setattr(handler_time, "QUICK", 0.0)
    monkeypatch.setattr(handler_time, "COMPUTED", 0.0)
    monkeypatch.setattr(handler_time, "BRIEF", 60.0)
    monkeypatch.setattr(handler_time, "LONGEST_BATCH", 0.1)
    brief.app.close()
    brief.app.url = url
    yield brief.app
    brief.app.close()


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that no handler begins stay with the worker."""
    monkeypatch.setattr(owner, "LONGEST_UNSTARTED", 60.0)


def task(pool: str) -> Any:
    return brief.ahandle if pool == "asyncio" else brief.handle


def noted(folder: Path) -> list[tuple[str, str, int, int]]:
    """Return what handlers noted: begun or ended, key, number, attempt."""
    file = folder / "events"
    lines = file.read_text().splitlines() if file.exists() else []
    words = [line.split() for line in lines]
    return [(what, key, int(number), int(attempt)) for what, key, number, attempt in words]


def numbers(folder: Path) -> list[int]:
    return [number for what, _, number, _ in noted(folder) if what == "begun"]


@POOLS
def test_handled_messages_are_settled_while_those_behind_them_wait(
    app: App, tmp_path: Path, kept: None, pool: str
) -> None:
    # The slow one comes early in what is leased ahead: fewer than half of that have ended.
    for n in range(400):
        task(pool).send(f"k{n}", n, "slow" if n == 43 else "")
    queue = app._queue("default")
    with app.worker(pool=pool, threads=1):
        wait_for(lambda: 43 in numbers(tmp_path), "the slow one does not begin")
        wait_for(lambda: bool(queue.stats().unsettled == 400 - 43), "they are not settled")
        (tmp_path / "gate").touch()


@pytest.mark.parametrize("pool", ["process"])
def test_messages_behind_a_slow_handler_go_to_an_idle_process(
    app: App, tmp_path: Path, kept: None, pool: str
) -> None:
    for n in range(60):
        task(pool).send(f"k{n}", n, "slow" if n == 10 else "")
    queue = app._queue("default")
    with app.worker(pool=pool, threads=2):
        wait_for(lambda: bool(queue.stats().unsettled == 1), "they wait behind the slow one")
        (tmp_path / "gate").touch()
        wait_for(lambda: bool(queue.stats().unsettled == 0), "the slow one does not end")
    assert {attempt for *_, attempt in noted(tmp_path)} == {1}


def test_messages_behind_a_process_that_is_stopped_go_to_an_idle_one(
    app: App, tmp_path: Path, kept: None
) -> None:
    for n in range(60):
        task("process").send(f"k{n}", n, "halt" if n == 10 else "")
    queue = app._queue("default")
    with app.worker(pool="process", threads=2):
        wait_for(lambda: bool(queue.stats().unsettled == 1), "they wait behind the stopped one")
        os.kill(int((tmp_path / "halted").read_text()), signal.SIGCONT)
        wait_for(lambda: bool(queue.stats().unsettled == 0), "the stopped one does not end")
    assert sorted(numbers(tmp_path)) == [*range(60)]


@POOLS
def test_a_message_that_expires_while_it_is_leased_ahead_is_dropped(
    app: App, tmp_path: Path, kept: None, pool: str
) -> None:
    late = range(41, 60)
    for n in range(200):
        how = "slow" if n == 40 else ""
        (task(pool).options(expires=3.0) if n in late else task(pool)).send(f"k{n}", n, how)
    sent = time.monotonic()
    queue = app._queue("default")
    with app.worker(pool=pool, threads=1):
        wait_for(lambda: 40 in numbers(tmp_path), "the slow one does not begin")
        wait_for(lambda: time.monotonic() > sent + 3.1, "time stands still")
        (tmp_path / "gate").touch()
        wait_for(lambda: bool(queue.stats().unsettled == 0), "the messages are not handled")
    assert not {*late} & {*numbers(tmp_path)}


@POOLS
def test_a_message_of_high_priority_overtakes_all_but_those_leased_ahead(
    app: App, tmp_path: Path, pool: str
) -> None:
    for n in range(1000):
        task(pool).send(f"k{n}", n, "")
    queue = app._queue("default")
    with app.worker(pool=pool, threads=2):
        wait_for(lambda: len(numbers(tmp_path)) > 50, "no message is handled")
        task(pool).options(priority=5).send("urgent", 1000, "")
        begun = len(numbers(tmp_path))
        wait_for(lambda: bool(queue.stats().unsettled == 0), "the messages are not handled")
    # One share is leased ahead or runs, one may begin during the send, and one during a call.
    overtaken = numbers(tmp_path).index(1000) - begun
    assert overtaken <= 3 * (handler_time.MOST_LEASED + 2)


@POOLS
@pytest.mark.parametrize("seed", [1, 2])
def test_every_message_is_handled_while_leases_are_lost_and_the_queue_is_operated(
    app: App, tmp_path: Path, pool: str, seed: int
) -> None:
    chance = random.Random(seed)
    hung = set() if pool == "asyncio" else {20, 90}
    for n in range(150):
        sent = task(pool).options(timeout=1.0) if n in hung else task(pool)
        sent.send(f"k{n % 11}", n, "hang" if n in hung else "")
    queue = app._queue("default")
    ids: set[int] = set()
    revoked: set[str] = {f"k{n % 11}" for n in hung}
    with app.worker(pool=pool, threads=4) as worker:
        for turn in range(12):
            wait_for(
                lambda: len(numbers(tmp_path)) >= turn * 12 or queue.stats().unsettled == 0,  # noqa: B023
                "no message is handled",
            )
            what = chance.choice(["pause", "key", "configure", "revoke", "revoke"])
            if what == "pause":
                queue.pause()
                # Messages leased ahead are handled, or returned; nothing else begins.
                wait_for(lambda: worker.figures().running <= len(hung), "messages are kept")
                queue.resume()
            elif what == "key":
                queue.pause(key="k3")
                queue.resume(key="k3")
            elif what == "configure":
                queue.configure(maxsize=chance.randrange(1000, 2000))
            else:
                for one in list(queue.messages(5, state="leased")):
                    # Once each: it uses one of three attempts.
                    if one.id not in ids and queue.revoke(one.id):
                        ids.add(one.id)
                        revoked |= {key.decode() for key in one.keys}
        (tmp_path / "gate").touch()
        wait_for(lambda: bool(queue.stats().unsettled == 0), "the messages are not handled")
    found = noted(tmp_path)
    assert not (tmp_path / "leaked").exists()
    assert {number for what, _, number, _ in found if what == "begun"} == {*range(150)}
    assert queue.stats().dead == 0
    running: dict[str, int] = {}
    for what, key, number, attempt in found:
        if key in revoked:
            continue
        assert attempt == 1
        assert running.get(key) == (None if what == "begun" else number), "two of a key overlap"
        running[key] = number
        if what == "ended":
            del running[key]
    for key in {key for _, key, *_ in found} - revoked:
        order = [one[2] for one in found if one[0] == "begun" and one[1] == key]
        assert order == sorted(order), "a message of a key overtook another"
