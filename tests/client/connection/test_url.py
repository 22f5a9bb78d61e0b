"""URLs of engines."""

from __future__ import annotations

from typing import Any

import pytest

from interlock import connect
from interlock.client.url import parse


@pytest.mark.parametrize(
    ("url", "kind", "addresses"),
    [
        ("memory://", "memory", ("memory",)),
        ("memory://shop", "memory", ("memory",)),
        ("interlock://hub", "server", ("hub:6399",)),
        ("interlock+unix:///run/hub", "server", ("unix:/run/hub",)),
        ("unix:///run/redis%20x", "server", ("unix:/run/redis x",)),
        ("redis://host", "server", ("host:6379",)),
        ("redis://[::1]:7000/3", "server", ("[::1]:7000",)),
        ("rediss://host:7", "server", ("host:7",)),
        ("redis+cluster://a:1,b:2,c", "cluster", ("a:1", "b:2", "c:6379")),
    ],
)
def test_a_short_url_is_parsed(url: str, kind: str, addresses: tuple[str, ...]) -> None:
    target = parse(url)
    assert (target.kind, target.addresses) == (kind, addresses)


def test_all_parts_of_a_url_are_parsed() -> None:
    target = parse("rediss://me:p%40ss@host/2?timeout=1.5&ca=/ca.pem")
    assert (target.user, target.password, target.db) == ("me", "p@ss", 2)
    assert (target.timeout, target.tls, target.ca) == (1.5, True, "/ca.pem")
    assert "p%40ss" not in target.shown and "me:***@host" in target.shown


def test_the_url_of_a_cluster_of_nodes_is_parsed() -> None:
    target = parse("interlock+cluster://me:s%40cret@host/3/shop?dc=east&user=u&password=p%20w")
    assert (target.kind, target.addresses, target.db) == ("server", ("host:6379",), 3)
    assert (target.user, target.password, target.timeout) == ("me", "s@cret", 10.0)
    members = target.members
    assert members is not None
    assert (members.cluster, members.dc, members.user, members.password) == (
        *("shop", "east", "u", "p w"),
    )
    assert "cret" not in target.shown and "p%20w" not in target.shown
    assert "me:***@host/3/shop?dc=east&user=u&password=***" in target.shown
    assert (members.target.user, members.target.timeout, target.tls, members.tls) == (
        *("u", 10.0, False, False),
    )
    assert not members.linearizable
    members = parse("interlock+cluster://host/shop?linearizable=1").members
    assert members is not None and members.linearizable


@pytest.mark.parametrize(
    ("url", "db", "cluster", "addresses"),
    [
        ("interlock+cluster://a:1", 0, "", ("a:1",)),
        ("interlock+cluster://a/", 0, "", ("a:6379",)),
        ("interlock+cluster://a/2", 2, "", ("a:6379",)),
        ("interlock+cluster://a/shop", 0, "shop", ("a:6379",)),
        ("interlock+cluster://a/2/shop", 2, "shop", ("a:6379",)),
        ("interlock+cluster://a:1,b:2/shop", 0, "shop", ("a:1", "b:2")),
    ],
)
def test_a_path_names_a_database_and_a_cluster(
    url: str, db: int, cluster: str, addresses: tuple[str, ...]
) -> None:
    target = parse(url)
    assert target.members is not None
    assert (target.db, target.members.cluster, target.addresses) == (db, cluster, addresses)
    assert target.kind == ("cluster" if len(addresses) > 1 else "server")


@pytest.mark.parametrize(
    ("tls", "engine", "nodes"),
    [("engine", True, False), ("nodes", False, True), ("all", True, True)],
)
def test_a_cluster_url_can_require_tls_for_engine_and_nodes(
    tls: str, engine: bool, nodes: bool
) -> None:
    target = parse(f"interlock+cluster://a/c?tls={tls}&ca=/ca.pem")
    assert target.members is not None
    assert (target.tls, target.members.target.tls) == (engine, nodes)
    assert target.ca == ("/ca.pem" if engine else "")
    assert target.members.target.ca == "/ca.pem"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "orders",
        "http://host",
        "redis://",
        "redis://host:port",
        "redis://host:99999",
        "redis://host/x",
        "redis://a,b",
        "redis://host?timeout=0",
        "redis://host?timeout=soon",
        "redis://host?nonsense=1",
        "redis://host#part",
        "redis+cluster://host/1",
        "unix://",
        "memory://a/b",
        "redis://me:secret@host:port",
        "redis://me:secret@host?x=1",
        "interlock+cluster://",
        "interlock+cluster://host/1/a/b",
        "interlock+cluster://host/a/1",
        "interlock+cluster://host/a%20b",
        "interlock+cluster://host/c?dc=a/b",
        "interlock+cluster://host/c?tls=yes",
        "interlock+cluster://host/c?linearizable=yes",
        "interlock+cluster://host/c?ca=/x",
        "interlock+cluster://a,b/1/c",
        "interlock+cluster://host/c?password=secret&x=1",
        "interlock+cluster://host/c?x=1&password=secret",
    ],
)
def test_the_error_about_a_bad_url_hides_its_password(url: str) -> None:
    with pytest.raises(ValueError, match=r"connect\(\): url is .*allowed: memory://") as caught:
        connect(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis://host:port", "its port is 'port'; allowed: 1 to 65535"),
        ("redis://host:99999", "its port is '99999'"),
        ("redis://", "it names no host"),
        ("redis://:7", "it names no host"),
        ("redis://host/x", "its database is 'x', no number"),
    ],
)
def test_the_error_names_the_wrong_part_of_a_url(url: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        connect(url)


@pytest.mark.parametrize("url", [7, b"redis://host"])
def test_a_url_is_a_str(url: Any) -> None:
    with pytest.raises(TypeError, match="url is"):
        connect(url)


def test_the_environment_variable_sets_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_URL", "redis://elsewhere")
    assert connect().url == "redis://elsewhere"
    monkeypatch.delenv("INTERLOCK_URL")
    assert connect().url == "memory://"
