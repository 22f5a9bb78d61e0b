"""The program's own beginning and end, around a worker and its processes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock import App
from tests.worker.apps import living
from tests.worker.workers import PATIENCE, Workers

AROUND = ["worker_start", "process_start", "enter", "leave", "process_stop", "worker_stop"]


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "notes"
    path.touch()
    monkeypatch.setenv(living.NOTES, str(path))
    return path


def noted(path: Path) -> list[tuple[str, int]]:
    lines = [line.split() for line in path.read_text().splitlines()]
    return [(what, int(pid)) for what, pid in lines]


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
@pytest.mark.parametrize(("pool", "same"), [("thread", False), ("asyncio", True)])
def test_the_lifespan_encloses_all_handlers_of_a_process(
    url: str, notes: Path, monkeypatch: pytest.MonkeyPatch, pool: str, same: bool
) -> None:
    monkeypatch.setattr(living.app, "url", url)
    with living.app as app, app.worker(threads=2, pool=pool):
        mine = noted(notes)[0][1]
        assert noted(notes) == [(what, mine) for what in AROUND[:3]]
        assert living.state.send().result(PATIENCE) == [mine, mine, False]
        # Of threads, each has a loop of its own.
        assert living.state_async.send().result(PATIENCE) == [mine, mine, same]
        assert len(noted(notes)) == 3
    assert noted(notes) == [(what, mine) for what in AROUND]
    with pytest.raises(RuntimeError, match="no worker of this app has started"):
        _ = app.state


def test_each_process_of_a_pool_enters_its_own_lifespan(
    url: str, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(living.app, "url", url)
    with living.app as app, app.worker(threads=2, pool="process") as worker:
        assert worker.wait_until_ready(PATIENCE)
        pid, same, _ = living.state.send().result(PATIENCE)
        assert pid == same
        pid, same, on_loop = living.state_async.send().result(PATIENCE)
        assert (pid, on_loop) == (same, True)
        with pytest.raises(RuntimeError):
            _ = app.state
    (first, mine), *_, (last, still) = noted(notes)
    assert (first, last, mine) == ("worker_start", "worker_stop", still)
    children = {pid for _, pid in noted(notes)} - {mine}
    assert len(children) in (1, 2)
    for child in children:
        assert [what for what, pid in noted(notes) if pid == child] == AROUND[1:5]


@pytest.mark.parametrize(
    ("flags", "fails"),
    [((), "lifespan"), (("--pool", "asyncio"), "hook"), (("--pool", "process"), "lifespan")],
)
def test_a_worker_whose_lifespan_fails_ends_with_an_error_and_is_never_ready(
    workers: Workers, notes: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    flags: tuple[str, ...], fails: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("FAILS", fails)
    ready = tmp_path / "ready"
    worker = workers.start("--ready-file", str(ready), *flags, app="tests.worker.apps.living:app")
    assert worker.ended() == 1
    assert "ConnectionError: no database" in worker.output
    assert "ready, tests.worker.apps.living" not in worker.output and not ready.exists()
    assert "Logging error" not in worker.output


def test_a_worker_whose_lifespan_hangs_obeys_a_signal(workers: Workers, tmp_path: Path) -> None:
    (tmp_path / "hanging.py").write_text(
        "import sys, threading\n"
        "from interlock import App\n"
        "app = App()\n"
        "@app.task\n"
        "def f(): ...\n"
        "@app.on_worker_start\n"
        "def hang():\n"
        "    print('hangs', flush=True)\n"
        "    threading.Event().wait()\n"
    )
    worker = workers.start(app="hanging:app")
    worker.wait_for_line("hangs")
    worker.process.terminate()
    assert worker.ended() == 0
    assert "before it started" in worker.output


def app_of(lifespan: Any) -> App:
    return App("memory://", lifespan=lifespan)


def test_a_lifespan_may_be_any_context_manager() -> None:
    left: list[str] = []

    async def asynchronous(app: App) -> AsyncIterator[str]:
        yield "a"
        left.append("a")

    def plain(app: App) -> Iterator[str]:
        yield "b"
        left.append("b")

    for lifespan, state in (
        (asynchronous, "a"),
        (contextlib.asynccontextmanager(asynchronous), "a"),
        (plain, "b"),
        (contextlib.contextmanager(plain), "b"),
        (lambda app: contextlib.nullcontext("c"), "c"),
    ):
        app = app_of(lifespan)
        with app.worker(threads=1):
            assert app.state == state
    assert left == ["a", "a", "b", "b"]


@pytest.mark.parametrize(
    ("lifespan", "kind", "text"),
    [
        (3, TypeError, "lifespan: int is given"),
        (lambda: None, TypeError, "does not take one argument, the app"),
    ],
)
def test_an_invalid_lifespan_is_refused(lifespan: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        app_of(lifespan)
    app = app_of(lambda app: None)
    with pytest.raises(ValueError, match="already has one"):
        app.lifespan(lambda app: None)
    with pytest.raises(TypeError, match="it returned NoneType; allowed: a context manager"):
        app.worker(threads=1).start()
    with pytest.raises(TypeError, match=r"on_worker_stop\(\): int is given"):
        app.on_worker_stop(3)  # type: ignore[type-var]
    with pytest.raises(TypeError, match=r"on_process_start\(\): f\(\) takes arguments"):

        @app.on_process_start
        def f(worker: object) -> None: ...


def test_a_lifespan_that_fails_at_its_end_does_not_prevent_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ends: list[str] = []

    async def lifespan(app: App) -> AsyncIterator[None]:
        yield
        raise OSError("left")

    app = app_of(lifespan)

    @app.on_worker_stop
    def last() -> None:
        ends.append("worker")

    @app.on_process_stop
    def first() -> None:
        raise OSError("first")

    @app.on_process_stop
    def second() -> None:
        ends.append("process")

    with app.worker(threads=1) as worker:
        pass
    assert worker.stop()
    assert ends == ["process", "worker"]
    assert [one.message for one in caplog.records] == [
        "the hook first() raised at the end of a worker",
        "the lifespan of the app raised when it was left",
    ]


def test_a_worker_whose_lifespan_failed_holds_no_message() -> None:
    app = app_of(lambda app: 3 / 0)
    before = set(threading.enumerate())
    worker = app.worker(threads=3)
    with pytest.raises(ZeroDivisionError):
        worker.start()
    assert worker.stop()
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE)
        assert not thread.is_alive()


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_background_tasks_of_the_lifespan_run_beside_handlers(url: str) -> None:
    ticks = threading.Event()

    async def lifespan(app: App) -> AsyncIterator[None]:
        async def tick() -> None:
            while True:
                await asyncio.sleep(0)
                if asked.is_set():
                    ticks.set()
                    return

        async with asyncio.TaskGroup() as group:
            group.create_task(tick())
            yield

    asked = threading.Event()
    app = App(url, lifespan=lifespan)

    @app.task(result_ttl=60)
    def wait() -> bool:
        asked.set()
        return ticks.wait(PATIENCE)

    with app, app.worker(threads=1):
        assert wait.send().result(PATIENCE)
