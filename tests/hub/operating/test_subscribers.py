"""`interlock hub topics --clients` and PUBSUB CLIENTS: who is subscribed to what."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from interlock import Hub
from interlock.cli import main
from interlock.cli.hub import topics as hub_topics
from interlock.hub import introspection, passwords
from interlock.hub.client import Client
from interlock.hub.resp import ReplyError, command
from tests.hub.servers import needs_hub

WORKERS = 3
FLAG_NAMES = [flag.name for flag in (hub_topics.CLIENTS, hub_topics.LIMIT)]


@pytest.fixture
def hub() -> Iterator[Hub]:
    needs_hub()
    with Hub(port=0, workers=WORKERS) as running:
        yield running


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["hub", "topics", "--clients", *words]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def of(client: Client, glob: str = "*") -> list[tuple[str, bytes, list[str]]]:
    """The names of who is subscribed, by kind and topic."""
    total, found = introspection.subscribers(client, glob)
    assert total == sum(len(one.clients) for one in found)
    return [(one.kind, one.topic, [who.name for who in one.clients]) for one in found]


@pytest.mark.parametrize("name", FLAG_NAMES)
def test_every_flag_is_used_by_a_test(name: str) -> None:
    with open(__file__, encoding="utf-8") as source:
        assert f'"{name}"' in source.read()


def test_who_is_subscribed_is_told_of_all_workers_and_only_while_it_is(
    hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"c{number}" for number in range(4 * WORKERS)]
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(hub.url, name=name)) for name in names]
        asking = stack.enter_context(Client(hub.url))
        for client in clients:
            client.subscribe("all")
        clients[0].subscribe("b\n")
        clients[1].psubscribe("a*")
        shard = stack.enter_context(socket.create_connection(("127.0.0.1", hub.port)))
        shard.sendall(command("CLIENT", "SETNAME", "s") + command("SSUBSCRIBE", "all"))
        said = b""
        while not said.endswith(b":1\r\n"):
            said += shard.recv(100)
        first = [("topic", b"all", names), ("topic", b"b\n", ["c0"])]
        rest = [("pattern", b"a*", ["c1"]), ("shard", b"all", ["s"])]
        assert of(asking) == [*first, *rest]
        assert of(asking, "a[*]") == of(asking, "a\\*") == rest[:1]
        assert of(asking, "all") == [first[0], rest[1]]
        assert of(asking, "nothing") == []

        found = json.loads(asked(capsys, "b*", "--url", hub.url, "--json"))
        (line,) = [one for one in introspection.connections(asking) if one.name == "c0"]
        who = {"id": line.id, "address": line.address, "name": "c0", "user": "default"}
        told = {"kind": "topic", "topic": "b\n", "clients": [who]}
        assert found == {"subscriptions": 1, "topics": [told]}
        head, row, *end = asked(capsys, "b*", "--url", hub.url).splitlines()
        assert head.split() == ["kind", "topic", "id", "address", "name", "user"]
        assert row.split() == ["topic", "b\\n", f"{line.id:,}", line.address, "c0", "default"]
        assert end == ["", "subscriptions: 1"]
        lines = asked(capsys, "--url", hub.url, "--limit", "5").splitlines()
        assert [line.split()[4] for line in lines[1:6]] == names[:5]
        assert lines[6:] == ["", "subscriptions: 15; the first 5 are shown, see --limit"]

        asking.call("CLIENT", "KILL", "ID", line.id)
        clients[1].unsubscribe("all")
        assert of(asking) == [("topic", b"all", names[2:]), *rest]
    with Client(hub.url) as asking:
        # A closed client disappears once its worker has noticed.
        while of(asking):
            pass


def test_nobody_is_a_table_without_rows(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(capsys, "--url", hub.url) == "subscriptions: 0\n"
    assert json.loads(asked(capsys, "--url", hub.url, "--json")) == {
        "subscriptions": 0, "topics": [],
    }  # fmt: skip


def test_only_the_first_topics_are_listed_beside_the_total(hub: Hub) -> None:
    names = [f"t{number:04}" for number in range(2_500)]
    with Client(hub.url) as subscriber, Client(hub.url) as asking:
        subscriber.subscribe(*reversed(names))
        total, found = introspection.subscribers(asking, "t*", 7)
        assert (total, [one.topic.decode() for one in found]) == (2_500, names[:7])
        total, found = introspection.subscribers(asking)
        assert (total, len(found)) == (2_500, 1_000)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("x", "LIMIT", 0), "ERR LIMIT should be 1 to 10000"),
        (("LIMIT", 10_001), "ERR LIMIT should be 1 to 10000"),
        (("x", "LIMIT", "many"), "ERR LIMIT should be 1 to 10000"),
        (("x", "limit"), "ERR syntax error"),
        (("x", "y", "1"), "ERR syntax error"),
        (("x" * 1025,), "ERR a pattern may have up to 1024 bytes"),
        (("x", "LIMIT", 1, "y"), "ERR unknown subcommand or wrong number of arguments"),
    ],
)
def test_wrong_questions_are_refused(hub: Hub, words: tuple[str | int, ...], text: str) -> None:
    with Client(hub.url) as client:
        with pytest.raises(ReplyError, match=f"^{text}"):
            client.call("PUBSUB", "CLIENTS", *words)
        assert client.call("PUBSUB", "CLIENTS", "limit", "10000") == [0, []]


def test_only_administrators_may_ask(capsys: pytest.CaptureFixture[str]) -> None:
    needs_hub()
    hashed = [passwords.hashed("secret")]
    root = {"name": "root", "passwords": hashed, "commands": ["@all"], "topics": ["*"]}
    app = {"name": "app", "passwords": hashed, "topics": ["a"]}
    with Hub(port=0, workers=2, user=[root, app]) as hub:
        urls = {name: f"redis://{name}:secret@{hub.addresses[0]}" for name in ("root", "app")}
        with Client(urls["app"]) as subscriber:
            subscriber.subscribe("a")
            found = json.loads(asked(capsys, "--url", urls["root"], "--json"))
            assert found["topics"][0]["clients"][0]["user"] == "app"
            assert main(["hub", "topics", "--clients", "--url", urls["app"]]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "NOPERM" in err
    assert "pubsub|clients" in err


def test_clients_needs_a_hub_and_limit_needs_clients(
    redis_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["hub", "topics", "--clients", "--url", f"127.0.0.1:{redis_port}"]) == 1
    assert capsys.readouterr() == (
        "", f"interlock: 127.0.0.1:{redis_port}: {introspection.ONLY_A_HUB}\n",
    )  # fmt: skip
    assert main(["hub", "topics", "--limit", "3"]) == 2
    assert capsys.readouterr() == ("", "interlock: --limit is for --clients only\n")


def test_names_are_looked_up_in_lower_case_where_case_is_ignored() -> None:
    needs_hub()
    with Hub(port=0, ignore_case_topics=True) as hub, Client(hub.url, name="c") as client:
        client.subscribe("News")
        with Client(hub.url) as asking:
            assert of(asking, "NEWS") == [("topic", b"news", ["c"])]
