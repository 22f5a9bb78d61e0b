"""Upstreams of an agent: a Redis or a Valkey, by PUBLISH and XADD; over TLS; with a password; and
what it says where it cannot."""

from __future__ import annotations

import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from interlock.hub import introspection, passwords
from interlock.hub.client import Client
from tests.hub.protocol.certificates import Authority
from tests.hub.servers import HubProcess, free_port, hub_process, needs_hub, redis_server

PROGRAMS = ("redis-server", "valkey-server")


class Agent:
    """The configuration of a hub that sends on, its log and its figures."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder / "agent.log"
        self._config = folder / "agent.toml"

    @contextmanager
    def running(self, upstream: str, **more: str) -> Iterator[HubProcess]:
        keys = {
            "name": '"up"',
            "kind": '"network"',
            "upstream": f'"{upstream}"',
            "spool": f'"{self._folder}/spool"',
            "timeout": "1.0",
            **more,
        }
        store = "\n".join(f"{key} = {value}" for key, value in keys.items())
        self._config.write_text(f'port = 0\n[log]\nfile = "{self._log}"\n[[store]]\n{store}\n')
        with hub_process("--config", str(self._config)) as hub:
            yield hub

    def wait_for_log(self, hub: HubProcess, text: str) -> str:
        while True:
            logged = self._log.read_text() if self._log.exists() else ""
            found = [line for line in logged.splitlines(keepends=True) if text in line]
            if found and found[0].endswith("\n"):
                return found[0]
            assert hub.process.poll() is None, "the agent has ended"


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    needs_hub()
    return Agent(tmp_path)


def publish(hub: HubProcess, messages: range, topic: str = "t") -> None:
    with Client(f"127.0.0.1:{hub.port}", timeout=60) as client:
        replies = client.pipeline([("PUBLISH", topic, f"m{number}") for number in messages])
    assert replies == [0] * len(messages)


def figures(hub: HubProcess) -> dict[str, int]:
    with Client(f"127.0.0.1:{hub.port}", timeout=60) as client:
        return introspection.stores(introspection.info(client))["up"]


def wait_until_delivered(hub: HubProcess) -> dict[str, int]:
    while True:
        found = figures(hub)
        if found["spooled"] == found["in_flight"] == 0:
            return found


@pytest.fixture(params=PROGRAMS)
def peer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The program of a Redis, then of a Valkey where there is one."""
    name = str(request.param)
    if shutil.which(name) is None:
        pytest.skip(f"no {name}")
    monkeypatch.setenv("INTERLOCK_REDIS_SERVER", name)
    return name


def test_subscribers_of_a_redis_get_what_an_agent_was_given(
    agent: Agent, peer: str, tmp_path: Path
) -> None:
    with (
        redis_server(tmp_path, "--requirepass", "secret") as (_, port),
        Client(f"redis://:secret@127.0.0.1:{port}") as reader,
        agent.running(
            f"redis://:secret@127.0.0.1:{port}", protocol='"publish"', ack='"upstream"'
        ) as hub,
    ):
        reader.subscribe("t")
        publish(hub, range(1000))
        seen: list[str] = []
        while len(seen) < 1000:
            message = reader.message(20)
            assert message is not None, peer
            seen.append(message.payload.decode())
        assert seen == [f"m{number}" for number in range(1000)]


def test_a_redis_that_was_killed_has_each_message_at_least_once_and_in_order(
    agent: Agent, peer: str, tmp_path: Path
) -> None:
    durable = ("--appendonly", "yes", "--appendfsync", "always")
    wanted = free_port()
    with agent.running(f"127.0.0.1:{wanted}", protocol='"xadd"') as hub:
        publish(hub, range(10))
        assert peer
        for life in range(1, 4):
            numbers = range(life * 1000, life * 1000 + 500)
            with redis_server(tmp_path, *durable, wanted=wanted) as (_, port):
                assert port == wanted
                sender = threading.Thread(target=publish, args=(hub, numbers))
                sender.start()
                with Client(f"127.0.0.1:{port}") as client:
                    # Killed in the middle, but the last time.
                    while client.call("XLEN", "t") == 0:
                        pass
                    if life == 3:
                        sender.join()
                        wait_until_delivered(hub)
                        found = client.call("XRANGE", "t", "-", "+")
            sender.join()
    assert isinstance(found, list)
    fields = [dict(zip(entry[1][::2], entry[1][1::2], strict=True)) for entry in found]
    assert {frozenset(one) for one in fields} == {
        frozenset((b"payload", b"time", b"origin", b"number"))
    }
    # By these a reader knows what came twice.
    once = {(one[b"origin"], one[b"number"]): one[b"payload"] for one in fields}
    expected = [
        *range(10),
        *(n for life in (1, 2, 3) for n in range(life * 1000, life * 1000 + 500)),
    ]
    assert list(once.values()) == [b"m%d" % number for number in expected]


