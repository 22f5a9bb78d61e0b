"""A resolver that does not answer costs a call only its time."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from interlock import EngineUnavailable, connect


class Resolver:
    """Stands for the system's; asked for `slow.test`, it answers when the test says so."""

    def __init__(self, port: int) -> None:
        self.go = threading.Event()
        self.asked = 0
        self._port = port
        self._real = socket.getaddrinfo

    def __call__(self, host: Any, *others: Any, **named: Any) -> Any:
        if host == "slow.test":
            self.asked += 1
            self.go.wait()
            host = "127.0.0.1"
        if host == "gone.test":
            raise socket.gaierror(-2, "Name or service not known")
        return self._real(host, *others, **named)


@pytest.fixture
def resolver(engine_port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    found = Resolver(engine_port)
    monkeypatch.setattr(socket, "getaddrinfo", found)
    yield found
    found.go.set()


def test_resolving_a_name_ends_at_the_timeout_of_the_call(
    resolver: Resolver, engine_port: int
) -> None:
    url = f"redis://slow.test:{engine_port}?timeout=0.3"
    with connect(url) as client:
        for _ in range(2):
            with pytest.raises(
                EngineUnavailable, match=r"'slow\.test' was not resolved in"
            ) as said:
                client.queue("resolved", int).put(1)
            assert not said.value.unknown
        # However often it is tried, one thread asks.
        assert resolver.asked == 1
        resolver.go.set()
    with connect(f"redis://slow.test:{engine_port}?timeout=20") as client:
        queue = client.queue("resolved", int)
        queue.put(1)
        with queue.get(timeout=30) as payload:
            assert payload == 1


def test_resolving_a_name_in_asyncio_does_not_delay_the_end_of_the_loop(
    resolver: Resolver, engine_port: int
) -> None:
    async def main(timeout: float) -> int:
        async with connect(f"redis://slow.test:{engine_port}?timeout={timeout}") as client:
            return await client.queue("resolved-too", int).put(1)

    # asyncio.run waits for the threads that a loop's own resolver uses.
    with pytest.raises(EngineUnavailable):
        asyncio.run(main(0.3))
    resolver.go.set()
    assert asyncio.run(main(20)) > 0


def test_an_unknown_host_name_is_reported(resolver: Resolver) -> None:
    with (
        connect("redis://gone.test?timeout=0.2") as client,
        pytest.raises(EngineUnavailable, match="Name or service not known"),
    ):
        client.queue("q", int).put(1)


def test_a_name_is_resolved_even_if_no_thread_can_be_started(
    resolver: Resolver, engine_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if "resolve" in thread.name:
            raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    resolver.go.set()

    async def main() -> int:
        async with connect(f"redis://slow.test:{engine_port}?timeout=20") as client:
            return await client.queue("without-threads", int).put(1)

    for _ in range(2):
        with connect(f"redis://slow.test:{engine_port}?timeout=20") as client:
            assert client.queue("without-threads", int).put(1) > 0
        assert asyncio.run(main()) > 0
    assert resolver.asked == 4
