"""Jobs: the outcome of a call, from the process that sent it or from another."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from interlock import EngineUnavailable, JobFailed, Reject, ResultGone
from interlock.app import App, Job
from interlock.retry import Retry
from tests.worker.workers import PATIENCE, ROOT, wait_for

ENGINES = pytest.mark.parametrize("engine", ["redis", "hub", "memory"], indirect=True)
begun, go_on = threading.Event(), threading.Event()


def declared(app: App) -> None:
    begun.clear()
    go_on.clear()

    @app.task(result_ttl=60, keys="{key}")
    def echo(key: str, how: str = "") -> str:
        if how == "reject":
            raise Reject("too large")
        if how == "fail":
            raise OSError("no line\nto the bank")
        if how == "value":
            raise ValueError("no retry")
        if how == "wait":
            begun.set()
            assert go_on.wait(PATIENCE)
        return key

    @app.task(keys="{key}")
    def unkept(key: str) -> None: ...

    @app.task(result_ttl=60, expires=0.001)
    def late() -> None: ...

    app.task(result_ttl=60, name="tried", retry=Retry(2, first=0, on=(OSError,)), keys="{key}")(
        echo.function
    )


def send(app: App, task: str, *args: object, **options: object) -> Job[object]:
    found = app.tasks[task].options(**options).send(*args)  # type: ignore[arg-type]
    assert isinstance(found, Job)
    return found


@ENGINES
def test_a_job_reports_its_state_from_the_send_to_the_end(app: App) -> None:
    declared(app)
    delayed = send(app, "echo", "z", delay=1000)
    first, second = send(app, "echo", "a", "wait"), send(app, "echo", "a")
    assert [job.state() for job in (delayed, first, second)] == ["delayed", "ready", "waiting"]
    with app.worker(threads=2):
        assert begun.wait(PATIENCE)
        assert [job.state() for job in (first, second)] == ["leased", "waiting"]
        assert not first.cancel()
        assert second.cancel() and not second.cancel()
        go_on.set()
        assert first.result(PATIENCE) == "a"
        gone = send(app, "unkept", "b")
        wait_for(lambda: gone.state() == "gone", "it is not settled")
    assert [job.state() for job in (delayed, first, second)] == ["delayed", "acked", "cancelled"]
    again: Job[object] = app.tasks["echo"].job(first.id)
    assert (again, again.result(PATIENCE), again.known) == (first, "a", False)
    assert app.tasks["echo"].job(7).state() == app.tasks["echo"].job(-7).state() == "gone"
    with pytest.raises(ResultGone):
        app.tasks["echo"].job(7).result(PATIENCE)
    with pytest.raises(TypeError, match=r"job\(\): id is str"):
        app.tasks["echo"].job("7")  # type: ignore[arg-type]


@ENGINES
def test_a_job_reports_its_state_in_asyncio(app: App) -> None:
    declared(app)

    async def main() -> None:
        job = await app.tasks["echo"].options(delay=1000).asend("a")
        assert await job.astate() == "delayed"
        assert await job.acancel()
        assert await job.astate() == "cancelled"
        with pytest.raises(JobFailed) as failed:
            await job.aresult(1)
        assert failed.value.reason == "cancelled"
        await app.aclose()

    asyncio.run(main())


@ENGINES
@pytest.mark.parametrize(
    ("how", "task", "reason", "error"),
    [
        ("reject", "tried", "rejected", "too large"),
        ("fail", "tried", "exhausted", "OSError: no line"),
        ("value", "tried", "rejected", "ValueError: no retry"),
        ("cancel", "echo", "cancelled", "cancelled"),
        ("late", "late", "expired", "expired: sent "),
        ("undecodable", "echo", "rejected", "PayloadError: argument 'key' of echo() cannot be"),
    ],
)
def test_a_failed_job_reports_its_error(
    app: App, how: str, task: str, reason: str, error: str
) -> None:
    declared(app)
    options = {"delay": 1000.0} if how == "cancel" else {}
    args = () if how == "late" else (1,) if how == "undecodable" else ("k", how)
    job = send(app, task, *args, **options)
    if how == "cancel":
        assert job.cancel()
    if how == "late":
        # A worker may begin within the millisecond that it has.
        sent = time.monotonic()
        wait_for(lambda: time.monotonic() > sent + 0.002, "the clock stands still")
    with app.worker(threads=1), pytest.raises(JobFailed) as failed:
        job.result(PATIENCE)
    assert (failed.value.id, failed.value.reason) == (job.id, reason)
    assert failed.value.error.startswith(error) and "\n" not in failed.value.error
    same = pickle.loads(pickle.dumps(failed.value))
    assert vars(same) == vars(failed.value)
    ended = {"cancel": "cancelled", "late": "expired"}
    assert job.state() == ended.get(how, "dead")


@ENGINES
def test_a_job_s_result_expires(app: App) -> None:
    declared(app)
    job = send(app, "echo", "a")
    with app.worker(threads=1):
        assert job.result(PATIENCE) == "a"
    assert asyncio.run(forgotten(app, job))
    assert not job.forget()
    assert job.state() == "gone"
    with pytest.raises(ResultGone):
        job.result(PATIENCE)


async def forgotten(app: App, job: Job[object]) -> bool:
    found = await job.aforget()
    await app.aclose()
    return found


MODULE = """
from interlock import App
app = App({url!r})

