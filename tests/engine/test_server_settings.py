"""Settings of a server that lose messages: warned of once, and told by `interlock queue check`."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from interlock import connect
from interlock.cli import main
from interlock.engine import server_settings
from tests.hub.servers import redis_server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[redis.Redis]:
    server_settings._known.clear()
    with redis_server(tmp_path) as (host, port), redis.Redis(host, port) as admin:
        yield admin


def url_of(server: redis.Redis, user: str = "") -> str:
    at = server.connection_pool.connection_kwargs
    return f"redis://{user}{at['host']}:{at['port']}"


def checked(server: redis.Redis, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[object]]:
    code = main(["queue", "check", "--url", url_of(server), "--json"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return code, [(one["setting"], one["value"], one["problem"] is None) for one in lines]


def test_an_eviction_policy_is_warned_of_once_a_server(
    server: redis.Redis, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    server.config_set("maxmemory", "100mb")
    server.config_set("maxmemory-policy", "allkeys-lru")
    for _ in range(2):
        with connect(url_of(server)) as client:
            client.queue("q").put(1)
    (warned,) = [one for one in caplog.messages if "maxmemory-policy" in one]
    assert "is allkeys-lru: at its maxmemory the server deletes whole queues; CONFIG SET" in warned
    assert checked(server, capsys) == (1, [
        ("maxmemory-policy", "allkeys-lru", False), ("appendonly", "no", False),
        ("role", "master", True),
    ])  # fmt: skip
    server.config_set("maxmemory-policy", "noeviction")
    server.config_set("appendonly", "yes")
    assert checked(server, capsys) == (0, [
        ("maxmemory-policy", "noeviction", True), ("appendonly", "yes", True),
        ("role", "master", True),
    ])  # fmt: skip


def test_where_it_may_not_be_asked_the_queue_works_and_the_check_says_so(
    server: redis.Redis, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, "interlock.queue")
    server.acl_setuser(
        "poor", enabled=True, passwords="+p", commands=["-info"], categories=["+@all"], keys=["*"]
    )
    with connect(url_of(server, "poor:p@")) as client:
        assert client.queue("q").put(1)
    assert any("its settings could not be checked: NOPERM" in one for one in caplog.messages)
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert main(["queue", "check", "--url", url_of(server, "poor:p@")]) == 1
    assert "could not be checked: NOPERM" in capsys.readouterr().out


def test_a_replica_is_named(server: redis.Redis) -> None:
    (role,) = [
        one
        for one in server_settings.judged({"role": "slave"})
        if one.problem and one.setting == "role"
    ]
    assert "replica" in role.problem