def refused(agent: Agent, upstream: str, told: str, **more: str) -> None:
    with agent.running(upstream, **more) as hub:
        publish(hub, range(3))
        # A busy machine may first report a server that was too slow.
        line = agent.wait_for_log(hub, told)
        assert "WARNING" in line and "waiting messages are kept" in line
        assert figures(hub)["spooled"] == 3


def test_a_redis_is_told_from_a_hub(agent: Agent, redis_port: int) -> None:
    refused(agent, f"127.0.0.1:{redis_port}", 'set protocol = "publish" or "xadd"')


def test_a_topic_whose_key_is_not_a_stream_blocks_later_messages_without_duplicates(
    agent: Agent, tmp_path: Path
) -> None:
    with (
        redis_server(tmp_path) as (_, port),
        Client(f"127.0.0.1:{port}") as client,
        agent.running(f"127.0.0.1:{port}", protocol='"xadd"') as hub,
    ):
        client.call("SET", "b", "in the way")
        publish(hub, range(3), "a")
        publish(hub, range(3), "b")
        publish(hub, range(3), "a")
        assert "WRONGTYPE" in agent.wait_for_log(hub, "WARNING")
        while figures(hub)["retries"] < 4:
            pass
        # However often it was tried again.
        assert isinstance(length := client.call("XLEN", "a"), int)
        assert length <= 6
        client.call("DEL", "b")
        wait_until_delivered(hub)
        assert (client.call("XLEN", "a"), client.call("XLEN", "b")) == (6, 3)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@contextmanager
def server(folder: Path, text: str) -> Iterator[HubProcess]:
    config = folder / "server.toml"
    store = f'[[store]]\nname = "kept"\npath = "{folder}/out/[topic].log"\n'
    config.write_text(f"port = 0\n{text}\n{store}")
    with hub_process("--config", str(config)) as hub:
        yield hub


def lines(folder: Path) -> list[str]:
    path = folder / "out" / "t.log"
    return path.read_text().splitlines() if path.exists() else []


def user(publish_: str) -> str:
    return (
        f'[[user]]\nname = "agent"\npasswords = ["{passwords.hashed("secret")}"]\n'
        f'publish = ["{publish_}"]\n'
    )


def test_over_tls_and_with_a_password_from_a_file(
    agent: Agent, authority: Authority, tmp_path: Path
) -> None:
    pair, own = authority.sign("server"), authority.sign("agent")
    (tmp_path / "password").write_text("secret\n")
    tls = f'[tls]\ncert = "{pair.cert}"\nkey = "{pair.key}"\nclient_ca = "{authority.cert}"\n'
    with server(tmp_path, tls + user("*")) as far:
        more: dict[str, Any] = {
            "ca": f'"{authority.cert}"',
            "cert": f'"{own.cert}"',
            "key": f'"{own.key}"',
            "password_file": f'"{tmp_path}/password"',
            "ack": '"upstream"',
        }
        with agent.running(f"rediss://agent@127.0.0.1:{far.port}", **more) as hub:
            publish(hub, range(20_000))
            assert figures(hub)["connected"] == 1
    assert lines(tmp_path) == [f"m{number}" for number in range(20_000)]


def test_a_certificate_of_nobody_is_refused(
    agent: Agent, authority: Authority, tmp_path: Path
) -> None:
    pair, other = authority.sign("server"), Authority(tmp_path, "other")
    tls = f'[tls]\ncert = "{pair.cert}"\nkey = "{pair.key}"\n'
    with server(tmp_path, tls) as far:
        place = f"rediss://127.0.0.1:{far.port}"
        refused(agent, place, "certificate", ca=f'"{other.cert}"')


def test_tls_is_told_from_plain_bytes(agent: Agent, authority: Authority, tmp_path: Path) -> None:
    with server(tmp_path, "") as far:
        refused(agent, f"rediss://127.0.0.1:{far.port}", "TLS", ca=f'"{authority.cert}"')


