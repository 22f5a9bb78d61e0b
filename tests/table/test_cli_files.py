"""`interlock table import` and `export`: odd files, and odd places for them."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock import SharedTable
from interlock.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str) -> tuple[int, str, str]:
        code = main(["table", *words])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def name(run: Run) -> Iterator[str]:
    chosen = f"cli-{uuid.uuid4().hex}"
    assert (
        run("create", chosen, "background:bool", "app_id:U32", "unread:U32", "--capacity", "1000")[
            0
        ]
        == 0
    )
    yield chosen
    SharedTable.remove(chosen)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"key":"a","_expires":5}', "_expires is int"),
        ('{"key":"a","_expires":0}', "_expires is int"),
        ('{"key":"a","_expires":[1]}', "_expires is list"),
        ('{"key":' + "[" * 200_000, "is not JSON"),
        ("key,unread,unread\na,1,2\n", "'unread' twice"),
        ("key,_expires\na,yesterday\n", "yesterday"),
    ],
)
def test_a_malformed_file_is_refused_in_one_line(
    run: Run, name: str, tmp_path: Path, text: str, words: str
) -> None:
    file = tmp_path / "rows"
    file.write_text(text)
    code, _, err = run("import", name, str(file))
    assert code == 2 and words in err and err.count("\n") == 1
    assert len(SharedTable.attach(name)) == 0


def test_a_file_may_begin_with_a_byte_order_mark_and_omit_the_time_zone(
    run: Run, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    time.tzset()
    file = tmp_path / "rows"
    at = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    for text in ("key,_expires\na,{}\n", '{{"key":"a","_expires":"{}"}}\n'):
        for given in (at, at.replace(tzinfo=None)):
            file.write_text("\ufeff" + text.format(given.isoformat()), encoding="utf-8")
            assert run("import", name, str(file))[:2] == (0, f"{name}  1 rows set\n")
            left = SharedTable.attach(name).ttl("a")
            assert left is not None and 3500 < left <= 3600
            SharedTable.attach(name).clear()
    monkeypatch.undo()
    time.tzset()


def test_an_export_does_not_replace_a_pipe_or_device(run: Run, name: str, tmp_path: Path) -> None:
    assert run("set", name, "a", "unread=7")[0] == 0
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    assert run("export", name, "--to", str(pipe))[0] == 0
    reader.join()
    assert read[0].splitlines()[1].startswith("a,false,0,7,")
    assert pipe.is_fifo()
    (tmp_path / "link").symlink_to(tmp_path / "rows")
    for _ in range(2):
        assert run("export", name, "--to", str(tmp_path / "link"))[0] == 0
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "rows").read_text() == read[0]


def test_a_closed_standard_output_causes_no_traceback(name: str) -> None:
    command = f'exec "{sys.executable}" -m interlock table info {name} >&-'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr


TEXTS = ["a\rb", "a\r", "\r", "a\nb", "a\r\nb", "\n", '"', ",", " a ", "\x00", "\x85", "\u2028"]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_random_rows_are_unchanged_by_export_and_import(
    run: Run, name: str, tmp_path: Path, form: str
) -> None:
    names = [f"{name}-{n}" for n in range(2)]
    for made in names:
        assert run("create", made, "note:str[8]", "--capacity", "100")[0] == 0
    try:
        table: SharedTable[Any] = SharedTable.attach(names[0])
        table.update({text: table.row(note=text) for text in TEXTS})
        path = str(tmp_path / "export")
        assert run("export", names[0], "--to", path, "--format", form)[0] == 0
        assert run("import", names[1], path)[0] == 0
        read: SharedTable[Any] = SharedTable.attach(names[1])
        assert {key: row.note for key, row in read.items()} == {text: text for text in TEXTS}
    finally:
        for made in names:
            SharedTable.remove(made)
