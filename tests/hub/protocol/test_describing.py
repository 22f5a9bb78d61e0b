"""The hub's account of itself: clients, counters, commands; the fields that tools look for."""

from __future__ import annotations

import socket

import pytest

from interlock import Hub
from interlock.hub.client import Client
from interlock.hub.resp import command


def fields(line: str, between: str) -> dict[str, str]:
    pairs = (word.partition("=" if between == " " else ":") for word in line.split(between))
    return {name: value for name, sign, value in pairs if sign}


def text(reply: object) -> str:
    assert isinstance(reply, bytes)
    return reply.decode()


def test_a_line_of_client_info_has_the_fields_of_redis_in_their_order(
    redis_port: int, hub: Hub
) -> None:
    with Client(f"127.0.0.1:{redis_port}") as redis, Client(hub.url) as own:
        theirs = fields(text(redis.call("CLIENT", "INFO")).strip(), " ")
        ours = fields(text(own.call("CLIENT", "INFO")).strip(), " ")
    assert [name for name in ours if name in theirs] == list(theirs)


def test_client_info_follows_what_the_client_does(hub: Hub) -> None:
    with Client(hub.url, name="me") as client:
        client.subscribe("a", "b")
        client.psubscribe("c*")
        found = fields(text(client.call("CLIENT", "INFO")).strip(), " ")
        assert {name: found[name] for name in ("name", "sub", "psub", "resp", "db", "cmd")} == {
            "name": "me",
            "sub": "2",
            "psub": "1",
            "resp": "3",
            "db": "0",
            "cmd": "client|info",
        }
        assert found["laddr"] == hub.addresses[0]
        assert int(found["id"]) == client.call("CLIENT", "ID")
        assert "P" in found["flags"]


def test_client_list_has_a_line_for_each_over_all_workers(hub: Hub) -> None:
    clients = [Client(hub.url, name=f"n{number}") for number in range(8)]
    try:
        lines = text(clients[0].call("CLIENT", "LIST")).splitlines()
        assert {fields(line, " ")["name"] for line in lines} == {f"n{n}" for n in range(8)}
        assert len({fields(line, " ")["id"] for line in lines}) == 8
    finally:
        for client in clients:
            client.close()


def test_client_kill_ends_a_client_of_any_worker(hub: Hub) -> None:
    with Client(hub.url) as killer:
        for _ in range(8):
            with Client(hub.url) as killed:
                number = killed.call("CLIENT", "ID")
                assert isinstance(number, int)
                assert killer.call("CLIENT", "KILL", "ID", number) == 1
                with pytest.raises(ConnectionResetError):
                    killed.message(20)


@pytest.mark.parametrize("section", ["server", "clients", "stats"])
def test_info_has_the_names_that_tools_look_for(section: str, redis_port: int, hub: Hub) -> None:
    wanted = {
        "server": {"redis_version", "process_id", "tcp_port", "uptime_in_seconds"},
        "clients": {"connected_clients", "maxclients"},
        "stats": {
            "total_connections_received",
            "total_commands_processed",
            "rejected_connections",
            "pubsub_channels",
            "pubsub_patterns",
            "total_net_input_bytes",
            "total_net_output_bytes",
        },
    }[section]
    with Client(f"127.0.0.1:{redis_port}") as redis, Client(hub.url) as own:
        theirs = fields(text(redis.call("INFO", section)), "\r\n")
        ours = fields(text(own.call("INFO", section)), "\r\n")
        assert wanted <= theirs.keys()
        assert wanted <= ours.keys()
        assert text(own.call("INFO", section)).startswith(f"# {section.capitalize()}\r\n")


def test_every_command_of_docs_is_known_to_info_and_answers(hub: Hub) -> None:
    with Client(hub.url) as client:
        docs = client.call("COMMAND", "DOCS")
        infos = client.call("COMMAND", "INFO")
        count = client.call("COMMAND", "COUNT")
        assert isinstance(docs, dict)
        assert isinstance(infos, list)
        assert {name for name, *_ in infos} == docs.keys()
        assert count == len(docs)
        for name in docs:
            assert isinstance(name, bytes)
            with socket.create_connection(("127.0.0.1", hub.port), 20) as plain:
                plain.sendall(command(name))
                answer = plain.recv(1 << 16)
            assert answer
            assert b"unknown command" not in answer


def test_log_is_publish_by_another_name(hub: Hub) -> None:
    with Client(hub.url) as client:
        client.subscribe("a")
        assert client.call("LOG", "a", "x") == 1
        found = client.message(5)
        assert found is not None
        assert (found.topic, found.payload) == (b"a", b"x")
