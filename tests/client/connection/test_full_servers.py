"""A server at its memory limit, through the public client: puts are refused by name, everything
else continues, and acknowledged messages exist."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock import Full, connect
from interlock.client.faces.queue import RemoteQueue
from interlock.hub.client import Client
from tests.hub.servers import hub_process, redis_server

LARGE = b"x" * 10_000


class Server:
    """One with room for a few hundred large payloads, and a look at what it is asked."""

    def __init__(self, url: str, port: int) -> None:
        self.url = url
        self._client = Client(f"127.0.0.1:{port}", timeout=20)

    def set_limit(self, above: int) -> None:
        """Its current size plus this number of bytes."""
        self._client.call("CONFIG", "SET", "maxmemory", str(self.figure("used_memory") + above))

    def figure(self, name: str) -> int:
        info = self._client.call("INFO", "everything")
        assert isinstance(info, bytes)
        return int(info.partition(f"\n{name}:".encode())[2].split(b"\r", 1)[0])

    def close(self) -> None:
        self._client.close()


@pytest.fixture(params=["redis", "hub"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    if request.param == "redis":
        with redis_server(tmp_path) as (_, port):
            found = Server(f"redis://127.0.0.1:{port}", port)
            with connect(found.url) as client:
                client.queue("q").stats()
            found.set_limit(1 << 20)
            yield found
            found.close()
    else:
        limit = {"INTERLOCK_HUB_QUEUES_MEMORY": str(1 << 20)}
        with hub_process("--port", "0", environment=limit) as hub:
            found = Server(f"interlock://127.0.0.1:{hub.port}", hub.port)
            yield found
            found.close()


@pytest.fixture
def queue(server: Server) -> Iterator[RemoteQueue[bytes]]:
    with connect(server.url) as client:
        yield client.queue("q", bytes)


def filled(queue: RemoteQueue[bytes]) -> list[int]:
    """Until it is refused; the ids of what was taken."""
    ids: list[int] = []
    refused = ""
    while len(ids) < 1_000:
        try:
            ids.append(queue.put(LARGE, block=False, keys=[f"account-{len(ids) % 7}", "all"]))
        except Full as error:
            refused = str(error)
            break
    assert "at its memory limit and takes no puts until messages are settled" in refused
    return ids


def test_a_full_server_refuses_puts_and_drains_and_takes_puts_again(
    queue: RemoteQueue[bytes],
) -> None:
    ids = filled(queue)
    assert len(ids) > 20
    for number, id in enumerate(ids):
        # Settled in each way there is; what is given back keeps its place.
        lease = queue.get(block=False)
        assert lease.id == id
        if number % 3 == 1:
            lease.release()
            lease = queue.get(block=False)
        elif number % 3 == 2:
            lease.nack(0)
            lease = queue.get(block=False)
            lease.extend(60)
        assert (lease.id, lease.payload) == (id, LARGE)
        lease.ack()
    assert queue.stats().unsettled == 0
    queue.join(timeout=20)
    again = filled(queue)
    assert len(again) > len(ids) // 2
    assert again[0] > ids[-1]


def test_a_batch_that_does_not_fit_is_refused_as_a_whole(queue: RemoteQueue[bytes]) -> None:
    ids = filled(queue)
    with pytest.raises(Full):
        queue.put_many([LARGE] * 20, block=False, keys="all")
    assert queue.stats().unsettled == len(ids)


def test_a_put_that_would_wait_is_refused_at_the_limit_too(
    server: Server, queue: RemoteQueue[bytes]
) -> None:
    filled(queue)
    before = server.figure("total_commands_processed")
    with pytest.raises(Full):
        queue.put(LARGE, keys="late")
    # It was asked again and again once, ten thousand times a second.
    assert server.figure("total_commands_processed") - before < 5
