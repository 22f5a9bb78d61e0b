"""Announcements of nodes in an engine: found until they are withdrawn or forgotten."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

import interlock
from interlock.client.rows.announcements import Announcement, announce, announcements, withdraw
from interlock.errors import EngineUnavailable, NotATable
from tests.client.connection.nodes import cluster as redis_cluster

A1 = Announcement(
    id="a1",
    dc="east",
    role="serving",
    address="10.0.0.1:6399",
    http="10.0.0.1:8080",
    position=12,
    lag_entries=1,
    lag_ms=2.5,
    since=1.5e9,
    version="1.0",
    table="presence",
    draining=True,
)
LONG = 600_000


def eventually(what: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not what():
        assert time.monotonic() < until
        time.sleep(0.01)


def node(id: str) -> Announcement:
    return Announcement(id=id, dc="east", role="joining", address="127.0.0.1:1")


def test_an_announced_node_is_found_until_it_withdraws(engine_url: str, name: str) -> None:
    with interlock.connect(engine_url) as client:
        assert announcements(client, name) == []
        announce(client, name, node("b2"), LONG)
        announce(client, name, A1, LONG)
        assert announcements(client, name) == [A1, node("b2")]
        assert announcements(client, f"{name}-other") == []
        withdraw(client, name, "a1")
        assert announcements(client, name) == [node("b2")]


def test_a_repeated_announcement_replaces_the_earlier_one(engine_url: str, name: str) -> None:
    with interlock.connect(engine_url) as client:
        announce(client, name, node("a1"), LONG)
        announce(client, name, A1, LONG)
        assert announcements(client, name) == [A1]


def test_a_node_that_stops_announcing_is_dropped(engine_url: str, name: str) -> None:
    with interlock.connect(engine_url) as client:
        announce(client, name, node("a1"), LONG)
        announce(client, name, node("b2"), 1)
        eventually(lambda: announcements(client, name) == [node("a1")])


def test_a_malformed_announcement_is_ignored(redis_url: str, name: str) -> None:
    with interlock.connect(redis_url) as client, redis.Redis.from_url(redis_url) as server:
        for id, text in (("x", "{"), ("y", '{"id": "y"}'), ("z", b"\xff")):
            server.set(f"il:node:{{{name}}}:{id}", text)
            server.sadd(f"il:nodes:{{{name}}}", id)
        announce(client, name, A1, LONG)
        later = '{"id":"n","dc":"d","role":"joining","address":"h:1","new field":[1]}'
        server.set(f"il:node:{{{name}}}:n", later)
        server.sadd(f"il:nodes:{{{name}}}", "n")
        assert [one.id for one in announcements(client, name)] == ["a1", "n"]


def test_ids_of_many_expired_nodes_are_removed(redis_url: str, name: str) -> None:
    with interlock.connect(redis_url) as client, redis.Redis.from_url(redis_url) as server:
        server.sadd(f"il:nodes:{{{name}}}", *(f"gone-{n}" for n in range(100)))
        announce(client, name, A1, LONG)
        assert announcements(client, name) == [A1]
        assert server.smembers(f"il:nodes:{{{name}}}") == {b"a1"}
        # Nothing is left for ever of a cluster that is gone.
        assert server.pttl(f"il:nodes:{{{name}}}") > 0


def test_the_next_announcement_restores_a_node_on_an_emptied_engine(
    redis_url: str, name: str
) -> None:
    with interlock.connect(redis_url) as client, redis.Redis.from_url(redis_url) as server:
        announce(client, name, A1, LONG)
        server.delete(f"il:nodes:{{{name}}}", f"il:node:{{{name}}}:a1")
        assert announcements(client, name) == []
        announce(client, name, A1, LONG)
        assert announcements(client, name) == [A1]


def test_an_invalid_cluster_name_is_refused(redis_url: str) -> None:
    with interlock.connect(redis_url) as client:
        for wrong in ("", "a b", "a{b", "a:b", "a/b", "x" * 61, "a\n"):
            with pytest.raises(ValueError, match="allowed: up to 60 bytes"):
                announcements(client, wrong)
            with pytest.raises(ValueError, match="allowed: up to 60 bytes"):
                announce(client, "c", node(wrong), LONG)
        with pytest.raises(TypeError, match="cluster is int; allowed: str"):
            announcements(client, 5)  # type: ignore[arg-type]


def test_announcing_to_an_unreachable_engine_raises() -> None:
    client = interlock.connect("redis://127.0.0.1:1?timeout=0.2")
    with client, pytest.raises(EngineUnavailable, match="did not answer about the nodes of"):
        announce(client, "c", A1, LONG)


def test_announcing_on_a_hub_without_the_table_names_the_missing_setting() -> None:
    with interlock.Hub(port=0, workers=1) as hub:
        client = interlock.connect(f"interlock://{hub.addresses[0]}")
        with client, pytest.raises(NotATable, match=r"key_size = 128"):
            announce(client, "c", A1, LONG)


def test_announcing_on_a_hub_with_another_schema_is_refused(tmp_path: Path) -> None:
    entry = {"name": "nodes", "columns": "n: U8", "capacity": 10, "path": str(tmp_path / "n")}
    with interlock.Hub(port=0, workers=1, table=[entry]) as hub:
        client = interlock.connect(f"interlock://{hub.addresses[0]}")
        with client, pytest.raises(NotATable, match=r"it needs 'told: str\[2048\]'"):
            announce(client, "c", A1, LONG)


def test_a_redis_cluster_stores_all_announcements_of_a_cluster_on_one_server(
    tmp_path: Path, name: str
) -> None:
    with redis_cluster(tmp_path) as ports:
        for n in range(8):  # on each of the three
            with interlock.connect(f"redis+cluster://127.0.0.1:{ports[0]}") as client:
                announce(client, f"{name}{n}", A1, LONG)
                assert announcements(client, f"{name}{n}") == [A1]


def test_a_user_with_read_rights_finds_the_nodes(redis_url: str, name: str) -> None:
    with redis.Redis.from_url(redis_url) as server:
        rights = ("on", ">secret", "+smembers", "+mget", "~il:node*")
        server.execute_command("ACL", "SETUSER", name, *rights)
        server.sadd(f"il:nodes:{{{name}}}", *(f"gone-{n}" for n in range(100)))
        with interlock.connect(redis_url) as client:
            announce(client, name, A1, LONG)
        with interlock.connect(redis_url.replace("//", f"//{name}:secret@")) as client:
            assert announcements(client, name) == [A1]
            with pytest.raises(EngineUnavailable, match="NOPERM"):
                announce(client, name, A1, LONG)
        server.execute_command("ACL", "DELUSER", name)
