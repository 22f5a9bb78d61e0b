"""`interlock send` and `interlock completion`."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from interlock import App
from interlock.app.argument_text import value_of
from interlock.cli import main
from interlock.cli.completion import FILES
from tests.cli import sent_tasks

HERE = "tests.cli.sent_tasks"
ORDER = '{"id": 7, "customer": "ann"}'


@pytest.fixture
def url(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("INTERLOCK_URL", redis_url)
    monkeypatch.setattr(sent_tasks.app, "url", None)
    yield redis_url
    sent_tasks.app.close()


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["send", *words])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_a_call_is_sent_and_its_id_is_printed(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, f"{HERE}:ship", ORDER, "2026-07-01", "5", "b", "--delay", "1000")
    assert (code, err) == (0, "")
    with App(url) as other:
        queue = other._queue("default")
        (message,) = [one for one in queue.messages() if one.id == int(out)]
        assert (message.state, message.keys) == ("delayed", {b"order:7"})
        assert message.shared == {b"day:2026-07-01"}
        assert queue.cancel(message.id)


def test_send_prints_json_and_a_dedup_string_is_sent_once(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = uuid.uuid4().hex
    words = (f"{HERE}:app:shop.note", "text", "--dedup", name, "--kw", "colour=r", "--json")
    code, out, _ = said(capsys, *words)
    first = json.loads(out)
    assert (code, first["known"], first["task"], first["queue"]) == (0, False, "shop.note", "slow")
    code, out, err = said(capsys, *words)
    assert (code, json.loads(out)) == (0, {**first, "known": True})
    assert "nothing was sent" in err


def test_a_send_that_replaces_the_arguments_of_an_earlier_one_says_so(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (f"{HERE}:price", uuid.uuid4().hex)
    code, out, err = said(capsys, *words, "100", "--json")
    first = json.loads(out)
    assert (code, first["replaced"], err) == (0, False, "")
    code, out, err = said(capsys, *words, "101", "--json")
    assert (code, json.loads(out)) == (0, {**first, "replaced": True})
    assert "has these arguments now" in err
    with App(url) as other:
        assert other._queue("default").cancel(first["id"])


def test_send_can_wait_for_the_result(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with App(url) as other:
        other.task(keys="order:{order.id}", result_ttl=60)(sent_tasks.ship.function)
        with other.worker(threads=1):
            words = (f"{HERE}:ship", ORDER, "2026-07-01", "5", "--wait")
            code, out, err = said(capsys, *words)
            assert (code, out) == (0, "[7, 'ann', '2026-07-01', ['5']]\n".replace("'", '"'))
            assert "is sent" in err
            code, out, err = said(capsys, *words, "--kw", "rush=true")
            assert (code, out) == (1, "") and "failed: no rush (rejected)" in err
            code, out, _ = said(capsys, *words, "--kw", "rush=true", "--json")
            assert (code, json.loads(out)["reason"]) == (1, "rejected")
    code, _, err = said(capsys, *words, "--timeout", "0.01", "--expires", "1")
    assert code == 1 and "was not settled in time" in err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((f"{HERE}:ship", "7", "2026-07-01"), "argument 'order' of ship(order: "),
        ((f"{HERE}:ship", ORDER, "July"), "argument 'day' of ship("),
        ((f"{HERE}:ship", ORDER), "missing a required argument: 'day'"),
        ((f"{HERE}:ship", ORDER, "2026-07-01", "--kw", "rush=yes"), "argument 'rush' of ship("),
        ((f"{HERE}:ship", ORDER, "2026-07-01", "--kw", "soon=1"), "has no argument 'soon'"),
        ((f"{HERE}:note", "a", "null", '"r"', "b"), "takes 3 arguments; 4 given"),
        ((f"{HERE}:note", "a", "no"), "argument 'one' of note("),
        ((f"{HERE}:note", "a", "--kw", "text=b"), "multiple values for argument 'text'"),
        ((f"{HERE}:note", "a", "--kw", "text"), "--kw is 'text'; allowed: NAME=VALUE"),
        ((f"{HERE}:note", "text=b"), "write --kw text=b"),
        ((f"{HERE}:note", "a", "--wait"), "the task 'shop.note' keeps no results"),
        ((f"{HERE}:note", "a", "--priority", "900"), "priority is 900"),
        ((f"{HERE}:app", "a"), f"{HERE}:app is an app; add the name of a task"),
        ((f"{HERE}:no_task",), "int is the 'no_task' in the module"),
        ((f"{HERE}:gone",), "its tasks: ship, note"),
        ((f"{HERE}:app:gone",), "it has ship, shop.note"),
        (("nowhere_at_all:task",), "there is no module 'nowhere_at_all'"),
        (("ship",), "'ship' is not a reference to a task"),
    ],
)
def test_an_invalid_argument_is_named(
    url: str, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], text: str
) -> None:
    code, out, err = said(capsys, *words)
    assert (code, out) == (2, "")
    assert text in err


def test_sending_to_a_memory_engine_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INTERLOCK_URL", raising=False)
    monkeypatch.setattr(sent_tasks.app, "url", None)
    code, _, err = said(capsys, f"{HERE}:note", "a")
    assert code == 2 and "no worker would handle it; give --url" in err


def test_an_unreachable_engine_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    away = "redis://127.0.0.1:1?timeout=0.1"
    code, _, err = said(capsys, f"{HERE}:note", "a", "--url", away)
    assert code == 1 and "did not answer" in err
    sent_tasks.app.url = None


@dataclasses.dataclass
class Unknown:
    field: Nowhere  # type: ignore[name-defined]  # noqa: F821


def test_deeply_nested_json_raises_value_error_and_a_class_of_unknown_fields_does_not() -> None:
    with pytest.raises(ValueError, match="recursion"):
        value_of("[" * 100_000, Any)
    assert value_of('{"field": 1}', Unknown) == {"field": 1}


class Size(enum.Enum):
    LARGE = 3


@pytest.mark.parametrize(
    ("text", "hint", "value"),
    [
        ("7", str, "7"),
        ("7", int, 7),
        ("-1.5", float, -1.5),
        ("true", bool, True),
        ("null", str | None, None),
        ("7", str | None, "7"),
        ("a b", str | None, "a b"),
        ("a", bytes, b"a"),
        ("2026-07-01", dt.date, dt.date(2026, 7, 1)),
        ('"2026-07-01"', dt.date, dt.date(2026, 7, 1)),
        ("3", Size, Size.LARGE),
        ("b", Literal["a", "b"], "b"),
        ('["a"]', list[str], ["a"]),
        ("[1, 2]", Any, [1, 2]),
        ("plain", Any, "plain"),
    ],
)
def test_a_text_argument_is_converted_by_its_annotation(
    text: str, hint: Any, value: object
) -> None:
    assert value_of(text, hint) == value


@pytest.mark.parametrize("shell", FILES)
def test_completion_prints_the_packaged_file(
    capsys: pytest.CaptureFixture[str], shell: str
) -> None:
    assert main(["completion", shell]) == 0
    kept = Path(__file__).parents[2] / "packaging" / "data" / "share" / FILES[shell]
    assert capsys.readouterr().out == kept.read_text(encoding="utf-8")


def test_bash_accepts_the_completion_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    main(["completion", "bash"])
    (tmp_path / "completion").write_text(capsys.readouterr().out, encoding="utf-8")
    done = subprocess.run(
        ["bash", "--norc", "-c", "source completion && complete -p interlock"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, "-F" in done.stdout) == (0, True), done.stderr
