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
from interlock.client.connection import server_settings
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


def test_a_wrong_eviction_policy_is_logged_once_per_server(
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
        ("save", "none", False), ("role", "master", True),
    ])  # fmt: skip
    server.config_set("maxmemory-policy", "noeviction")
    server.config_set("appendonly", "yes")
    assert checked(server, capsys) == (0, [
        ("maxmemory-policy", "noeviction", True), ("appendonly", "yes", True),
        ("save", "none", True), ("appendfsync", "everysec", True), ("role", "master", True),
    ])  # fmt: skip


def test_without_the_right_to_config_the_queue_works_and_the_check_says_so(
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


def test_durability_is_judged_by_append_only_file_and_save_points(
    server: redis.Redis, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    def problems() -> dict[str, str | None]:
        main(["queue", "check", "--url", url_of(server), "--json"])
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return {one["setting"]: one["problem"] for one in lines}

    server.config_set("save", "")
    assert "a restart loses all queues" in str(problems()["save"])
    assert "a restart loses all queues" in str(problems()["appendonly"])
    server_settings._known.clear()
    caplog.clear()
    for _ in range(2):
        with connect(url_of(server)) as client:
            client.queue("q").put(1)
    (warned,) = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert "appendonly is no: neither a log nor snapshots are written" in warned
    server.config_set("save", "3600 1")
    server_settings._known.clear()
    caplog.clear()
    with connect(url_of(server)) as client:
        client.queue("q").put(1)
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert problems()["save"] is None
    assert "after the last snapshot" in str(problems()["appendonly"])
    server.config_set("appendonly", "yes")
    server.config_set("save", "")
    server.config_set("appendfsync", "no")
    told = problems()
    assert (told["appendonly"], told["save"]) == (None, None)
    assert "has not written yet" in str(told["appendfsync"])


def test_without_the_right_to_config_the_rest_is_judged(
    server: redis.Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    server.acl_setuser(
        "poor", enabled=True, passwords="+p", commands=["-config"], categories=["+@all"], keys=["*"]
    )
    assert main(["queue", "check", "--url", url_of(server, "poor:p@"), "--json"]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["setting"] for one in lines] == ["maxmemory-policy", "appendonly", "role"]


def test_the_check_warns_about_a_replica_and_names_it(server: redis.Redis) -> None:
    (role,) = [
        one
        for one in server_settings.judged({"role": "slave"})
        if one.problem and one.setting == "role"
    ]
    assert "replica" in role.problem and role.warns
