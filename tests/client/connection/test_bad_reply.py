"""A reply that no engine would give, whatever it is, is an error of Interlock to all callers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from interlock import Empty, EngineUnavailable, InterlockError, connect
from interlock.cli import main
from interlock.client.transport import thread_link as threads
from tests.client.connection.stub import array, is_version, stub, version

REPLIES = {
    "a number": b":7\r\n",
    "nothing": b"$-1\r\n",
    "no array": b"*-1\r\n",
    "a word": b"+OK\r\n",
    "a string": b"$2\r\nhi\r\n",
    "an empty array": b"*0\r\n",
    "numbers": b"*4\r\n:1\r\n:2\r\n:3\r\n:4\r\n",
    "arrays": b"*2\r\n*1\r\n:1\r\n*0\r\n",
    "nothings": b"*4\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n",
    "words for numbers": array("one", "two", "three", "four"),
    "no UTF-8": array(b"\xff\xfe", b"\xff", b"\xff", b"\xff"),
    "too few": array("0", "2", "", "5", "9"),
    "large numbers": array("9" * 5000, "1"),
    "a span beyond all floats": array("", "", "9" * 400, "0"),
    "HTTP": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "an array of x": b"*x\r\n",
    "an error without words": b"-\r\n",
    "MOVED nowhere": b"-MOVED\r\n",
    "MOVED to no port": b"-MOVED 1 host:port\r\n",
    "MOVED to a long port": b"-MOVED 1 host:" + b"9" * 5000 + b"\r\n",
    "ASK nowhere": b"-ASK 1\r\n",
    "an error that is not UTF-8": b"-\xff\xfe\r\n",
}
ID = 1_700_000_000_000_001
CALLS: dict[str, Callable[[Any], object]] = {
    "put": lambda queue: queue.put_nowait(1),
    "put_many": lambda queue: queue.put_many([1, 2]),
    "get": lambda queue: queue.get_nowait(),
    "settle": lambda queue: queue.settle([("ACK", 1, ID)]),
    "exchange": lambda queue: queue.exchange([("ACK", 1, ID)], 1, False),
    "stats": lambda queue: queue.stats(),
    "full": lambda queue: queue.full(),
    "explain": lambda queue: queue.explain(ID),
    "hot_keys": lambda queue: queue.hot_keys(),
    "limits": lambda queue: queue.limits(),
    "dead_letters": lambda queue: queue.dead_letters(1),
    "join": lambda queue: queue.join(0),
    "result": lambda queue: queue.result(ID, 0),
    "cancel": lambda queue: queue.cancel(ID),
    "requeue": lambda queue: queue.requeue(ID),
    "pause": lambda queue: queue.pause("a"),
    "purge": lambda queue: queue.purge(),
    "drop": lambda queue: queue.drop(),
    "seal": lambda queue: queue.seal(),
}
ANSWERS = (InterlockError, Empty, KeyError, TimeoutError)
"""An empty array, and some words, are answers to some calls."""


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
@pytest.mark.parametrize("parser", ["hiredis", "redis-py"])
def test_every_call_reports_a_malformed_reply(
    reply: bytes, parser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if parser == "redis-py":
        monkeypatch.setattr(threads, "hiredis", None)

    def answer(command: list[bytes]) -> bytes:
        return version() if is_version(command) else reply

    with stub(answer) as server:
        url = f"redis://127.0.0.1:{server.port}?timeout=0.2"
        for name, call in CALLS.items():
            with connect(url) as client:
                try:
                    call(client.queue("q", int))
                except ANSWERS:
                    continue
                except Exception as error:
                    pytest.fail(f"{name}: {error!r}")

    async def main(url: str) -> None:
        async with connect(url) as client:
            with pytest.raises(ANSWERS):
                await client.queue("q", int).get_nowait()

    with stub(answer) as server:
        asyncio.run(main(f"redis://127.0.0.1:{server.port}?timeout=0.2"))


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
def test_a_malformed_version_is_reported(reply: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    with stub(lambda command: reply) as server:
        url = f"redis://127.0.0.1:{server.port}?timeout=0.2"
        with connect(url) as client, pytest.raises(InterlockError):
            client.queue("q", int).put(1)
        assert main(["queue", "list", "--url", url]) == 1
        assert capsys.readouterr().err.startswith("interlock: ")


def test_the_error_shows_the_reply_and_a_possible_cause() -> None:
    with stub(lambda command: version() if is_version(command) else b":7\r\n") as server:
        url = f"redis://127.0.0.1:{server.port}"
        with connect(url) as client, pytest.raises(EngineUnavailable) as caught:
            client.queue("q", int).put(1)
        assert "answer is not one of an engine: 7; is it a hub" in str(caught.value)
        # It may have been done.
        assert caught.value.unknown


def test_a_server_that_never_has_the_library_is_reported() -> None:
    """It takes it each time, and somebody flushes it each time."""

    def answer(command: list[bytes]) -> bytes:
        return b"+il1\r\n" if command[0] == b"FUNCTION" else b"-ERR Function not found\r\n"

    with stub(answer) as server:
        url = f"redis://127.0.0.1:{server.port}?timeout=1"
        with connect(url) as client:
            with pytest.raises(EngineUnavailable, match="Function not found"):
                client.queue("q", int).put(1)
            with pytest.raises(EngineUnavailable, match="Function not found"):
                client.queue("q", int).get(timeout=1)


@pytest.mark.parametrize(
    "slots",
    [":7\r\n", "*1\r\n:7\r\n", "*1\r\n*3\r\n:0\r\n:5\r\n*2\r\n$1\r\nh\r\n:0\r\n", "*-1\r\n"],
)
def test_a_cluster_with_malformed_nodes_is_reported(slots: str) -> None:
    def answer(command: list[bytes]) -> bytes:
        return slots.encode() if command[0] == b"CLUSTER" else b"-CLUSTERDOWN x\r\n"

    with stub(answer) as server:
        url = f"redis+cluster://127.0.0.1:{server.port}?timeout=0.2"
        with connect(url) as client, pytest.raises(EngineUnavailable):
            client.queue("q", int).put(1)
        assert main(["queue", "list", "--url", url]) == 1


@pytest.mark.parametrize("port", ["9" * 5000, "0", "65536", "-1", "x"])
def test_an_invalid_port_of_a_node_is_named(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    for scheme in ("redis", "redis+cluster", "interlock"):
        with pytest.raises(ValueError, match=re.escape(f"its port is {port!r}"[:30])) as caught:
            connect(f"{scheme}://host:{port}")
        assert len(str(caught.value)) < 800
    assert main(["queue", "list", "--url", f"redis://host:{port}"]) == 2
    assert "Traceback" not in capsys.readouterr().err