def test_a_wrong_password_and_a_topic_without_the_right_are_told_and_wait(
    agent: Agent, tmp_path: Path
) -> None:
    with server(tmp_path, user("other")) as far:
        address = f"agent:wrong@127.0.0.1:{far.port}"
        refused(agent, f"redis://{address}", "correct the user or the password")
        with agent.running(f"redis://agent:secret@127.0.0.1:{far.port}") as hub:
            assert "right to the command" in agent.wait_for_log(hub, "NOPERM")
            publish(hub, range(3, 6))
            (tmp_path / "server.toml").write_text(
                (tmp_path / "server.toml").read_text().replace('"other"', '"*"')
            )
            far.process.send_signal(signal.SIGHUP)
            wait_until_delivered(hub)
        # From before and behind, and none of it twice.
        while len(lines(tmp_path)) < 6:
            pass
        assert lines(tmp_path) == [f"m{number}" for number in (0, 1, 2, 3, 4, 5)]


def test_a_server_that_is_stopped_is_given_up_and_gets_everything_once_it_goes_on(
    agent: Agent, tmp_path: Path
) -> None:
    with server(tmp_path, "") as far, agent.running(f"127.0.0.1:{far.port}") as hub:
        publish(hub, range(10))
        wait_until_delivered(hub)
        far.process.send_signal(signal.SIGSTOP)
        try:
            publish(hub, range(10, 3000))
            assert "nothing moved for 1 s" in agent.wait_for_log(hub, "WARNING")
        finally:
            far.process.send_signal(signal.SIGCONT)
        # On a busy machine it may be given up once more.
        while True:
            found = wait_until_delivered(hub)
            if (found["failing"], found["connected"]) == (0, 1):
                break
        # The server's store writes accepted messages later.
        while len(lines(tmp_path)) < 3000:
            pass
    assert lines(tmp_path) == [f"m{number}" for number in range(3000)]


def test_a_server_that_says_nothing_is_given_up(agent: Agent) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        refused(agent, f"127.0.0.1:{silent.getsockname()[1]}", "nothing moved for 1 s")


def test_a_killed_agent_sends_again_what_it_has_not_recorded_and_no_more(
    agent: Agent, tmp_path: Path
) -> None:
    """The record of what is delivered is written each second, though a segment is not full."""
    port, rounds, waiting = free_port(), 1000, 100
    recorded = tmp_path / "spool" / "delivered"
    keys = {"protocol": '"publish"', "ack": '"disk"'}

    def receive(reader: Client, until: int) -> list[int]:
        seen: list[int] = []
        while not seen or seen[-1] != until:
            message = reader.message(20)
            assert message is not None, seen[-1:]
            seen.append(int(message.payload[1:]))
        return seen

    with redis_server(tmp_path, wanted=port), Client(f"redis://127.0.0.1:{port}") as reader:
        reader.subscribe("t")
        with agent.running(f"redis://127.0.0.1:{port}", **keys) as hub:
            for number in range(2):
                publish(hub, range(number * rounds, (number + 1) * rounds))
                assert len(receive(reader, (number + 1) * rounds - 1)) == rounds
            # Something waits from now on, so it does not record that all is delivered.
            with Client(f"redis://127.0.0.1:{port}") as other:
                other.call("CLIENT", "PAUSE", 600_000, "ALL")
            publish(hub, range(2 * rounds, 2 * rounds + waiting))
            while int.from_bytes(recorded.read_bytes()[24:32], "little") < 2 * rounds:
                assert hub.process.poll() is None
            hub.process.kill()
    with redis_server(tmp_path, wanted=port), Client(f"redis://127.0.0.1:{port}") as reader:
        reader.subscribe("t")
        with agent.running(f"redis://127.0.0.1:{port}", **keys):
            seen = receive(reader, 2 * rounds + waiting - 1)
    assert [number for number in seen if number >= 2 * rounds] == [
        *range(2 * rounds, 2 * rounds + waiting)
    ]
    assert len(seen) < 2 * waiting, f"{len(seen) - waiting} were sent again"


def test_text_of_an_upstream_cannot_move_a_terminals_cursor(agent: Agent) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    while connection.recv(1 << 16):
                        connection.sendall(b"-ERR \x1b[2Jgone\x9b\x07\xe2\x80\xae\r\n")

        threading.Thread(target=answer, daemon=True).start()
        address = f"redis://127.0.0.1:{server.getsockname()[1]}"
        with agent.running(address, protocol='"publish"') as hub:
            publish(hub, range(1))
            line = agent.wait_for_log(hub, "gone")
            with Client(f"127.0.0.1:{hub.port}") as client:
                told = repr(client.call("STORE", "LIST"))
    assert line.rstrip("\n").isprintable(), repr(line)
    assert "[2Jgone" in told and "\\x1b" not in told.replace("\\\\", "")
