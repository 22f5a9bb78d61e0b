"""The tools of operators: MONITOR, SLOWLOG, SHUTDOWN, HELP, INFO, and the lines of the log."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis as redis_py

import interlock
from interlock.hub import passwords
from interlock.hub.client import Client
from interlock.hub.resp import ReplyError, command
from tests.hub.config.test_limits import opened, to_the_end
from tests.hub.servers import hub_process, needs_hub

LINE = re.compile(rb"\+\d+\.\d{6} \[0 127\.0\.0\.1:\d+\] (.*)\r\n")


class Monitor:
    """A connection that has called MONITOR."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 20)
        self._socket.sendall(b"MONITOR\r\n")
        self._file = self._socket.makefile("rb")
        assert self._file.readline() == b"+OK\r\n"

    def line(self) -> bytes:
        found = LINE.fullmatch(self._file.readline())
        assert found is not None
        return found[1]

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()


def test_monitor_shows_what_others_call_as_redis_does(port: int) -> None:
    with Monitor(port) as monitor, redis_py.Redis(port=port, protocol=2) as client:
        client.publish("a", b'q"\\\n\r\t\x07\x08\x00\xff ')
        client.ping()
        seen = [monitor.line()]
        # The first commands of a client vary.
        while b"PUBLISH" not in seen[-1]:
            seen.append(monitor.line())
        assert seen[-1] == rb'"PUBLISH" "a" "q\"\\\n\r\t\a\b\x00\xff "'
        assert monitor.line() == b'"PING"'


def test_monitor_shows_all_in_the_order_of_deliveries_and_no_password() -> None:
    needs_hub()
    user = {"name": "default", "passwords": [passwords.hashed("secret")], "commands": ["@all"],
            "topics": ["*"]}  # fmt: skip
    with (
        interlock.Hub(port=0, workers=2, user=[user]) as hub,
        redis_py.Redis(port=hub.port, password="secret") as operator,
        operator.monitor() as monitor,
        redis_py.Redis(port=hub.port, password="secret", protocol=2) as client,
    ):
        for number in range(200):
            client.publish("a", number)
        seen: list[str] = []
        while len(seen) < 200:
            found = monitor.next_command()["command"]
            assert "secret" not in found
            if found.startswith("PUBLISH"):
                seen.append(found)
        assert seen == [f"PUBLISH a {number}" for number in range(200)]
        with opened(hub) as stranger:
            stranger.sendall(b"AUTH secret\r\n")
            assert stranger.recv(5) == b"+OK\r\n"
        while "AUTH" not in (found := monitor.next_command()["command"]):
            pass
        assert found == "AUTH (redacted)"


def test_a_monitor_that_is_gone_costs_nothing_more(hub: interlock.Hub) -> None:
    for how in (b"RESET\r\n", b""):
        with opened(hub) as monitor, Client(hub.url) as client:
            monitor.sendall(b"MONITOR\r\n")
            assert monitor.recv(5) == b"+OK\r\n"
            client.call("ECHO", "x")
            assert b'"ECHO" "x"' in monitor.recv(1000)
            if how:
                monitor.sendall(how)
                assert monitor.recv(1000).endswith(b"+RESET\r\n")
                client.call("ECHO", "y")
                monitor.sendall(b"PING\r\n")
                assert monitor.recv(1000) == b"+PONG\r\n"


def test_the_slow_log_keeps_the_newest_with_what_they_were() -> None:
    needs_hub()
    with (
        interlock.Hub(port=0, slow_log={"threshold": 0, "length": 3}) as hub,
        redis_py.Redis(port=hub.port, client_name="me") as client,
    ):
        for number in range(5):
            client.execute_command("PUBSUB", "CHANNELS", f"{number}" * 200)
        newest, _, oldest = client.slowlog_get()
        assert client.slowlog_len() == 3
        assert newest["command"].startswith(b"PUBSUB CHANNELS 4444")
        assert newest["command"].endswith(b"... (72 more bytes)")
        assert newest["id"] == oldest["id"] + 2
        assert newest["duration"] >= 0
        client.config_set("slow_log.threshold", -1)
        client.slowlog_reset()
        client.info()
        assert client.slowlog_len() == 0


def test_shutdown_is_for_who_has_logged_in_and_ends_it_well(tmp_path: Path) -> None:
    config = tmp_path / "hub.toml"
    config.write_text(
        f'[[user]]\nname = "default"\ntopics = ["*"]\ncommands = ["@all"]\n'
        f'[[user]]\nname = "root"\npasswords = ["{passwords.hashed("pw")}"]\n'
        f'topics = ["*"]\ncommands = ["@all"]\n'
    )
    with hub_process("--port", "0", "--config", str(config)) as hub:
        with Client(hub.addresses[0]) as anybody:
            with pytest.raises(ReplyError, match=f"send TERM to process {hub.process.pid}"):
                anybody.call("SHUTDOWN")
            with pytest.raises(ReplyError, match="syntax error"):
                anybody.call("SHUTDOWN", "PLEASE")
        with socket.create_connection(("127.0.0.1", hub.port), 20) as root:
            root.sendall(command("AUTH", "root", "pw") + command("SHUTDOWN", "NOSAVE"))
            assert to_the_end(root) == b"+OK\r\n"
        _, err = hub.process.communicate(timeout=30)
        assert hub.process.returncode == 0
        assert "a client asked for a shutdown" in err


