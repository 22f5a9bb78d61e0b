"""Everything that a program can configure at run time, in every pool.

A setting holds in the handlers of a pool, or the worker ends at its start and names the setting.
"""

from __future__ import annotations

import importlib
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from interlock import JobFailed, Retry, WorkerBroken
from interlock.app import App
from interlock.app.middleware import Middleware, Sending
from tests.worker.workers import PATIENCE, WorkerProcess, Workers, wait_for

POOLS = ["thread", "asyncio", "process"]
NOWHERE = "redis://127.0.0.1:1?timeout=0.1"

MODULE = """
import sys
from interlock import App

app = App({url!r})
stamps = []

@app.after_send
def noted(sending, job) -> None:
    stamps.append(sending.headers.get("stamp"))

@app.task(queue="seconds", keys="key:{{k}}", result_ttl=60)
def second(k: int) -> int:
    return k + 1

@app.task(result_ttl=60)
def probe() -> list[object]:
    now, later = second.send(1), second.options(delay=1000).send(2)
    result = now.result(timeout=30)
    state = app.state if app._lifespan._states else None
    cancelled = later.cancel()
    attempts = app.retry.attempts
    return [result, cancelled, attempts, app.send_timeout, state, stamps[-1], sys.argv]

@app.task(keys="key:{{k}}")
def failing(k: int) -> None:
    raise ValueError(k)

@app.task(result_ttl=60)
def fails_once() -> int:
    return failing.send(1).id
"""

LATER = """
from {name} import app

@app.task(result_ttl=60)
def added() -> str:
    return "added"

@app.before_send
def stamp(sending) -> None:
    sending.headers["stamp"] = "later"
"""

_numbers = itertools.count()


