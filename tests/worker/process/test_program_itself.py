"""An app that a program itself defines, and what it sets at run time, in every pool."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.worker.workers import PATIENCE

POOLS = ["thread", "asyncio", "process"]
NOWHERE = "redis://127.0.0.1:1?timeout=0.1"

MAIN = """
import sys
from interlock import App

app = App("memory://main")

@app.task(keys="k:{k}", result_ttl=60)
def square(k: int) -> int:
    return k * k

def run() -> None:
    with app.worker(pool=sys.argv[1], threads=1) as worker:
        assert worker.wait_until_ready(40)
        print(square.send(8).result(timeout=40))
"""
GUARDED = MAIN + "\nif __name__ == '__main__':\n    run()\n"


def run_program(folder: Path, text: str, *command: str) -> tuple[str, str]:
    (folder / "program.py").write_text(text)
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=PATIENCE
    )
    return done.stdout, done.stderr


@pytest.mark.parametrize(
    ("pool", "how", "first"),
    [
        ("thread", ["program.py"], ""),
        ("asyncio", ["program.py"], ""),
        ("process", ["program.py"], ""),
        ("process", ["-m", "program"], ""),
        # It gives the program another name beside __main__.
        ("process", ["program.py"], "import multiprocessing\n"),
    ],
)
def test_an_app_defined_in_the_main_program_works_in_every_pool(
    tmp_path: Path, pool: str, how: list[str], first: str
) -> None:
    assert run_program(tmp_path, first + GUARDED, *how, pool) == ("64\n", "")


TWO_APPS = """
import sys
from interlock import App, Retry

url, pool = sys.argv[1:]
app = App("memory://pool")

class Kept:
    app = App({nowhere!r})

other = App({nowhere!r})
other.url = "redis://127.0.0.1:2?timeout=0.1"  # the program says otherwise below

@other.task(queue="others")
def named() -> None: ...

@Kept.app.task(queue="others")
def nameless() -> None: ...

@app.task(result_ttl=60)
def sends() -> list[object]:
    ids = named.send().id, nameless.send().id
    return [other.send_timeout, Kept.app.retry.attempts, len(set(ids))]

if __name__ == "__main__":
    app.url = other.url = Kept.app.url = url
    other.send_timeout, Kept.app.retry = 7.5, Retry(9)
    with app.worker(pool=pool, threads=1, queues="default"):
        print(sends.send().result(timeout=40), other._queue("others").qsize())
"""


@pytest.mark.parametrize("pool", POOLS)
def test_other_apps_in_the_main_program_keep_their_run_time_settings(
    tmp_path: Path, url: str, pool: str
) -> None:
    text = TWO_APPS.format(nowhere=NOWHERE)
    said, errors = run_program(tmp_path, text, "program.py", url, pool)
    assert said == "[7.5, 9, 2] 2\n", errors


ONE_OF_MANY = """
from interlock import App

def made() -> App:
    app = App()
    @app.task
    def handled() -> None: ...
    return app

app = made()
kept = [made(), made()]
if __name__ == "__main__":
    app.url = kept[0].url = "memory://named"
    app.worker(pool="process", threads=1).start()
"""


def test_an_app_that_processes_cannot_tell_from_another_is_named_in_the_log(tmp_path: Path) -> None:
    _, errors = run_program(tmp_path, ONE_OF_MANY, "program.py")
    assert "<App of 1 tasks on memory://named> was changed after it was created" in errors


def test_a_main_program_without_a_main_guard_is_refused_with_advice(
    tmp_path: Path,
) -> None:
    said, errors = run_program(tmp_path, MAIN + "\nrun()\n", "program.py", "process")
    assert not said
    assert "put the start under if __name__ == '__main__':" in errors.splitlines()[-1]


def test_an_app_in_a_program_without_a_file_is_refused(tmp_path: Path) -> None:
    said, errors = run_program(tmp_path, "", "-c", GUARDED, "process")
    assert not said
    assert "a program that is not a file" in errors.splitlines()[-1]
