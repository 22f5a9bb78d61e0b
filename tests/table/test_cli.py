"""`interlock table`: tables looked at and changed from a shell."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock import SharedTable
from interlock.cli import main

Run = Callable[..., tuple[int, str, str]]
COLUMNS = ("app_id:U32", "background:bool", "unread:U32", "token:str:32", "raw:bytes:4", "load:F64")


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
    assert run("create", chosen, *COLUMNS, "--capacity", "1000")[0] == 0
    yield chosen
    SharedTable.remove(chosen)


def as_json(answer: tuple[int, str, str]) -> Any:
    code, out, err = answer
    assert (code, err) == (0, "")
    return json.loads(out)


def test_a_row_is_made_changed_raised_and_read(run: Run, name: str) -> None:
    assert run("set", name, "888888888", "app_id=666", "background=true", "token=t") == (0, "", "")
    assert run("incr", name, "888888888", "unread", "99") == (0, "99\n", "")
    assert run("incr", name, "888888888", "unread") == (0, "100\n", "")
    assert run("set", name, "888888888", "unread=1", "load=-1.5") == (0, "", "")
    assert run("get", name, "888888888", "unread") == (0, "1\n", "")
    expected = {
        "key": "888888888", "app_id": 666, "background": True, "unread": 1, "token": "t",
        "raw": "", "load": -1.5,
    }  # fmt: skip
    assert as_json(run("get", name, "888888888", "--json")) == expected
    assert run("get", name, "888888888")[1].splitlines()[:2] == ["app_id: 666", "background: true"]


def test_what_is_no_text_is_shown_all_the_same(run: Run, name: str) -> None:
    table: SharedTable[Any] = SharedTable.attach(name)
    values = {"app_id": 1, "background": False, "unread": 0, "token": "\x1b[2J", "load": 0.0}
    table[b"\xff"] = table.row(raw=b"\xfe\x00", **values)
    code, out, _ = run("scan", name)
    assert code == 0
    assert "\x1b" not in out
    assert "\\xff" in out
    (row,) = [json.loads(line) for line in run("scan", name, "--json")[1].splitlines()]
    assert row["key"] == {"base64": "/w=="}
    assert row["raw"] == {"base64": "/gA="}


def test_rows_are_listed_by_key_and_up_to_a_limit(run: Run, name: str) -> None:
    for number in range(20):
        run("set", name, f"user:{number}", f"unread={number}")
    assert len(run("scan", name)[1].splitlines()) == 21
    assert len(run("scan", name, "--match", "user:1?")[1].splitlines()) == 11
    assert len(run("scan", name, "--limit", "3", "--json")[1].splitlines()) == 3
    assert run("scan", name, "--match", "nobody*") == (0, "no rows\n", "")
    lines = run("export", name)[1].splitlines()
    assert lines[0] == "key,app_id,background,unread,token,raw,load"
    assert "user:7,0,false,7,,,0.0" in lines
    assert len(run("export", name, "--format", "jsonl")[1].splitlines()) == 20


def test_a_table_is_told_of_with_a_picture(run: Run, name: str) -> None:
    run("set", name, "a", "unread=1", "--ttl", "100")
    code, out, _ = run("info", name)
    assert code == 0
    assert "rows      1 of 1,000" in out
    assert out.count("level ") == 4
    facts = as_json(run("info", name, "--json"))
    assert (facts["rows"], facts["capacity"], len(facts["levels"])) == (1, 1000, 4)
    assert facts["columns"][3] == {"name": "token", "type": "str", "size": 32}
    assert name in run("list")[1]
    listed = [json.loads(line) for line in run("list", "--json")[1].splitlines()]
    assert name in [one["table"] for one in listed]
    assert f"{name}  rows 1 of 1,000" in run("watch", name, "--count", "1")[1]


def test_rows_and_tables_go_when_somebody_says_so(run: Run, name: str) -> None:
    run("set", name, "a")
    for command in ("reset", "remove"):
        code, out, err = run(command, name)
        assert (code, out) == (2, "")
        assert "say so with --yes" in err
    assert as_json(run("reset", name, "--yes", "--json")) == {"table": name, "deleted": 1}
    assert as_json(run("remove", name, "--yes", "--json")) == {"table": name, "removed": True}
    code, _, err = run("remove", name, "--yes")
    assert code == 1
    assert f"there is no table /dev/shm/interlock.{name}" in err


def test_a_table_in_a_file_is_named_by_its_path(run: Run, tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    assert run("create", place, "unread:U32")[0] == 0
    assert run("set", place, "a", "unread=5")[0] == 0
    assert run("get", place, "a", "unread") == (0, "5\n", "")
    assert run("remove", place, "--yes")[0] == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("get", "NAME", "nobody"), 1, "no row 'nobody'"),
        (("get", "NAME", "nobody", "unread"), 1, "no row 'nobody'"),
        (("get", "NAME", "a", "tokens"), 2, 'no column "tokens"; there are app_id'),
        (("get", "NAME", ""), 2, "key is empty"),
        (("get", "missing", "a"), 1, "no table /dev/shm/interlock.missing"),
        (("get", ".", "a"), 2, "is no name for a table"),
        (("set", "NAME", "a", "unread"), 2, "'unread'; allowed: COLUMN=VALUE"),
        (("set", "NAME", "a", "unread=-1"), 2, "column unread: -1 is not in 0 to"),
        (("set", "NAME", "a", "unread=x"), 2, "column unread is 'x'; allowed: a whole number"),
        (("set", "NAME", "a", "load=x"), 2, "column load is 'x'; allowed: a number"),
        (("set", "NAME", "a", "background=x"), 2, "allowed: true, false"),
        (("set", "NAME", "a", f"token={'x' * 33}"), 2, "33 bytes; its size is 32"),
        (("set", "NAME", "a", "no=1"), 2, "no column 'no'"),
        (("incr", "NAME", "a", "unread", "99999999999"), 1, "beyond its range"),
        (("incr", "NAME", "a", "token"), 2, "column token"),
        (("create", "NAME", "unread:U64"), 1, "has another schema"),
        (("create", "other", "unread:U33"), 2, "is no column"),
        (("create", "other", "token:str"), 2, "str and bytes have a size"),
    ],
)
def test_what_cannot_be_is_told_in_a_line(
    run: Run, name: str, words: tuple[str, ...], code: int, said: str
) -> None:
    run("set", name, "a")
    ended, out, err = run(*(name if word == "NAME" else word for word in words))
    assert (ended, out) == (code, "")
    assert said in err
    assert err.startswith("interlock: ")
