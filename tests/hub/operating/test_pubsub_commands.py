"""`interlock pub` and `interlock sub`, with Redis and with the hub."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading

import pytest

from interlock.cli import main
from interlock.hub.client import Client
from tests.hub.servers import INTERLOCK, refusing


def subscribed(port: int, *words: str) -> subprocess.Popen[str]:
    """`interlock sub` once its subscriptions stand."""
    process = subprocess.Popen(
        [INTERLOCK, "sub", *words, "--url", f"127.0.0.1:{port}", "--seconds", "30"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said = process.stderr.readline()
    if not said.startswith("subscribed to "):
        raise AssertionError(said + process.communicate(timeout=20)[1])
    return process


def published(port: int, *words: str) -> int:
    return main(["pub", *words, "--url", f"127.0.0.1:{port}"])


def test_what_pub_publishes_sub_prints(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    process = subscribed(port, "a", "b", "--count", "3")
    assert published(port, "a", "one", "two words") == 0
    assert published(port, "c", "nobody") == 0
    assert published(port, "b", "three") == 0
    out, _ = process.communicate(timeout=20)
    assert out == "a one\na two words\nb three\n"
    assert process.returncode == 0
    assert capsys.readouterr().out == "1\n1\n0\n1\n"


def test_sub_takes_patterns_and_prints_json(port: int) -> None:
    process = subscribed(port, "a.*", "--pattern", "--json", "--count", "1")
    assert published(port, "a.b", "ä\n", "--quiet") == 0
    out, _ = process.communicate(timeout=20)
    assert json.loads(out) == {"topic": "a.b", "payload": "ä\n", "pattern": "a.*"}


def test_pub_reads_lines_and_quiet_prints_nothing(
    port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = b"".join(b"%d\n" % number for number in range(200)) + b"no end"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    with Client(f"127.0.0.1:{port}") as subscriber:
        subscriber.subscribe("a")
        assert published(port, "a", "--quiet") == 0
        found = [subscriber.message(5) for _ in range(201)]
    payloads = [message.payload for message in found if message is not None]
    assert payloads == [b"%d" % number for number in range(200)] + [b"no end"]
    assert capsys.readouterr().out == ""


def test_too_few_messages_are_1(port: int) -> None:
    address = f"127.0.0.1:{port}"
    assert main(["sub", "a", "--count", "1", "--seconds", "0.01", "--url", address]) == 1
    assert main(["sub", "a", "--seconds", "0.01", "--url", address]) == 0


@pytest.mark.parametrize("words", [["sub", "a"], ["pub", "a", "x"]])
def test_no_hub_is_1_and_a_wrong_address_is_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with refusing() as port:
        address = f"127.0.0.1:{port}"
        assert main([*words, "--url", address]) == 1
        assert capsys.readouterr().err == f"interlock: {address}: Connection refused\n"
    assert main([*words, "--url", "unix:/nowhere/s"]) == 1
    assert "No such file" in capsys.readouterr().err
    assert main([*words, "--url", "http://x"]) == 2
    assert "allowed: HOST:PORT" in capsys.readouterr().err


def test_sub_ends_with_1_when_the_connection_is_lost(port: int) -> None:
    process = subscribed(port, "lost")
    with Client(f"127.0.0.1:{port}") as client:
        client.call("CLIENT", "KILL", "TYPE", "pubsub")
    _, err = process.communicate(timeout=20)
    assert (process.returncode, "closed the connection" in err) == (1, True)


def test_a_reader_that_goes_away_is_no_error(port: int) -> None:
    process = subscribed(port, "a")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    stop = threading.Event()

    def publish() -> None:
        with Client(f"127.0.0.1:{port}") as client:
            while not stop.is_set():
                client.publish("a", "x")

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        assert process.wait(20) == 0
    finally:
        stop.set()
        thread.join()
        process.kill()
        process.stderr.close()
