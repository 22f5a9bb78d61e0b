"""A worker that cannot start what it needs ends with an error and is never ready."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock import App, WorkerBroken
from tests.worker.workers import PATIENCE, Workers, wait_for


@pytest.fixture
def app() -> Iterator[App]:
    with App("memory://") as made:
        made.task(name="note")(lambda: None)
        yield made


def without_threads(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """From now on the system has no thread of this name."""
    start = threading.Thread.start

    def refusing(thread: threading.Thread) -> None:
        if thread.name.startswith(name):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refusing)


@pytest.mark.parametrize("pool", ["thread", "asyncio"])
def test_a_worker_that_cannot_start_a_pool_thread_ends_with_an_error(
    app: App, monkeypatch: pytest.MonkeyPatch, pool: str
) -> None:
    without_threads(monkeypatch, "interlock-handler")
    worker = app.worker(threads=2, pool=pool)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        worker.start()
    assert isinstance(worker.broken, RuntimeError)
    assert worker.stop()
    with pytest.raises(WorkerBroken, match="can't start new thread"):
        worker.wait_until_ready()


def test_a_worker_that_cannot_start_its_event_loop_ends_with_an_error(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing(asyncio.Runner):  # type: ignore[misc]
        def get_loop(self) -> asyncio.AbstractEventLoop:
            raise OSError(24, "Too many open files")

    monkeypatch.setattr(asyncio, "Runner", Refusing)
    with pytest.raises(OSError, match="Too many open files"):
        app.worker(threads=2, pool="asyncio").start()


def test_a_worker_that_cannot_start_a_loop_for_its_lifespan_ends_with_an_error(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.on_worker_start(lambda: None)
    without_threads(monkeypatch, "interlock-lifespan")
    with pytest.raises(RuntimeError, match="can't start new thread"):
        app.worker(threads=2).start()


def test_a_worker_that_cannot_start_its_engine_thread_ends_with_an_error(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_threads(monkeypatch, "interlock-lease")
    with pytest.raises(WorkerBroken, match="can't start new thread"), app.worker() as worker:
        worker.wait_until_ready(PATIENCE)
    assert isinstance(worker.broken, RuntimeError)


def test_without_a_thread_for_batches_the_pool_handles_all(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_threads(monkeypatch, "interlock-batches")
    handled: list[int] = []

    @app.task
    def count(number: int) -> None:
        handled.append(number)

    with app.worker(threads=2) as worker:
        for number in range(2000):
            count.send(number)
        app._queue("default").join(PATIENCE)
        wait_for(lambda: worker.figures().handled == 2000, "not handled")
    assert sorted(handled) == list(range(2000))


def test_several_workers_that_cannot_start_end_their_supervisor(
    workers: Workers, tmp_path: Path
) -> None:
    (tmp_path / "sad.py").write_text(
        "from interlock import App\n"
        "app = App()\n"
        "@app.task\n"
        "def f(): ...\n"
        "@app.on_worker_start\n"
        "def fail(): raise ConnectionError('no database')\n"
    )
    ready = tmp_path / "ready"
    worker = workers.start("--processes", "2", "--ready-file", str(ready), app="sad:app")
    assert worker.ended() == 1
    assert "3 times before it was ready; it is not restarted" in worker.output
    assert "workers are ready" not in worker.output and not ready.exists()
