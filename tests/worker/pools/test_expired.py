"""A worker that is frozen while messages are queued in its pool: their leases expire meanwhile, and
it begins none of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker.apps import brief
from tests.worker.pools.test_brief import POOLS, events, send
from tests.worker.workers import Workers, wait_for

FREEZES, COUNT, MORE = range(60, 100), 200, 20


@pytest.fixture(autouse=True)
def sender(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("BRIEF_FOLDER", str(tmp_path))
    monkeypatch.setenv("BRIEF_AHEAD", "1")
    brief.app.close()
    brief.app.url = url
    yield
    brief.app.close()


@pytest.mark.parametrize("engine", ["redis", "hub"], indirect=True)
@pytest.mark.watchdog(180)
@POOLS
def test_a_worker_frozen_beyond_its_leases_begins_none_of_its_queued_messages(
    workers: Workers, tmp_path: Path, pool: str
) -> None:
    flags = ("--lease", "1", "--concurrency", "1", "--pool", pool)
    messages = [(f"k{n % 60}", n, "freeze" if n in FREEZES else "") for n in range(COUNT)]
    queue = send(pool, messages)
    frozen = workers.start(*flags, app="tests.worker.apps.brief:app")
    file = tmp_path / "frozen"
    wait_for(lambda: file.exists() and file.read_text().endswith("\n"), "nothing is frozen")
    # A worker that is frozen while it writes to the audit's journal holds up others that use it.
    apart = {"INTERLOCK_AUDIT_DIR": str(tmp_path / "audit")}
    other = workers.start(*flags, app="tests.worker.apps.brief:app", **apart)
    wait_for(lambda: bool(queue.stats().unsettled == 0), "the other worker does not handle them")
    assert other.stopped() == 0, other.output
    handled = events(tmp_path)
    process, frozen_at = map(int, file.read_text().split())
    # A process of the pool continues first.
    os.kill(process, signal.SIGCONT)
    wait_for(lambda: len(events(tmp_path)) > len(handled), "the thawed process did nothing")
    os.kill(frozen.process.pid, signal.SIGCONT)
    # It takes these after the messages that it had queued.
    send(pool, [(f"k{n % 60}", n, "") for n in range(COUNT, COUNT + MORE)])
    wait_for(lambda: bool(queue.stats().unsettled == 0), "not all settled after the thaw")
    assert frozen.stopped() == 0, frozen.output
    found = events(tmp_path)
    begun = [number for what, _, number, _ in found[len(handled) :] if what == "begun"]
    assert begun == list(range(COUNT, COUNT + MORE))
    for key in {key for key, _, _ in messages}:
        order = [one[2] for one in found if one[:2] == ("begun", key)]
        assert order == sorted(order), "a message of a key overtook another"
    running: dict[str, int] = {}
    for what, key, number, _ in found:
        if number == frozen_at:
            continue
        assert running.get(key) == (None if what == "begun" else number), "two of a key overlap"
        running[key] = number
        if what == "ended":
            del running[key]
    twice = {n for n in range(COUNT) if sum(one[:3:2] == ("begun", n) for one in found) > 1}
    # Before it, only messages that had ended and were not settled yet.
    assert max(twice) == frozen_at
