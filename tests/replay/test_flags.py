"""Every flag has a test here, called test_<flag>_..., or the first of these fails."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from interlock.cli import main, parser
from interlock.cli.replay import FLAGS
from tests.replay.traces import KEPT, written


@pytest.fixture
def trace(tmp_path: Path) -> str:
    return str(written(tmp_path / "small.jsonl", list(KEPT)))


@pytest.fixture
def replayed(capsys: pytest.CaptureFixture[str]) -> Replayed:
    return Replayed(capsys)


class Replayed:
    """Calls the command with --json and gives its object."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *flags: str, work: str = "sleep:0s") -> dict[str, object]:
        assert main(["replay", *flags, "--work", work, "--json"]) == 0
        found = json.loads(self.capsys.readouterr().out)
        assert isinstance(found, dict)
        return found


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.name)
def test_every_flag_has_a_test_and_a_line_of_help(flag: object) -> None:
    assert hasattr(flag, "name")
    assert hasattr(flag, "help")
    start = "test_" + flag.name.removeprefix("--").replace("-", "_") + "_"
    assert [name for name in globals() if name.startswith(start)]
    assert len(flag.help) > 20


def test_the_parser_has_no_flag_that_is_not_declared(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(["replay", "--help"])
    assert ended.value.code == 0
    words = capsys.readouterr().out.replace("[", " ").replace("]", " ").split()
    flags = {word for word in words if word.startswith("--")}
    assert flags == {flag.name for flag in FLAGS} | {"--help"}


def test_git_replays_a_repository(replayed: Replayed, tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        settings = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *settings, *arguments], check=True)

    git("init", "-q")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-q", "-m", "one")
    found = replayed("--git", str(tmp_path))
    assert (found["messages"], found["keys"], found["trace"]) == (1, 1, tmp_path.name)


def test_workers_sets_how_many_threads_there_are(replayed: Replayed, trace: str) -> None:
    assert replayed(trace)["threads"] == 8
    assert replayed(trace, "--workers", "3")["threads"] == 3


def test_work_chooses_the_handler(replayed: Replayed, trace: str) -> None:
    assert replayed(trace, work="hash")["work"] == "hash"
    failed = replayed(trace, work="tests.replay.handlers:fail_on_3")
    assert failed["failures_found"] == [["3", "ValueError: not this one"]]


@pytest.mark.parametrize("way", ["queue", "executor", "taskgroup"])
def test_way_chooses_how_messages_are_run(replayed: Replayed, trace: str, way: str) -> None:
    found = replayed(trace, "--way", way)
    assert (found["way"], found["violations"], found["digest_matches"]) == (way, 0, True)


@pytest.mark.parametrize("pool", ["thread", "process", "asyncio"])
def test_pool_chooses_where_handlers_run(replayed: Replayed, trace: str, pool: str) -> None:
    found = replayed(trace, "--pool", pool, "--workers", "2")
    assert found["pool"] == pool
    assert (found["threads"], found["processes"]) == {
        "thread": (2, 0),
        "process": (2, 2),
        "asyncio": (1, 0),
    }[pool]


def test_url_replays_through_an_engine(replayed: Replayed, trace: str, redis_url: str) -> None:
    found = replayed(trace, "--url", redis_url)
    assert (found["way"], found["violations"], found["digest_matches"]) == ("redis", 0, True)


def test_compare_also_runs_the_usual_alternatives(replayed: Replayed, trace: str) -> None:
    rows = replayed(trace, "--compare")["compared"]
    assert isinstance(rows, list)
    assert [row["way"] for row in rows] == [
        "queue",
        "serial",
        "hash",
        "per-key",
        "rendezvous",
        "registry",
    ]


def test_json_prints_one_object_and_nothing_else(replayed: Replayed, trace: str) -> None:
    assert replayed(trace)["messages"] == 4


