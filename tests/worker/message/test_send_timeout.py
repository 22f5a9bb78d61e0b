"""``send_timeout`` is what a send waits, for room and for the engine alike."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import socket
import threading
from collections.abc import Iterator

import pytest

import interlock
from interlock import EngineUnavailable, Full, ShutDown
from interlock.app import App
from tests.client.connection.proxy import Proxy
from tests.hub.servers import refusing
from tests.worker.workers import wait_for

NEVER = 0.3
"""Seconds given where nothing will come."""
LONG = 30.0


def note(number: int) -> None: ...


@contextlib.contextmanager
def sending(url: str, send_timeout: float) -> Iterator[App]:
    with App(url, send_timeout=send_timeout) as app:
        app.task(note)
        yield app


@pytest.fixture
def proxy(worker_port: int) -> Iterator[Proxy]:
    made = Proxy("127.0.0.1", worker_port)
    yield made
    made.close()


def send(app: App, face: str) -> None:
    task = app.tasks["note"]
    if face == "sync":
        task.send(1)
        return

    async def main() -> None:
        async with app:
            await task.asend(1)

    asyncio.run(main())


def is_sent(app: App) -> bool:
    with contextlib.suppress(EngineUnavailable):
        app.tasks["note"].send(0)
        return True
    return False


FACES = pytest.mark.parametrize("face", ["sync", "async"])


@FACES
def test_a_short_send_timeout_ends_a_send_to_an_unreachable_engine(face: str) -> None:
    with (
        refusing() as port,
        sending(f"redis://127.0.0.1:{port}?timeout={LONG}", NEVER) as app,
        pytest.raises(EngineUnavailable, match=r"in 0\.\d+ s"),
    ):
        send(app, face)


@FACES
def test_a_short_send_timeout_ends_a_send_to_a_silent_engine(face: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}?timeout={LONG}"
        with sending(url, NEVER) as app, pytest.raises(EngineUnavailable, match=r"in 0\.\d+ s"):
            send(app, face)


@FACES
def test_a_short_send_timeout_ends_a_send_to_an_engine_that_died(proxy: Proxy, face: str) -> None:
    with sending(f"redis://127.0.0.1:{proxy.port}?timeout={LONG}", NEVER) as app:
        # The first connects, which on a busy machine may take longer than `NEVER`.
        wait_for(lambda: is_sent(app), "no send succeeds")
        proxy.refuse = True
        proxy.cut()
        with pytest.raises(EngineUnavailable, match=r"in 0\.\d+ s"):
            send(app, face)


@FACES
def test_a_long_send_timeout_outlasts_the_client_timeout_until_the_engine_starts(
    proxy: Proxy, face: str
) -> None:
    proxy.refuse = True

    def heal() -> None:
        wait_for(lambda: proxy.connections >= 5, "nobody tries")
        proxy.heal()

    with sending(f"redis://127.0.0.1:{proxy.port}?timeout=0.1", LONG) as app:
        healing = threading.Thread(target=heal)
        healing.start()
        send(app, face)
        healing.join()


@pytest.mark.parametrize("engine", ["memory", "redis", "hub"], indirect=True)
def test_a_send_raises_full_or_shut_down_at_its_timeout(url: str) -> None:
    with interlock.connect(url) as client, sending(url, NEVER) as app:
        queue = client.queue("default", bytes, maxsize=1)
        queue.put(b"x")
        with pytest.raises(Full):
            app.tasks["note"].send(1)
        queue.seal()
        with pytest.raises(ShutDown, match="is sealed"):
            app.tasks["note"].send(1)
        # The engine is that of other tests too.
        queue.drop(force=True)


def test_a_send_timeout_set_later_is_checked_by_each_send() -> None:
    with App("memory://send-timeout") as app:

        @app.task(queue="timeouts")
        def walk() -> None:
            pass

        app.send_timeout = dt.timedelta(seconds=20)  # type: ignore[assignment]
        assert walk.send().id > 0
        app.send_timeout = "soon"  # type: ignore[assignment]
        with pytest.raises(TypeError, match=r"send\(\): timeout is str; allowed: seconds"):
            walk.send()
        with interlock.connect("memory://send-timeout") as client:
            client.queue("timeouts").drop(force=True)
