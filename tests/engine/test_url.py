"""URLs of engines."""

from __future__ import annotations

from typing import Any

import pytest

from interlock import connect
from interlock.engine.url import parse


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
def test_a_url_is_read(url: str, kind: str, addresses: tuple[str, ...]) -> None:
    target = parse(url)
    assert (target.kind, target.addresses) == (kind, addresses)


def test_all_parts_are_read() -> None:
    target = parse("rediss://me:p%40ss@host/2?timeout=1.5&ca=/ca.pem")
    assert (target.user, target.password, target.db) == ("me", "p@ss", 2)
    assert (target.timeout, target.tls, target.ca) == (1.5, True, "/ca.pem")
    assert "p%40ss" not in target.shown and "me:***@host" in target.shown


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
    ],
)
def test_a_bad_url_is_refused_without_its_password(url: str) -> None:
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
def test_the_part_that_is_wrong_is_named(url: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        connect(url)


@pytest.mark.parametrize("url", [7, b"redis://host"])
def test_a_url_is_a_str(url: Any) -> None:
    with pytest.raises(TypeError, match="url is"):
        connect(url)


def test_the_environment_names_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_URL", "redis://elsewhere")
    assert connect().url == "redis://elsewhere"
    monkeypatch.delenv("INTERLOCK_URL")
    assert connect().url == "memory://"
