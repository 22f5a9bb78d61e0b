"""The options that a program declared, on an engine that has lost them while the program runs."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis

import interlock
from interlock import connect
from interlock.client.connection import call
from tests.hub.servers import needs_hub, redis_server


class Server:
    """A hub without a journal or a Redis, which can be restarted empty at its port."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind, self._folder = kind, folder
        self._open = ExitStack()
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        scheme = "interlock" if self._kind == "hub" else "redis"
        return f"{scheme}://127.0.0.1:{self.port}?timeout=30"

    def start(self) -> None:
        if self._kind == "hub":
            hub = self._open.enter_context(interlock.Hub(port=self.port, workers=1))
            self.port = int(hub.addresses[0].rpartition(":")[2])
        else:
            _, self.port = self._open.enter_context(redis_server(self._folder, wanted=self.port))

    def stop(self) -> None:
        self._open.close()


@pytest.fixture(params=["hub", "redis"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    if request.param == "hub":
        needs_hub()
    started = Server(request.param, tmp_path)
    yield started
    started.stop()


@pytest.fixture
def name() -> str:
    return uuid.uuid4().hex


def leased(queue: Any) -> list[Any]:
    """The payloads of the messages that may be leased at once; they are returned."""
    leases = queue.get_many(10)
    for lease in leases:
        lease.release()
    return [lease.payload for lease in leases]


def test_a_restarted_server_applies_the_limits_that_a_running_program_declared(
    server: Server, name: str
) -> None:
    with connect(server.url) as client, connect(server.url) as other:
        queue = client.queue(name, limits={"bank": 1})
        assert [queue.put(n, limit="bank") for n in range(2)]
        assert leased(queue) == [0]
        server.stop()
        server.start()
        # Another program, which declares nothing, makes the queue anew.
        other.queue(name).put_many(range(3), limit="bank")
        assert leased(queue) == [0]


def test_a_consumer_that_waited_for_a_restarted_server_leases_within_its_limits(
    server: Server, name: str
) -> None:
    with connect(server.url) as client, connect(server.url) as other:
        queue = client.queue(name, limits={"bank": 1})
        got: list[list[Any]] = []
        waiting = threading.Thread(target=lambda: got.append(leased(queue)))
        queue.put("first", limit="bank")
        with queue.get():
            waiting.start()
        server.stop()
        server.start()
        other.queue(name).put_many(range(3), limit="bank")
        waiting.join(40)
        assert got == [[0]]


def test_a_coroutine_client_declares_its_limits_to_a_restarted_server(
    server: Server, name: str
) -> None:
    async def run() -> None:
        async with connect(server.url) as client:
            queue: Any = client.queue(name, limits={"bank": 1})
            await queue.put("first", limit="bank")
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.start)
            with connect(server.url) as other:
                other.queue(name).put_many(range(3), limit="bank")
            leases = await queue.get_many(10)
            assert [lease.payload for lease in leases] == [0]
            await leases[0].release()

    asyncio.run(run())


def test_a_flushed_redis_is_told_the_limits_by_the_next_call_after_ten_seconds(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call.DECLARED_FOR == 10
    monkeypatch.setattr(call, "DECLARED_FOR", 0.0)
    with redis_server(tmp_path) as (_, port), connect(f"redis://127.0.0.1:{port}") as client:
        queue = client.queue(name, limits={"bank": 1})
        queue.put("first", limit="bank")
        with redis.Redis(port=port) as other:
            # Connections and functions are still there.
            other.flushall()
        client.queue(name).put_many(range(3), limit="bank")
        assert leased(queue) == [0]


def test_options_that_were_changed_meanwhile_stay_and_the_program_continues(
    server: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call, "DECLARED_FOR", 0.0)
    with connect(server.url) as client, connect(server.url) as operator:
        queue = client.queue(name, limits={"bank": 1})
        queue.put_many(range(4), limit="bank")
        operator.queue(name).configure(limits={"bank": 2})
        assert leased(queue) == [0, 1]
        assert queue.put(4)
        assert queue.configure()["limits"] == {"bank": 2}


def test_what_one_of_two_handles_declared_is_declared_to_a_restarted_server(
    server: Server, name: str
) -> None:
    with connect(server.url) as client:
        queue = client.queue(name, maxsize=3, limits={"bank": 1})
        queue.put(0)
        client.queue(name, maxsize=3).put(1)
        server.stop()
        server.start()
        queue.put_many(range(3), limit="bank")
        assert leased(queue) == [0]
        with pytest.raises(interlock.Full):
            queue.put_nowait(3)


def test_what_a_program_configured_is_declared_to_a_restarted_server(
    server: Server, name: str
) -> None:
    with connect(server.url) as client:
        queue = client.queue(name, limits={"bank": 1})
        queue.put(0)
        queue.configure(limits={"bank": 2})
        server.stop()
        server.start()
        queue.put_many(range(4), limit="bank")
        assert leased(queue) == [0, 1]
