"""The command: exit codes, what goes where, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from interlock.cli import main
from interlock.replay import report
from tests.replay.traces import KEPT, written

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def trace(tmp_path: Path) -> str:
    return str(written(tmp_path / "small.jsonl", list(KEPT)))


def test_a_run_in_order_exits_with_0_data_on_stdout_and_progress_on_stderr(
    trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", trace, "--work", "sleep:0s"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("small.jsonl: 4 messages on 4 keys")
    assert "\x1b" not in out + err
    assert err.startswith("queue ")


def test_violations_exit_with_1(
    trace: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    summarise = report.summarise

    def with_violation(*given: object, **named: object) -> report.Summary:
        return summarise(*given, **named) | {"violations": 1}  # type: ignore[arg-type]

    monkeypatch.setattr(report, "summarise", with_violation)
    assert main(["replay", trace, "--work", "sleep:0s"]) == 1
    assert "violations  1" in capsys.readouterr().out


def test_a_different_digest_exits_with_1(trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.replay.watch.serial_digest", lambda messages: "another")
    assert main(["replay", trace, "--work", "sleep:0s"]) == 1


def test_a_run_that_breaks_exits_with_1_and_says_why(
    trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    work = "tests.replay.handlers:die"
    assert main(["replay", trace, "--work", work, "--pool", "process", "--workers", "2"]) == 1
    assert "the run failed: BrokenProcessPool" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ("nothing\n", "small.jsonl, line 1: not JSON"),
        ('{"id": 1, "keys": []}\n{"id": 2, "keys": 1.5}\n', "line 2: keys is a number (1.5)"),
    ],
)
def test_bad_input_exits_with_2_naming_file_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: str, complaint: str
) -> None:
    path = tmp_path / "small.jsonl"
    path.write_text(lines)
    assert main(["replay", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert complaint in err


def test_an_unreadable_file_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(tmp_path / "missing")]) == 2
    assert "missing: No such file or directory" in capsys.readouterr().err
    assert main(["replay", str(tmp_path)]) == 2
    assert "Is a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ([], "give either TRACE or --git REPO"),
        (["TRACE", "--git", "."], "give either TRACE or --git REPO"),
        (["TRACE", "--workers", "0"], "--workers: '0'; allowed: a whole number from 1"),
        (["TRACE", "--workers", "many"], "--workers: 'many'; allowed: a whole number from 1"),
        (["TRACE", "--way", "kafka"], "--way: invalid choice: 'kafka'"),
        (["TRACE", "--pool", "fiber"], "--pool: invalid choice: 'fiber'"),
        (["TRACE", "--way", "executor", "--pool", "asyncio"],
         "--pool asyncio; allowed with --way executor: thread, process"),
        (["TRACE", "--picture", "run.png"], "allowed: a file that ends in .html or .svg"),
        (["TRACE", "--picture", "/no/such/folder/run.svg"], "there is no folder /no/such/folder"),
        (["TRACE", "--speed", "2"], "unrecognized arguments: --speed 2"),
    ],
)  # fmt: skip
def test_wrong_usage_exits_with_2_and_says_what_is_allowed(
    trace: str, capsys: pytest.CaptureFixture[str], flags: list[str], complaint: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["replay", *(trace if flag == "TRACE" else flag for flag in flags)])
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_invalid_work_exits_with_2(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", trace, "--work", "sleep"]) == 2
    said = capsys.readouterr().err
    assert "allowed: sleep:1ms, spin:100us, hash, recorded, module:function" in said


def test_work_that_cannot_be_pickled_exits_with_2(
    trace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "with_lambda.py").write_text("handle = lambda message: None")
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["replay", trace, "--work", "with_lambda:handle", "--pool", "process"]) == 2
    assert "cannot go to another process" in capsys.readouterr().err


@contextmanager
def command(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "interlock", "replay", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            # A test that failed halfway would wait for it for ever.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_the_module_runs_as_the_command_does(trace: str) -> None:
    with command(trace, "--work", "sleep:0s", "--json") as process:
        out, _ = process.communicate()
    assert process.returncode == 0
    assert json.loads(out)["messages"] == 4


@pytest.mark.parametrize(
    "flags",
    [
        ["--work", "tests.replay.handlers:hang"],
        ["--work", "tests.replay.handlers:hang_on_loop", "--pool", "asyncio"],
        ["--work", "tests.replay.handlers:hang_on_loop", "--way", "taskgroup"],
        ["--work", "tests.replay.handlers:hang_on_loop"],
        ["--work", "tests.replay.handlers:hang", "--way", "executor"],
        ["--work", "tests.replay.handlers:hang", "--pool", "process"],
        ["--work", "tests.replay.handlers:hang", "--pool", "process", "--way", "executor"],
    ],
)
@pytest.mark.parametrize("to", ["the process", "the group"])
def test_ctrl_c_ends_a_run_whose_handlers_never_return_with_130(
    trace: str, flags: list[str], to: str
) -> None:
    with command(trace, *flags) as process:
        assert process.stderr is not None
        while process.stderr.readline() != "hanging\n":
            assert process.poll() is None
        if to == "the group":
            # As a terminal does, to the processes of a pool too.
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
        # The processes of a pool write to the same pipes: these end when none of them is left.
        out, err = process.communicate()
    assert process.returncode == 130
    assert out == ""
    assert "interlock: interrupted" in err
    assert "Traceback" not in err


def test_a_closed_output_pipe_is_not_an_error(trace: str) -> None:
    read, write = os.pipe()
    os.close(read)
    process = subprocess.run(
        [sys.executable, "-m", "interlock", "replay", trace, "--work", "sleep:0s"],
        cwd=ROOT,
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write)
    assert process.returncode == 0
    assert b"Traceback" not in process.stderr
    assert b"BrokenPipe" not in process.stderr


@pytest.mark.parametrize("no_color", ["", "1"])
def test_no_color_turns_color_off_on_a_terminal(
    trace: str,
    no_color: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", no_color)
    assert main(["replay", trace, "--work", "sleep:0s"]) == 0
    assert ("\x1b[" in capsys.readouterr().out) is not bool(no_color)