@pytest.mark.parametrize("suffix", [".html", ".svg"])
def test_picture_draws_the_run_into_a_file(
    replayed: Replayed, trace: str, tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"run{suffix}"
    replayed(trace, "--picture", str(path))
    assert suffix[1:] in path.read_text()[:200]


def test_skip_bad_counts_bad_lines_and_continues(replayed: Replayed, tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text('{"id": 1, "keys": []}\nnothing\n')
    found = replayed(str(path), "--skip-bad")
    assert (found["messages"], found["skipped"]) == (1, 1)
    assert "line 2: not JSON" in str(found["skipped_lines"])


def test_limit_replays_the_first_messages_only(replayed: Replayed, trace: str) -> None:
    assert replayed(trace, "--limit", "2")["messages"] == 2
    assert replayed(trace, "--limit", "200")["messages"] == 4


@pytest.fixture
def banks(tmp_path: Path) -> str:
    path = tmp_path / "banks.jsonl"
    lines = [{"id": n, "keys": [f"account:{n}"], "limit": "bank"} for n in range(6)]
    path.write_text("\n".join(map(json.dumps, lines)))
    return str(path)


def test_limits_are_those_of_the_run_and_the_report_compares_the_time_without_them(
    replayed: Replayed, banks: str, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = ["--limits", "bank=1,account:*=2"]
    found = replayed(banks, *limits, work="sleep:5ms")
    assert found["limits"] == {"bank": "1", "account:*": "2"}
    assert isinstance(found["seconds"], float) and found["seconds"] >= 6 * 0.005
    assert isinstance(found["unlimited_seconds"], float) and found["unlimited_seconds"] > 0
    found = replayed(banks)
    assert (found["limits"], found["unlimited_seconds"]) == ({}, None)
    assert main(["replay", banks, "--work", "sleep:1ms", *limits]) == 0
    said = capsys.readouterr().out
    assert "\nlimits      bank=1, account:*=2: " in said and " the time without them, " in said


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--limits", "bank"], "--limits has 'bank'; allowed: NAME=N"),
        (["--limits", "bank=0"], "limits['bank'] is 0; allowed: 1 to"),
        (["--limits", "bank=1", "--way", "executor"], "--limits with --way executor; allowed"),
    ],
)
def test_limits_that_are_wrong_are_refused(
    banks: str, flags: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["replay", banks, *flags])
    assert complaint in capsys.readouterr().err


@pytest.fixture
def tenants(tmp_path: Path) -> str:
    """20 messages of a loud tenant, and behind them 2 of a quiet one and 1 of none."""
    lines = [{"id": n, "keys": [], "payload": {"tenant": "loud"}} for n in range(20)]
    lines += [{"id": 20 + n, "keys": [f"q/{n}"], "tenant": 7} for n in range(2)]
    return str(written(tmp_path / "tenants.jsonl", [*lines, {"id": 22, "keys": []}]))


def test_group_compares_the_waits_of_each_group_with_and_without_turns(
    replayed: Replayed, tenants: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found: Any = replayed(tenants, "--group", "tenant")["groups"]
    assert found["groups"] == 3
    assert [(row["group"], row["messages"]) for row in found["largest"]] == [
        ("loud", 20),
        ("7", 2),
        (None, 1),
    ]
    assert 0 < found["index"] <= 1 and 0 < found["index_without"] <= 1
    assert replayed(tenants)["groups"] is None
    flags = ["--work", "sleep:0s", "--group", "tenant"]
    assert main(["replay", tenants, *flags]) == 0
    said = capsys.readouterr().out
    assert "\ngroups      3 groups: Jain's index of their throughputs 0." in said
    assert "\n  no group " in said and "\n  loud " in said


def test_group_may_be_a_key_or_its_part_before_a_separator(
    replayed: Replayed, tenants: str
) -> None:
    def groups(field: str) -> set[str | None]:
        found: Any = replayed(tenants, "--group", field)["groups"]
        return {row["group"] for row in found["largest"]}

    assert groups("key") == {None, "q/0", "q/1"}
    assert groups("key/") == {None, "q"}


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--group", "tenant", "--way", "executor"], "--group with --way executor; allowed"),
        (["--group", ""], "--group is empty; allowed: a field"),
    ],
)
def test_group_that_is_wrong_is_refused(
    tenants: str, flags: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["replay", tenants, *flags])
    assert complaint in capsys.readouterr().err


def test_group_that_is_not_text_is_a_bad_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(written(tmp_path / "bad.jsonl", [{"id": 1, "keys": [], "tenant": [1]}]))
    assert main(["replay", path, "--group", "tenant"]) == 2
    assert "line 1: tenant is" in capsys.readouterr().err