@pytest.fixture
def program(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module with an app whose own URL and INTERLOCK_URL lead nowhere; the test sets the URL."""
    name = f"pool_setup_{next(_numbers)}"
    (tmp_path / f"{name}.py").write_text(MODULE.format(url=NOWHERE))
    (tmp_path / f"{name}_later.py").write_text(LATER.format(name=name))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("INTERLOCK_URL", NOWHERE)
    found = importlib.import_module(name)
    found.app.url = url
    yield found
    found.app.close()
    found.app.url = NOWHERE


def probed(program: Any, pool: str) -> list[Any]:
    """Return what a handler of the program finds, in this pool."""
    with program.app.worker(pool=pool, threads=2) as worker:
        assert worker.wait_until_ready(PATIENCE), worker.broken
        found: list[Any] = program.probe.send().result(timeout=PATIENCE)
        return found


def refused(app: App) -> str:
    """Return why the processes of a pool of this app refuse what the program has done."""
    with pytest.raises(WorkerBroken) as broken, app.worker(pool="process", threads=1) as worker:
        worker.wait_until_ready(PATIENCE)
    return str(broken.value)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("engine", ["redis", "hub"], indirect=True)
def test_app_options_set_at_run_time_apply_in_handlers(
    program: Any, pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["program", "--flag"])
    program.app.retry = Retry(7)
    program.app.send_timeout = 3.5
    assert probed(program, pool) == [2, True, 7, 3.5, None, None, ["program", "--flag"]]


@pytest.mark.parametrize("pool", POOLS)
def test_a_retry_policy_set_at_run_time_applies_to_sends_of_handlers(
    program: Any, pool: str
) -> None:
    program.app.retry = Retry(1)
    with program.app.worker(pool=pool, threads=1) as worker:
        assert worker.wait_until_ready(PATIENCE), worker.broken
        failed = program.fails_once.send().result(timeout=PATIENCE)
        queue = program.app._queue("default")
        queue.join(PATIENCE)
        assert [letter.id for letter in queue.dead_letters()] == [failed]


@pytest.mark.parametrize("pool", POOLS)
def test_credentials_apply_in_pool_processes_and_are_on_no_command_line(
    program: Any, pool: str, worker_port: int
) -> None:
    with redis.Redis(port=worker_port) as server:
        server.execute_command("ACL", "SETUSER", "pools", "on", ">s3cret", "~*", "&*", "+@all")
    program.app.url = f"redis://pools:s3cret@127.0.0.1:{worker_port}"
    with program.app.worker(pool=pool, threads=1, queues=["seconds"]) as worker:
        assert worker.wait_until_ready(PATIENCE), worker.broken
        processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
        assert "s3cret" not in processes
        assert program.second.send(4).result(timeout=PATIENCE) == 5
    assert probed(program, pool)[:2] == [2, True]


@pytest.mark.parametrize("pool", POOLS)
def test_handlers_send_to_the_engine_set_for_another_app(
    program: Any, pool: str, tmp_path: Path, url: str
) -> None:
    name = f"{program.__name__}_other"
    text = MODULE.format(url=NOWHERE).replace('"seconds"', '"thirds"')
    (tmp_path / f"{name}.py").write_text(text)
    other = importlib.import_module(name)
    (tmp_path / f"{program.__name__}_later.py").write_text(
        f"from {program.__name__} import app\n"
        "@app.task(result_ttl=60)\n"
        "def elsewhere() -> int:\n"
        f"    from {name} import second\n"
        "    return second.send(1).id\n"
    )
    later = importlib.import_module(f"{program.__name__}_later")
    other.app.url = url
    with program.app.worker(pool=pool, threads=1, queues="default") as worker:
        assert worker.wait_until_ready(PATIENCE), worker.broken
        sent = later.elsewhere.send().result(timeout=PATIENCE)
    assert other.second.job(sent).state() == "ready"
    other.app.close()
    other.app.url = NOWHERE


@pytest.mark.parametrize("pool", POOLS)
def test_tasks_added_by_an_imported_module_exist_in_pool_processes(program: Any, pool: str) -> None:
    later = importlib.import_module(f"{program.__name__}_later")
    with program.app.worker(pool=pool, threads=1) as worker:
        assert worker.wait_until_ready(PATIENCE), worker.broken
        assert later.added.send().result(timeout=PATIENCE) == "added"
    assert probed(program, pool)[5] == "later"


def stamp(sending: Sending) -> None:
    sending.headers["stamp"] = "run time"


class Stamps(Middleware):
    def before_send(self, sending: Sending) -> None:
        stamp(sending)


def living(app: App) -> Iterator[str]:
    yield "alive"


def added() -> None:
    """A task that the module of the app does not have."""


def nothing() -> None:
    """A hook of a process."""


REGISTERED: dict[str, tuple[Callable[[App], object], str]] = {
    "before_send": (lambda app: app.before_send(stamp), "before_send tests.worker"),
    "after_send": (lambda app: app.after_send(lambda *_: None), "after_send"),
    "on_send_error": (lambda app: app.on_send_error(lambda *_: None), "on_send_error"),
    "before_handle": (lambda app: app.before_handle(lambda _: None), "before_handle"),
    "after_handle": (lambda app: app.after_handle(lambda *_: None), "after_handle"),
    "on_error": (lambda app: app.on_error(lambda *_: None), "on_error"),
    "use": (lambda app: app.use(Stamps()), f"before_send {__name__}.Stamps"),
    "lifespan": (lambda app: app.lifespan(living), f"the lifespan {__name__}.living"),
    "on_process_start": (lambda app: app.on_process_start(nothing), "on_process_start"),
    "on_process_stop": (lambda app: app.on_process_stop(nothing), "on_process_stop"),
    "task": (lambda app: app.task(added), "the task 'added'"),
}


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_a_task_registered_at_run_time_is_refused_if_pool_processes_lack_it(program: Any) -> None:
    for add, _ in REGISTERED.values():
        add(program.app)
    said = refused(program.app)
    assert [named for _, named in REGISTERED.values() if named not in said] == []
    assert "Add it while the app's module" in said


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_a_task_registered_while_pool_processes_run_is_refused(program: Any) -> None:
    with program.app.worker(pool="process", threads=1):
        for add, _ in REGISTERED.values():
            with pytest.raises(RuntimeError, match="before the worker starts"):
                add(program.app)
        assert "added" not in program.app.tasks
    for add, _ in REGISTERED.values():
        add(program.app)


OTHER = """
from interlock import App

other = App({url!r})

@other.after_send
def noted(sending, job) -> None: ...

@other.task(queue="others")
def taken(k: int) -> None: ...
"""
"""Imports the other app when it is imported, or not before it sends."""
SENDING = {
    "at once": "from {name}_other import taken\n",
    "later": "",
}
SENDS = """
from {name} import app

@app.task(result_ttl=60)
def elsewhere() -> str:
    from {name}_other import other, taken
    sent = []
    other._hooks.add("after_send", lambda sending, job: sent.append(sending.headers.get("stamp")))
    taken.send(1)
    return sent[0]
"""
STAMPS = """
from {name}_other import other

@other.before_send
def stamp(sending) -> None:
    sending.headers["stamp"] = "imported"
"""
OF_SENDS = ["before_send", "after_send", "on_send_error", "use"]


@pytest.fixture(params=SENDING)
def two_apps(program: Any, tmp_path: Path, url: str, request: pytest.FixtureRequest) -> Any:
    """Two apps, of which the second is sent to by handlers of the first."""
    name = program.__name__
    program.app.retry = Retry(1)
    for suffix, text in {
        "other": OTHER.format(url=url),
        "sends": SENDING[request.param].format(name=name) + SENDS.format(name=name),
        "stamps": STAMPS.format(name=name),
    }.items():
        (tmp_path / f"{name}_{suffix}.py").write_text(text)
    program.other = importlib.import_module(f"{name}_other").other
    program.elsewhere = importlib.import_module(f"{name}_sends").elsewhere
    program.later = request.param == "later"
    yield program
    program.other.close()


@pytest.mark.parametrize("engine", ["redis"], indirect=True)
@pytest.mark.parametrize("what", OF_SENDS)
def test_a_task_added_to_another_app_at_run_time_is_refused_if_pool_processes_lack_it(
    two_apps: Any, what: str
) -> None:
    add, named = REGISTERED[what]
    add(two_apps.other)
    if two_apps.later:
        with two_apps.app.worker(pool="process", threads=1, queues="default"):
            with pytest.raises(JobFailed) as failed:
                two_apps.elsewhere.send().result(timeout=PATIENCE)
            said = str(failed.value)
    else:
        said = refused(two_apps.app)
    assert named in said
    assert f"another app, {two_apps.__name__}_other:other" in said
    assert two_apps.other._queue("others").stats().puts == 0


@pytest.mark.parametrize("engine", ["redis"], indirect=True)
@pytest.mark.parametrize("pool", POOLS)
def test_tasks_a_module_adds_to_another_app_exist_in_pool_processes(
    two_apps: Any, pool: str
) -> None:
    importlib.import_module(f"{two_apps.__name__}_stamps")
    with two_apps.app.worker(pool=pool, threads=1, queues="default") as worker:
        assert worker.wait_until_ready(PATIENCE), worker.broken
        assert two_apps.elsewhere.send().result(timeout=PATIENCE) == "imported"


@pytest.mark.parametrize("engine", ["redis"], indirect=True)
@pytest.mark.parametrize("pool", ["thread", "asyncio"])
def test_a_task_added_to_another_app_at_run_time_works_in_handlers_of_this_process(
    two_apps: Any, pool: str
) -> None:
    for what in OF_SENDS:
        REGISTERED[what][0](two_apps.other)
    with two_apps.app.worker(pool=pool, threads=1, queues="default") as worker:
        assert worker.wait_until_ready(PATIENCE), worker.broken
        assert two_apps.elsewhere.send().result(timeout=PATIENCE) == "run time"


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_settings_that_only_affect_workers_of_another_app_are_allowed(two_apps: Any) -> None:
    for what, (add, _) in REGISTERED.items():
        if what not in OF_SENDS:
            add(two_apps.other)
    with two_apps.app.worker(pool="process", threads=1, queues="default") as worker:
        assert worker.wait_until_ready(PATIENCE), worker.broken
        two_apps.other.before_handle(lambda _: None)
        for what in OF_SENDS:
            with pytest.raises(RuntimeError, match="another app, which may send through this one"):
                REGISTERED[what][0](two_apps.other)
        # The processes get nothing of an app that is made now.
        App("memory://").before_send(stamp)
    two_apps.other.before_send(stamp)


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_another_function_by_the_name_of_a_task_is_refused(program: Any) -> None:
    del program.app._tasks["failing"]
    program.app.task(name="failing")(added)
    assert f"the task 'failing' {__name__}.added" in refused(program.app)


@pytest.mark.parametrize("pool", ["thread", "asyncio"])
def test_a_task_registered_at_run_time_works_in_handlers_of_this_process(
    program: Any, pool: str
) -> None:
    for add, _ in REGISTERED.values():
        add(program.app)
    assert probed(program, pool)[4:6] == ["alive", "run time"]


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_hooks_of_a_worker_are_called_in_every_pool(program: Any, pool: str) -> None:
    said: list[str] = []
    program.app.on_worker_start(lambda: said.append("start"))
    program.app.on_worker_stop(lambda: said.append("stop"))
    with program.app.worker(pool=pool, threads=1) as worker:
        assert worker.wait_until_ready(PATIENCE), worker.broken
    assert said == ["start", "stop"]


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_a_retry_policy_that_cannot_be_pickled_is_refused_at_the_start(program: Any) -> None:
    class Mine(Exception):
        pass

    program.app.retry = Retry(on=(Mine,))
    with pytest.raises(ValueError, match=r"app\.retry.* cannot be sent to a process"):
        program.app.worker(pool="process", threads=1).start()


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_an_engine_in_memory_is_refused_to_a_handler_in_another_process(program: Any) -> None:
    program.app.retry = Retry(1)
    with program.app.worker(pool="process", threads=1) as worker:
        assert worker.wait_until_ready(PATIENCE), worker.broken
        job = program.probe.send()
        with pytest.raises(Exception, match="does not share that memory"):
            job.result(timeout=PATIENCE)


@pytest.mark.parametrize("pool", POOLS)
def test_a_worker_serves_all_queues_of_its_app_by_default(program: Any, pool: str) -> None:
    worker = program.app.worker(pool=pool, threads=2)
    assert worker.settings.queues == ("default", "seconds")
    with worker:
        assert worker.wait_until_ready(PATIENCE), worker.broken
        assert program.probe.send().result(timeout=PATIENCE)[0] == 2
    assert program.app.worker(queues="seconds").settings.queues == ("seconds",)
    assert App("memory://").worker().settings.queues == ("default",)


@pytest.mark.parametrize("pool", POOLS)
def test_a_timetable_added_at_run_time_is_used(program: Any, pool: str) -> None:
    program.app.every("1s", kwargs={"k": 3})(program.second)
    with program.app.worker(pool=pool, threads=1) as worker:
        assert worker.wait_until_ready(PATIENCE), worker.broken
        queue = program.app._queue("seconds")
        while not queue.stats().acks:
            queue.stats()


@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize("pool", POOLS)
def test_the_url_of_the_command_applies_in_handlers(
    program: Any, workers: Workers, url: str, pool: str, processes: str, tmp_path: Path
) -> None:
    worker = workers.start(
        "--url", url, "--pool", pool, "--concurrency", "2", "--processes", processes,
        app=f"{program.__name__}:app",
        INTERLOCK_URL=NOWHERE,
    ).ready()  # fmt: skip
    found = program.probe.send().result(timeout=PATIENCE)
    assert found[:2] == [2, True]
    assert worker.stopped() == 0, worker.output


CALLS = """
import sys
from interlock import Retry
from interlock.cli import main
from {name} import app, second
from {name}_later import stamp  # the processes of a pool import that too

app.url, app.retry, app.send_timeout = sys.argv[1], Retry(7), 3.5
app.every("1s", name="set at run time", kwargs={{"k": 3}})(second)
{added}
if __name__ == "__main__":
    flags = ["--processes", "2", "--pool", sys.argv[2], "--concurrency", "1"]
    sys.exit(main(["worker", "{name}:app", *flags]))
"""
ADDED = """
app.lifespan(lambda app: __import__("contextlib").nullcontext("alive"))
"""


def called(program: Any, folder: Path, url: str, pool: str, added: str) -> WorkerProcess:
    """Start a program that calls the command once it has set everything."""
    (folder / "calls.py").write_text(CALLS.format(name=program.__name__, added=added))
    return WorkerProcess([sys.executable, "calls.py", url, pool], folder, dict(os.environ))


@pytest.mark.parametrize("engine", ["redis"], indirect=True)
@pytest.mark.parametrize("pool", POOLS)
def test_settings_made_before_calling_the_command_apply_in_several_processes(
    program: Any, pool: str, tmp_path: Path, url: str
) -> None:
    worker = called(program, tmp_path, url, pool, ADDED if pool != "process" else "")
    try:
        worker.wait_for_line("2 workers are ready")
        found = program.probe.send().result(timeout=PATIENCE)
        state = None if pool == "process" else "alive"
        assert found[:6] == [2, True, 7, 3.5, state, "later"]
        queue = program.app._queue("seconds")
        wait_for(lambda: queue.stats().acks > 1, "no tick was sent")
        assert worker.stopped() == 0, worker.output
    finally:
        worker.process.kill()


@pytest.mark.parametrize("engine", ["redis"], indirect=True)
def test_several_processes_refuse_tasks_that_their_pool_processes_lack(
    program: Any, tmp_path: Path, url: str
) -> None:
    worker = called(program, tmp_path, url, "process", ADDED)
    assert worker.ended() == 1, worker.output
    assert "does not have the lifespan" in worker.output


def test_several_processes_are_refused_for_a_program_without_a_file(program: Any) -> None:
    text = CALLS.format(name=program.__name__, added="").replace(
        "if __name__", "if True or __name__"
    )
    done = subprocess.run(
        [sys.executable, "-", NOWHERE, "thread"],
        input=text, capture_output=True, text=True, timeout=PATIENCE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 2
    assert "this program is not a file" in done.stderr
