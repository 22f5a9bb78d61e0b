"""redis-cli and redis-benchmark, unchanged, as they are used."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import interlock
from interlock.hub import passwords
from interlock.hub.client import Client
from tests.hub.protocol.certificates import Authority
from tests.hub.servers import needs_hub, program


def cli(port: int, *words: str, given: str | None = None) -> str:
    done = subprocess.run(
        [program("redis-cli"), "-p", str(port), *words],
        input=given,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("flags", [(), ("-2",), ("-3",)])
def test_redis_cli_speaks_both_protocols(port: int, flags: tuple[str, ...]) -> None:
    assert cli(port, *flags, "PING") == "PONG\n"
    assert cli(port, *flags, "PUBLISH", "a", "x") == "0\n"
    assert cli(port, *flags, given="PING\nPUBLISH a x\nPUBSUB NUMPAT\n") == "PONG\n0\n0\n"
    assert "unknown command" in cli(port, *flags, "NONSENSE")


def test_redis_cli_prints_what_it_subscribed_to(port: int) -> None:
    process = subprocess.Popen(
        [program("redis-cli"), "-p", str(port), "SUBSCRIBE", "a"],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        # Its output is flushed with the confirmation, so the subscription stands now.
        assert [process.stdout.readline().strip() for _ in range(3)] == ["subscribe", "a", "1"]
        with Client(f"127.0.0.1:{port}") as publisher:
            assert publisher.publish("a", "hello") == 1
        assert [process.stdout.readline().strip() for _ in range(3)] == ["message", "a", "hello"]
    finally:
        process.kill()
        process.communicate()


def test_redis_cli_knows_every_command_from_its_docs(hub: interlock.Hub) -> None:
    assert int(cli(hub.port, "COMMAND", "COUNT")) > 15
    assert "publish" in cli(hub.port, "COMMAND", "DOCS", "publish").lower()


@pytest.mark.parametrize("flags", [(), ("-P", "16"), ("-c", "1"), ("--threads", "2")], ids=" ".join)
def test_redis_benchmark_runs_unchanged(port: int, flags: tuple[str, ...]) -> None:
    with Client(f"127.0.0.1:{port}", timeout=20) as subscriber:
        subscriber.subscribe("t")
        done = subprocess.run(
            [program("redis-benchmark"), *("-p", str(port), "-n", "2000", "-q"), *flags, *PUBLISH],
            capture_output=True,
            text=True,
            timeout=40,
            check=True,
        )
        assert re.search(r"PUBLISH t m: [\d.]+ requests per second", done.stdout)
        # Every one of them arrived, and nothing else.
        count = 0
        while (published := subscriber.message(10)) is not None:
            assert (published.topic, published.payload) == (b"t", b"m")
            count += 1
            if count == 2000:
                break
        assert count == 2000
        assert subscriber.message(0) is None


def test_redis_benchmark_pings(hub: interlock.Hub) -> None:
    done = subprocess.run(
        [program("redis-benchmark"), "-p", str(hub.port), "-n", "2000", "-t", "ping", "-q"],
        capture_output=True,
        text=True,
        timeout=40,
        check=True,
    )
    assert "PING_INLINE" in done.stdout
    assert "PING_MBULK" in done.stdout
    assert "rror" not in done.stdout + done.stderr.replace("WARNING: Could not fetch", "")


PUBLISH = ("PUBLISH", "t", "m")


def test_they_log_in_and_speak_tls(tmp_path: Path) -> None:
    needs_hub()
    authority = Authority(tmp_path)
    pair = authority.sign("server")
    tls = {"cert": str(pair.cert), "key": str(pair.key), "client_ca": str(authority.cert)}
    shown = authority.sign("client")
    flags = ("--tls", "--cacert", str(authority.cert), "--cert", str(shown.cert), "--key",
             str(shown.key))  # fmt: skip
    user = {"name": "ann", "passwords": [passwords.hashed("secret")], "topics": ["*"],
            "commands": ["@all"]}  # fmt: skip
    with interlock.Hub(port=0, tls=tls, user=[user]) as hub:
        known = (*flags, "--user", "ann", "--pass", "secret", "--no-auth-warning")
        assert cli(hub.port, *known, "ACL", "WHOAMI") == "ann\n"
        assert "NOAUTH" in cli(hub.port, *flags, "ACL", "WHOAMI")
        done = subprocess.run(
            [program("redis-benchmark"), "-p", str(hub.port), *flags, "--user", "ann", "-a",
             "secret", "-n", "2000", "-c", "10", "-P", "4", "-q", "PUBLISH", "a", "x"],
            capture_output=True, text=True, timeout=50, check=True,
        )  # fmt: skip
        assert "requests per second" in done.stdout
        assert hub.info()["messages_published"] == 2000