@app.task(result_ttl=60)
def double(number: int) -> int:
    return 2 * number
"""
OTHER = """
import pickle, sys
job = pickle.load(sys.stdin.buffer)
print(job.id, job.task, job.known, job.state(), job.cancel())
"""


def unpickled(job: bytes, folder: Path) -> tuple[int, str]:
    path = os.pathsep.join([str(ROOT / "src"), str(folder)])
    done = subprocess.run(
        [sys.executable, "-c", OTHER],
        input=job,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        timeout=PATIENCE,
    )
    # The server of the tests writes nothing to its disk, of which a client warns.
    lines = (done.stdout + done.stderr).decode().splitlines(keepends=True)
    return done.returncode, "".join(line for line in lines if "appendonly is no" not in line)


def test_a_pickled_job_works_in_another_process_of_its_app(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "picklable_tasks.py").write_text(MODULE.format(url=url))
    (tmp_path / "aaa_importer.py").write_text("from picklable_tasks import app")
    monkeypatch.syspath_prepend(str(tmp_path))
    import aaa_importer  # type: ignore[import-not-found]

    job = aaa_importer.app.tasks["double"].options(delay=1000).send(4)
    pickled = pickle.dumps(job)
    assert b"picklable_tasks:app" in pickled
    assert pickle.loads(pickled) == job and len({pickle.loads(pickled), job}) == 1
    assert unpickled(pickled, tmp_path) == (0, f"{job.id} double False delayed True\n")
    assert job.state() == "cancelled"
    code, said = unpickled(pickled, ROOT)
    assert code == 1
    assert (
        f"UnpicklingError: job {job.id} of 'double' belongs to the app picklable_tasks:app" in said
    )
    assert "there is no module 'picklable_tasks'" in said
    (tmp_path / "picklable_tasks.py").write_text("from interlock import App\napp = App()")
    assert "which the app picklable_tasks:app does not have here" in unpickled(pickled, tmp_path)[1]
    aaa_importer.app.close()


def test_pickling_a_job_of_an_app_that_cannot_be_imported_raises() -> None:
    app = App("memory://")

    @app.task
    def note() -> None: ...

    with app.testing(), pytest.raises(pickle.PicklingError, match="not a global name of a module"):
        pickle.dumps(note.send())


def test_a_job_of_an_unreachable_engine_raises() -> None:
    app = App("redis://127.0.0.1:1?timeout=0.1")

    @app.task
    def note() -> None: ...

    with pytest.raises(EngineUnavailable):
        note.job(3).state()
