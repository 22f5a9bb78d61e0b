"""A pool of processes that start late, die, or do not start at all."""

from __future__ import annotations

import collections
import logging
import multiprocessing
import os
import pickle
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from interlock import WorkerBroken
from interlock.app import App
from interlock.worker.pools import default_concurrency as cores
from interlock.worker.pools import process_child
from interlock.worker.pools.process_pool import ProcessPool
from interlock.worker.pools.progress import Progress
from tests.worker.apps import gated
from tests.worker.workers import PATIENCE, Workers, wait_for


@pytest.fixture
def gates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    shut, broken = tmp_path / "shut", tmp_path / "broken"
    monkeypatch.setenv("GATE_SHUT", str(shut))
    monkeypatch.setenv("GATE_BROKEN", str(broken))
    return shut, broken


@pytest.fixture
def app(url: str) -> Iterator[App]:
    gated.app.close()
    gated.app.url = url
    yield gated.app
    gated.app.close()


@pytest.mark.parametrize("size", [1, 4])
def test_a_pool_whose_processes_cannot_start_ends_the_worker_with_the_reason(
    app: App, workers: Workers, gates: tuple[Path, Path], size: int
) -> None:
    gates[1].touch()
    for number in range(10):
        gated.handle.send(number)
    worker = workers.start(
        "--pool", "process", "--concurrency", str(size), app="tests.worker.apps.gated:app"
    )
    assert worker.ended() == 1, worker.output
    assert " ready" not in worker.output.replace("before it was ready", "")
    assert "the processes of the pool do not start" in worker.output
    assert "LookupError: no such table" in worker.output
    assert "interlock: the worker is broken: the processes of the pool" in worker.output
    stats = app._queue("default").stats()
    assert (stats.leases, stats.ready) == (0, 10)


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_a_broken_pool_makes_wait_until_ready_raise(app: App, gates: tuple[Path, Path]) -> None:
    gates[1].touch()
    worker = app.worker(pool="process", threads=2).start()
    with pytest.raises(WorkerBroken, match="LookupError: no such table") as broken:
        worker.wait_until_ready(PATIENCE)
    assert broken.value.__cause__ is worker.broken
    worker.stop()


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_a_broken_pool_raises_at_the_end_of_a_with_block_unless_the_block_raises(
    app: App, gates: tuple[Path, Path]
) -> None:
    gates[1].touch()

    def run(error: Exception | None) -> None:
        broke = threading.Event()
        worker = app.worker(pool="process", threads=1)
        worker.on_broken = broke.set
        with worker:
            assert broke.wait(PATIENCE)
            if error is not None:
                raise error

    with pytest.raises(WorkerBroken, match="LookupError: no such table"):
        run(None)
    with pytest.raises(ZeroDivisionError):
        run(ZeroDivisionError())


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_wait_until_ready_ends_if_the_worker_is_not_started_or_is_stopped(
    app: App, gates: tuple[Path, Path]
) -> None:
    gates[0].touch()
    worker = app.worker(pool="process", threads=1)
    with pytest.raises(RuntimeError, match="was not started"):
        worker.wait_until_ready()
    worker.start()
    found: queue.SimpleQueue[bool] = queue.SimpleQueue()
    threading.Thread(target=lambda: found.put(worker.wait_until_ready()), daemon=True).start()
    gone = threading.Thread(target=worker.stop, daemon=True)
    gone.start()
    assert not found.get(timeout=PATIENCE)
    gates[0].unlink()
    gone.join(PATIENCE)
    assert not worker.wait_until_ready(0)


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_no_message_is_leased_before_a_pool_process_is_ready(
    app: App, gates: tuple[Path, Path]
) -> None:
    gates[0].touch()
    default = app._queue("default")
    for number in range(10):
        gated.handle.send(number)
    with app.worker(pool="process", threads=2) as worker:
        assert not worker.wait_until_ready(0.3)
        assert worker.waits_for == "the processes of its pool"
        assert default.stats().leases == 0
        gates[0].unlink()
        default.join(PATIENCE)
        assert worker.waits_for == worker.url
    assert default.stats().releases == 0


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_no_message_is_leased_for_a_pool_process_that_restarts(
    app: App, gates: tuple[Path, Path]
) -> None:
    default = app._queue("default")
    with app.worker(pool="process", threads=1) as worker:
        assert worker.wait_until_ready(PATIENCE)
        gates[0].touch()
        gated.handle.options(timeout=1000).send(-1)
        wait_for(lambda: worker.figures().failed == 1, "the process did not end")
        gated.handle.send(1)
        gates[0].unlink()
        wait_for(lambda: default.stats().acks == 1, "no new process came")
        wait_for(lambda: worker.figures().running == 0, "it is not settled")
    assert default.stats().releases == 0


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_a_pool_whose_processes_cannot_restart_is_broken(
    app: App, gates: tuple[Path, Path]
) -> None:
    worker = app.worker(pool="process", threads=1).start()
    assert worker.wait_until_ready(PATIENCE)
    gates[1].touch()
    gated.handle.send(-1)
    wait_for(lambda: worker.broken is not None, "it continues for ever")
    with pytest.raises(WorkerBroken, match="LookupError: no such table"):
        worker.wait_until_ready()
    worker.stop()