def test_two_shutdown_commands_stop_the_hub_once() -> None:
    needs_hub()
    user = {"name": "root", "passwords": [passwords.hashed("x")], "commands": ["@all"],
            "topics": ["*"]}  # fmt: skip
    asked: list[int] = []
    with interlock.Hub(port=0, user=[user]) as hub:
        hub.on_shutdown = lambda: asked.append(1)
        for _ in range(2):
            url = f"redis://root:x@{hub.addresses[0]}"
            with Client(url) as client, pytest.raises((OSError, EOFError)):
                client.call("SHUTDOWN")
    assert asked == [1]


def test_shutdown_of_a_part_of_a_program_is_refused() -> None:
    needs_hub()
    user = {"name": "default", "passwords": [passwords.hashed("pw")], "commands": ["@all"],
            "topics": ["*"]}  # fmt: skip
    with (
        interlock.Hub(port=0, user=[user]) as hub,
        Client(f"redis://:pw@{hub.addresses[0]}") as root,
        pytest.raises(ReplyError, match="part of a program"),
    ):
        root.call("SHUTDOWN")


@pytest.mark.parametrize("container", ["CLIENT", "COMMAND", "PUBSUB", "CONFIG", "ACL", "SLOWLOG"])
def test_help_has_a_line_for_each_subcommand(hub: interlock.Hub, container: str) -> None:
    with Client(hub.url) as client:
        found = client.call(container, "HELP")
        described = client.call("COMMAND", "INFO", container)
    assert isinstance(found, list)
    assert isinstance(described, list)
    assert found[0] == (f"{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")
    names = [line.split()[0] for line in found[1:] if not line.startswith("    ")]
    assert names == [sub[0].decode().partition("|")[2].upper() for sub in described[0][9]]
    assert len(found) == 1 + 2 * len(names), "a line of usage and one of what it is for"


def test_who_speaks_http_is_closed_before_its_body_becomes_a_command(hub: interlock.Hub) -> None:
    with opened(hub) as browser:
        browser.sendall(b"POST / HTTP/1.1\r\nHost: x\r\n\r\nPUBLISH a x\r\n")
        assert to_the_end(browser) == b""
    with opened(hub) as browser:
        browser.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\nPUBLISH a x\r\n")
        to_the_end(browser)
    info = hub.info()
    assert (info["http_disconnections"], info["messages_published"]) == (2, 0)


def test_info_has_the_sections_that_clients_and_people_look_for(hub: interlock.Hub) -> None:
    with redis_py.Redis(port=hub.port) as client:
        found = client.info()
        assert re.fullmatch(r"[0-9a-f]{40}", found["run_id"])
        assert found["used_memory_rss"] > 1 << 20
        assert found["used_cpu_user"] >= 0
        assert found["loading"] == 0
        found = client.info("memory")
        assert found["used_memory"] == found["used_memory_rss"] <= found["used_memory_rss_peak"]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, "interlock.hub"):
        yield caplog


def test_a_slow_subscriber_and_a_wrong_password_are_logged(
    lines: pytest.LogCaptureFixture,
) -> None:
    needs_hub()
    user = {"name": "a", "passwords": [passwords.hashed("x")], "topics": ["*"]}
    everybody = {"name": "default", "topics": ["*"]}
    limits = {"pubsub": {"soft": 0, "hard": 1 << 20}}
    with (
        interlock.Hub(port=0, limits=limits, user=[everybody, user]) as hub,
        Client(hub.url, name="slow") as slow,
        Client(hub.url, timeout=20) as publisher,
    ):
        with pytest.raises(ReplyError):
            publisher.call("AUTH", "a\nb", "wrong")
        slow.subscribe("t")
        while publisher.publish("t", b"x" * 100_000):
            pass
    assert re.search(r'login failed: user "a\\nb" from 127\.0\.0\.1:\d+', lines.text)
    assert re.search(
        r"disconnected: reads too slowly, \d+ bytes of output pending: id=\d+ addr=\S+ name=slow "
        r"user=default", lines.text,
    )  # fmt: skip


def test_more_lines_than_the_log_takes_are_counted(lines: pytest.LogCaptureFixture) -> None:
    needs_hub()
    with interlock.Hub(port=0) as hub, Client(hub.url, timeout=20) as client:
        found = client.pipeline([("AUTH", f"nobody{number}", "x") for number in range(20_000)])
        assert len(found) == 20_000
        hub.stop()
        logged = sum(record.message.startswith("login failed") for record in lines.records)
        lost = [int(r.message.split()[0]) for r in lines.records if "were dropped" in r.message]
        assert logged + sum(lost) == 20_000
