"""Topics that ignore case: wherever one is named, by a client, a user's rights or a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock import Hub
from interlock.hub.client import Client
from interlock.hub.resp import ReplyError
from tests.hub.servers import needs_hub


def test_a_topic_is_the_same_in_any_case(tmp_path: Path) -> None:
    needs_hub()
    store = {"name": "kept", "path": f"{tmp_path}/[topic].log", "topics": ["APP.*"], "ack": "disk"}
    with (
        Hub(port=0, ignore_case_topics=True, store=[store]) as hub,
        Client(hub.url) as subscriber,
        Client(hub.url) as client,
    ):
        subscriber.subscribe("App.One")
        subscriber.psubscribe("aPP.[T]*")
        assert client.call("PUBLISH", "APP.one", "Text 1") == 1
        assert client.call("publish", "app.TWO", "Text 2") == 1
        assert client.call("SPUBLISH", "app.ONE", "Text 3") == 0
        first, second = subscriber.message(5), subscriber.message(5)
        assert first is not None
        assert second is not None
        assert (first.topic, first.payload) == (b"app.one", b"Text 1")
        assert (second.topic, second.payload, second.pattern) == (
            b"app.two",
            b"Text 2",
            b"app.[t]*",
        )
        assert client.call("PUBSUB", "CHANNELS", "APP*") == [b"app.one"]
        assert client.call("PUBSUB", "NUMSUB", "APP.ONE") == [b"app.one", 1]
        assert (tmp_path / "app.one.log").read_text() == "Text 1\nText 3\n"
        assert client.call("XLEN", "App.oNe") == 2
        found = client.call("XREAD", "COUNT", "1", "STREAMS", "APP.ONE", "APP.TWO", "0", "0")
        assert isinstance(found, dict)
        assert set(found) == {b"app.one", b"app.two"}
        subscriber.unsubscribe("APP.one")
        assert client.call("PUBSUB", "NUMSUB", "app.one") == [b"app.one", 0]


def test_rights_ignore_case_too() -> None:
    needs_hub()
    user = {"name": "default", "publish": ["App.*"], "subscribe": ["APP.x"]}
    with Hub(port=0, ignore_case_topics=True, user=[user]) as hub, Client(hub.url) as client:
        assert client.call("PUBLISH", "aPP.1", "x") == 0
        client.subscribe("app.X")
        with pytest.raises(ReplyError, match="NOPERM"):
            client.call("PUBLISH", "other", "x")
        with pytest.raises(ReplyError, match="NOPERM"):
            client.subscribe("App.Y")


def test_topics_differ_in_case_by_default() -> None:
    needs_hub()
    with Hub(port=0) as hub, Client(hub.url) as one, Client(hub.url) as other:
        one.subscribe("App")
        assert other.call("PUBLISH", "app", "x") == 0
        assert other.call("PUBLISH", "App", "x") == 1
