"""`interlock dashboard` as a process: what it says, what it refuses, how it ends."""

from __future__ import annotations

import json
import logging
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from interlock.cli import main


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(["dashboard", *words])
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--url", "memory://x"), "memory:// has only the queues of its own process"),
        (("--url", "ftp://x"), "connect()"),
        (("--url", "redis://a", "--login", "none", "--host", "0.0.0.0"), "login"),
        (("--url", "redis://a", "--port", "70000"), "--port"),
        (("--url", "redis://a", "--token-file", "/nowhere/at/all"), "No such file"),
        (("--url", "redis://a", "--base-path", "x y"), "base path"),
        (("--url", "redis://a", "--login", "engine", "--token-file", "x"), "--token-file"),
    ],
)
def test_wrong_usage_is_reported(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    code, err = refused(capsys, *words)
    assert code == 2 and said in err


def test_no_engine_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INTERLOCK_URL", raising=False)
    code, err = refused(capsys)
    assert code == 2 and "INTERLOCK_URL" in err


def test_short_and_empty_tokens_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for text, said in (("", "no token"), ("short\n", "characters")):
        file = tmp_path / "token"
        file.write_text(text)
        code, err = refused(capsys, "--url", "redis://a", "--token-file", str(file))
        assert code == 2 and said in err


def test_a_port_in_use_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    before = list(logging.getLogger("interlock.audit").handlers)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, err = refused(capsys, "--url", "redis://127.0.0.1:1", "--port", port)
    assert code == 1 and "cannot serve on" in err
    # The handlers it added would write to a stream that its caller has since closed.
    assert logging.getLogger("interlock.audit").handlers == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_serves_until_a_signal(redis_url: str, number: int) -> None:
    command = [sys.executable, "-m", "interlock", "dashboard", "--url", redis_url, "--port", "0"]
    command += ["--json", "--login", "token"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as it:
        assert it.stdout is not None
        try:
            said = json.loads(it.stdout.readline())
            header = {"Authorization": f"Bearer {said['token']}"}
            with (
                httpx.Client(
                    base_url=said["url"], headers=header, verify=False, timeout=30
                ) as client,
                client.stream("GET", "/api/live", timeout=30) as stream,
            ):
                assert client.get("/api/server").json()["login"] == "token"
                lines = stream.iter_lines()
                assert next(lines) == "retry: 1000"
                it.send_signal(number)
                # The stream ends at once, and well.
                assert list(lines) is not None
            out, err = it.communicate(timeout=30)
        finally:
            it.kill()
    assert it.returncode == 0, err
    # The server of the tests writes nothing to its disk, of which a client warns.
    others = [line for line in err.splitlines() if "appendonly is no" not in line]
    assert out == "" and others == []
