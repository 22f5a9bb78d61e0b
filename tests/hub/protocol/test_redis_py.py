"""redis-py, unchanged, threads and asyncio, both protocols: with Redis and with the hub alike."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import redis
from redis import asyncio as aio

import interlock
from tests.hub.servers import needs_hub


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def protocol(request: pytest.FixtureRequest) -> int:
    assert isinstance(request.param, int)
    return request.param


@pytest.fixture
def client(port: int, protocol: int) -> Iterator[Any]:
    with redis.Redis(port=port, protocol=protocol, socket_timeout=30) as opened:
        yield opened


def message(pubsub: Any) -> dict[str, Any]:
    """The next message of a subscription, confirmations too."""
    found = pubsub.get_message(timeout=30)
    assert isinstance(found, dict), "no message came"
    return found


def test_it_connects_and_asks(client: Any) -> None:
    assert client.ping() is True
    assert client.echo("x") == b"x"
    assert client.client_setname("me")
    assert client.client_getname() in (b"me", "me")
    assert client.client_id() in {int(found["id"]) for found in client.client_list()}
    assert client.info()["connected_clients"] >= 1
    assert client.publish("nobody", "x") == 0
    with pytest.raises(redis.ResponseError, match="unknown command"):
        client.execute_command("NONSENSE")


def test_topics_and_patterns(client: Any) -> None:
    with closing(client.pubsub()) as pubsub:
        pubsub.subscribe("a", "b")
        pubsub.psubscribe("a*")
        kinds = [message(pubsub)["type"] for _ in range(3)]
        assert kinds == ["subscribe", "subscribe", "psubscribe"]
        assert client.publish("a", "x") == 2
        found = [message(pubsub), message(pubsub)]
        assert [(one["type"], one["channel"], one["data"]) for one in found] == [
            ("message", b"a", b"x"),
            ("pmessage", b"a", b"x"),
        ]
        assert client.pubsub_channels("[ab]") in ([b"a", b"b"], [b"b", b"a"])
        assert client.pubsub_numsub("a", "c") == [(b"a", 1), (b"c", 0)]
        assert client.pubsub_numpat() == 1
        pubsub.unsubscribe("a")
        pubsub.punsubscribe()
        assert [message(pubsub)["type"] for _ in range(2)] == ["unsubscribe", "punsubscribe"]
        assert client.publish("a", "x") == 0


def test_a_pipeline(client: Any) -> None:
    with client.pipeline(transaction=False) as pipeline:
        for number in range(100):
            pipeline.publish("nobody", number)
        assert pipeline.execute() == [0] * 100


def test_handlers_on_a_thread_of_its_own(client: Any) -> None:
    found: list[bytes] = []
    pubsub = client.pubsub()

    def handle(given: dict[str, Any]) -> None:
        found.append(given["data"])
        if given["data"] == b"9":
            thread.stop()

    pubsub.subscribe(a=handle)
    # A hub serves connections in no order: one may publish before another has subscribed.
    assert message(pubsub)["type"] == "subscribe"
    thread = pubsub.run_in_thread(sleep_time=1)
    try:
        for number in range(10):
            assert client.publish("a", number) == 1
        thread.join(20)
    finally:
        # The client's connections, of which it reads one, close after the test.
        thread.stop()
        thread.join(20)
    assert found == [b"%d" % number for number in range(10)]


def test_asyncio(port: int, protocol: int) -> None:
    async def talk() -> list[bytes]:
        async with (
            aio.Redis(port=port, protocol=protocol, socket_timeout=30) as client,
            client.pubsub(ignore_subscribe_messages=True) as pubsub,
        ):
            await pubsub.subscribe("a")
            await pubsub.psubscribe("b*")
            await pubsub.get_message(timeout=30)
            await pubsub.get_message(timeout=30)
            counts = await asyncio.gather(*(client.publish("a", n) for n in range(20)))
            assert counts == [1] * 20
            assert await client.publish("bb", "end") == 1
            found: list[bytes] = []
            async for given in pubsub.listen():
                found.append(given["data"])
                if given["data"] == b"end":
                    return found
        raise AssertionError

    found = asyncio.run(talk())
    # Over connections of a pool: each is in, none twice, in no order but that the end is last.
    assert sorted(found[:-1]) == sorted(b"%d" % number for number in range(20))


def test_a_subscriber_comes_back_after_a_restart_of_the_hub(protocol: int) -> None:
    needs_hub()
    with interlock.Hub(port=0) as first:
        port = first.port
        client: Any = redis.Redis(port=port, protocol=protocol, socket_timeout=30)
        pubsub = client.pubsub()
        pubsub.subscribe("a")
        pubsub.psubscribe("b*")
        assert [message(pubsub)["type"] for _ in range(2)] == ["subscribe", "psubscribe"]
    # It notices when it next asks: its own retry then connects and subscribes again.
    with closing(client), closing(pubsub), interlock.Hub(port=port) as second:
        again = {message(pubsub)["type"] for _ in range(2)}
        assert again == {"subscribe", "psubscribe"}
        assert client.publish("a", "x") == 1
        assert client.publish("bc", "y") == 1
        assert [message(pubsub)["data"] for _ in range(2)] == [b"x", b"y"]
        assert second.port == port
