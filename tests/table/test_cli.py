"""`interlock table`: tables looked at and changed from a shell."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock import SharedTable
from interlock.cli import main

Run = Callable[..., tuple[int, str, str]]
COLUMNS = ("app_id:U32", "background:bool", "unread:U32", "token:str:32", "raw:bytes:9", "load:F64")


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


def test_a_row_is_created_changed_incremented_and_read(run: Run, name: str) -> None:
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


def test_bytes_that_are_not_text_are_shown_escaped(run: Run, name: str) -> None:
    table: SharedTable[Any] = SharedTable.attach(name)
    values = {"app_id": 1, "background": False, "unread": 0, "token": "\x1b[2J", "load": 0.0}
    table[b"\xff"] = table.row(raw=b"\xfe\x00", **values)
    code, out, _ = run("scan", name)
    assert code == 0
    assert "\x1b" not in out
    assert "base64:/w==" in out
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
    assert lines[0] == "key,app_id,background,unread,token,raw,load,_expires"
    assert "user:7,0,false,7,,,0.0," in lines
    assert len(run("export", name, "--format", "jsonl")[1].splitlines()) == 20


def test_info_describes_a_table_with_a_drawing(run: Run, name: str) -> None:
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


def test_rows_and_tables_are_deleted_only_after_confirmation(run: Run, name: str) -> None:
    run("set", name, "a")
    for command in ("reset", "remove"):
        code, out, err = run(command, name)
        assert (code, out) == (2, "")
        assert "confirm with --yes" in err
    assert as_json(run("reset", name, "--yes", "--json")) == {"table": name, "deleted": 1}
    assert as_json(run("remove", name, "--yes", "--json")) == {"table": name, "removed": True}
    code, _, err = run("remove", name, "--yes")
    assert code == 1
    assert f"there is no table /dev/shm/interlock.{name}" in err


ODD = (
    ("plain", 5, True, 7, "t", b"\x00\xff", 0.5),
    ("base64:/w==", 1, False, 0, "base64:", b"abc", 1e300),
    ("line\nend, \"quoted\"", 2, True, 1, "häß\r\n,'", b"base64:\n", float("inf")),
    (b"\xff\x00", 3, False, 4_294_967_295, "nul\0", b"", -0.1), (" ", 0, False, 0, "", b"\n", 3.0),
)  # fmt: skip


@pytest.mark.parametrize("format", ["csv", "jsonl", "arrow"])
def test_an_export_is_imported_unchanged(run: Run, name: str, format: str, tmp_path: Path) -> None:
    table: SharedTable[Any] = SharedTable.attach(name)
    for key, *values in ODD:
        table[key] = table.row(**dict(zip(table.row.__struct_fields__, values, strict=True)))
    table.expire("plain", 1000)
    before = dict(table.items())
    file = str(tmp_path / "rows")
    exported = run("export", name, "--format", format, "--to", file, "--keys", "bytes")
    assert exported == (0, "", f"5 rows in {file}\n")
    table["plain"] = table["plain"]
    table.pop(" ")
    kept = as_json(run("import", name, file, "--absent", "--json"))
    assert kept == {"table": name, "set": 1, "present": 4, "expired": 0}
    assert run("import", name, file) == (0, f"{name}  5 rows set\n", "")
    assert table == before
    assert table.ttl(" ") is None and 900 < (table.ttl("plain") or 0) <= 1000
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]


def test_expired_rows_are_not_imported(run: Run, name: str, tmp_path: Path) -> None:
    file = tmp_path / "rows"
    file.write_text("key,unread,_expires\na,1,2001-01-01T00:00:00+00:00\nb,2,\n")
    assert run("import", name, str(file)) == (0, f"{name}  1 rows set, 1 had expired\n", "")
    assert run("get", name, "b", "unread")[1] == "2\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "key,unread\na,1\nb,-1\n",
            "row 2: column unread: -1 is not in 0 to 4294967295; 1 before it",
        ),
        (
            "key,unread\na,1\nb,x\n",
            "row 2: column unread is 'x'; allowed: a whole number; 1 before",
        ),
        ("key,unread\na\n", "line 2 has fewer cells than the first"),
        ("key,unread\na,1,2\n", "line 2 has more cells than the first"),
        ("key,no\na,1\n", "there is no column 'no'; there are app_id"),
        ("unread\n1\n", "there is no 'key'"),
        ('{"key": "a"}\n{"key": \n', "line 2 is not JSON"),
        ('{"key": "a"}\n[]\n', "line 2 is not a JSON object"),
        ('{"key": 5}\n', "the key is int; allowed: text"),
        ('{"key": "a", "unread": true}\n', "column unread is bool; allowed: int"),
        ('{"key": "a", "raw": {"base64": "?"}}\n', "row 1: "),
        ("key,_expires\na,soon\n", "Invalid isoformat string"),
    ],
)
def test_a_malformed_export_is_reported_with_its_line(
    run: Run, name: str, tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "rows").write_text(text)
    code, out, err = run("import", name, str(tmp_path / "rows"))
    assert (code, out) == (2, "")
    assert said in err and err.startswith("interlock: ")


def test_an_export_can_be_piped(run: Run, name: str) -> None:
    run("set", name, "a", "unread=3", "token=häß")
    other = f"{name}-2"
    program = [sys.executable, "-m", "interlock", "table"]
    try:
        run("create", other, *COLUMNS)
        for format in ("csv", "jsonl", "arrow"):
            words = ["export", name, "--format", format]
            exported = subprocess.run([*program, *words], capture_output=True, check=True).stdout
            ended = subprocess.run([*program, "import", other], input=exported, capture_output=True)
            assert (ended.stdout, ended.stderr) == (f"{other}  1 rows set\n".encode(), b"")
        assert run("get", other, "a")[1] == run("get", name, "a")[1]
    finally:
        SharedTable.remove(other)


def test_an_expiry_is_shown(run: Run, name: str) -> None:
    run("set", name, "a", "unread=1", "--ttl", "100")
    assert "expires in " in run("get", name, "a")[1]
    assert run("scan", name)[1].split()[-1] == "s"
    for words in (("get", name, "a"), ("scan", name), ("export", name)):
        assert as_json(run(*words, "--json"))["_expires"].endswith("+00:00")


def test_keys_that_are_not_text_are_written_in_base64(run: Run, name: str) -> None:
    assert run("set", name, "base64:/w==", "unread=1", "raw=base64:/gA=")[0] == 0
    assert b"\xff" in SharedTable.attach(name)
    assert run("get", name, "base64:/w==", "raw") == (0, "base64:/gA=\n", "")
    assert run("get", name, "base64:/g==") == (1, "", "interlock: no row 'base64:/g=='\n")
    assert "is not base64" in run("get", name, "base64:?")[2]


def test_a_misspelled_table_name_gets_a_suggestion(run: Run, name: str) -> None:
    code, _, err = run("info", name[:-1])
    assert code == 1
    assert f"; did you mean {name}?" in err


def test_a_damaged_table_is_removed_by_name_and_not_by_path(run: Run, tmp_path: Path) -> None:
    name = f"cli-{uuid.uuid4().hex}"
    noise = b"no table " * 1000
    for path in (Path(f"/dev/shm/interlock.{name}"), tmp_path / "file"):
        path.write_bytes(noise)
        path.chmod(0o600)
    assert run("info", name)[0] == 1
    code, out, err = run("remove", name)
    assert (code, out) == (2, "")
    assert "is not a table: it does not begin as one; remove it? confirm with --yes" in err
    assert run("remove", name, "--yes") == (0, f"{name}  removed\n", "")
    assert "does not begin as one" in run("remove", str(tmp_path / "file"), "--yes")[2]
    assert (tmp_path / "file").read_bytes() == noise


def test_an_error_of_a_file_names_it(run: Run, name: str, tmp_path: Path) -> None:
    missing = str(tmp_path / "no" / "rows")
    for words in (("import", name, missing), ("export", name, "--to", missing)):
        code, out, err = run(*words)
        assert (code, out) == (1, "") and err.startswith(f"interlock: {missing}")
        assert err.endswith(": No such file or directory\n")
    (tmp_path / "rows").write_bytes(b"\xff\xfe\x00")
    said = (2, "", "interlock: not a CSV, JSON lines or Arrow file: invalid start byte\n")
    assert run("import", name, str(tmp_path / "rows")) == said
    (tmp_path / "rows").write_bytes(b"ARROW1\0\0noise")
    assert "interlock: not an Arrow file: " in run("import", name, str(tmp_path / "rows"))[2]


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
        (("get", ".", "a"), 2, "is not a valid name for a table"),
        (("set", "NAME", "a", "unread"), 2, "'unread'; allowed: COLUMN=VALUE"),
        (("set", "NAME", "a", "unread=-1"), 2, "column unread: -1 is not in 0 to"),
        (("set", "NAME", "a", "unread=x"), 2, "column unread is 'x'; allowed: a whole number"),
        (("set", "NAME", "a", "load=x"), 2, "column load is 'x'; allowed: a number"),
        (("set", "NAME", "a", "background=x"), 2, "allowed: true, false"),
        (("set", "NAME", "a", f"token={'x' * 33}"), 2, "33 bytes; its size is 32"),
        (("set", "NAME", "a", "unread=1", "unread=2"), 2, "column unread is given twice"),
        (("set", "NAME", "a", "no=1"), 2, "no column 'no'"),
        (("incr", "NAME", "a", "unread", "99999999999"), 1, "beyond its range"),
        (("incr", "NAME", "a", "token"), 2, "column token"),
        (("create", "NAME", "unread:U64"), 1, "has another schema"),
        (("create", "other", "unread:U33"), 2, "is not a column"),
        (("create", "other", "token:str"), 2, "str and bytes have a size"),
    ],
)
def test_an_error_is_one_line(
    run: Run, name: str, words: tuple[str, ...], code: int, said: str
) -> None:
    run("set", name, "a")
    ended, out, err = run(*(name if word == "NAME" else word for word in words))
    assert (ended, out) == (code, "")
    assert said in err
    assert err.startswith("interlock: ")


def test_control_characters_in_a_name_are_escaped(run: Run) -> None:
    name = f"cli-\x1b[31m\n{uuid.uuid4().hex}"
    try:
        for words in (("create", name, "a:U8"), ("info", name), ("remove", name)):
            _, out, err = run(*words)
            assert "\x1b" not in out + err and "\\x1b[31m\\n" in out + err
    finally:
        SharedTable.remove(name)
    _, out, err = run("info", name)
    assert "\x1b" not in err and "there is no table" in err


def test_create_reports_whether_the_table_existed(run: Run, name: str) -> None:
    code, out, _ = run("create", name, *COLUMNS, "--capacity", "5")
    assert code == 0 and out.endswith("capacity 1,000  was there\n")
    assert as_json(run("create", name, *COLUMNS, "--json"))["created"] is False
    other = f"{name}-other"
    try:
        assert as_json(run("create", other, "a:U8", "--json"))["created"] is True
    finally:
        SharedTable.remove(other)


def test_info_shows_the_memory_of_a_slot(run: Run, name: str) -> None:
    told = as_json(run("info", name, "--json"))
    assert told["bytes"] > sum(level["slots"] for level in told["levels"]) * told["slot_bytes"]
    assert f"{told['slot_bytes']} per slot" in run("info", name)[1]