def test_a_process_pool_has_one_process_per_core_by_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert 1 <= cores.cores() <= (os.cpu_count() or 1)
    app = gated.app
    assert app._worker(**settings("process")).settings.concurrency == cores.cores()
    assert app._worker(**settings("thread")).settings.concurrency == 16
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)), raising=False)
    monkeypatch.setattr(cores, "QUOTA", tmp_path / "cpu.max")
    assert cores.cores() == 64
    for text, expected in [("max 100000", 64), ("150000 100000", 2), ("10000 100000", 1)]:
        cores.QUOTA.write_text(text)
        assert cores.cores() == expected


def settings(pool: str) -> dict[str, object]:
    return {"queues": ("default",), "concurrency": None, "pool": pool}


def test_a_message_is_begun_by_its_process_or_taken_back_by_the_worker() -> None:
    ours = Progress()
    memory, pipe = ours.descriptors
    theirs = Progress((os.dup(memory), os.dup(pipe)))
    begun: list[int] = []

    def begin() -> None:
        while (number := theirs.take()) != 0:
            begun.extend([] if number is None else [number])

    process = threading.Thread(target=begin)
    process.start()
    back: list[int] = []
    for first in range(1, 20_001, 20):
        ours.send(first, 20)
        back += ours.rest()
    # It ends the thread, unless that has read the last of the others and this was read by nobody.
    ours.send(0, 1)
    process.join()
    assert sorted(begun + back) == [*range(1, 20_001)]
    assert begun == sorted(begun)
    assert ours.rest() == []
    ours.close()
    os.close(theirs._unbegun)


def test_a_process_does_not_begin_what_the_worker_has_taken_back() -> None:
    ours, theirs = multiprocessing.Pipe()
    progress = Progress()
    memory, pipe = progress.descriptors
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        link = process_child._Link(theirs, Progress((os.dup(memory), os.dup(pipe))), level)
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    messages: list[Any] = [SimpleNamespace(number=number) for number in (7, 8, 9)]
    progress.send(7, 2)
    assert progress.rest() == [7, 8]
    progress.send(9, 1)
    link._work.extend(messages)
    assert link._next() is messages[2]
    progress.send(10, 2)
    link._return_all([9])
    assert pickle.loads(ours.recv_bytes()) == ("returned", [9, 10, 11])
    progress.close()
    os.close(link._progress._unbegun)


@pytest.mark.parametrize("stops", [True, False])
def test_messages_that_a_process_returns_go_to_an_idle_one_unless_the_worker_stops(
    stops: bool,
) -> None:
    given: list[Any] = []
    pool = ProcessPool(2, "", cast(Any, SimpleNamespace(stops=stops)), cast(Any, None))
    waiting = SimpleNamespace(unbegun=lambda: None, expired=False, number=8)
    busy: Any = SimpleNamespace(ready=True, room=0, without=lambda numbers: [waiting])
    busy.sent = collections.deque([SimpleNamespace(number=7, at=busy)])
    idle: Any = SimpleNamespace(ready=True, room=9, sent=collections.deque(), handle=given.extend)
    pool._children = [busy, idle]
    pool.returned(busy, {8})
    assert given == ([] if stops else [waiting])
