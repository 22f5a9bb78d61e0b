"""The relay finds that the engine lost what it was given, although its connection stays open."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

import interlock
from interlock.app import App
from interlock.outbox import Outbox
from interlock.retry import Retry
from tests.hub.servers import needs_hub, redis_server
from tests.outbox.conftest import Connect
from tests.worker.workers import wait_for


class Balancer:
    """A TCP proxy that changes its server under connections that wait for no reply; the others it
    cuts."""

    def __init__(self, port: int) -> None:
        self.target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.changed = 0
        """Connections that were open when their server changed."""
        self._closed = False
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        self._closed = True
        with socket.create_connection(("127.0.0.1", self.port)):
            self._threads[0].join(20)
        for thread in self._threads:
            thread.join(20)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            if self._closed:
                client.close()
                return
            self._threads.append(threading.Thread(target=self._pass_on, args=(client,)))
            self._threads[-1].start()

    def _pass_on(self, client: socket.socket) -> None:
        with client, contextlib.ExitStack() as opened, contextlib.suppress(OSError):
            target, asked = self.target, False
            server = opened.enter_context(socket.create_connection(("127.0.0.1", target)))
            while not self._closed and not (asked and target != self.target):
                ready, _, _ = select.select([client, server], (), (), 0.05)
                if client in ready:
                    data = client.recv(65536)
                    if not data:
                        return
                    if target != self.target:
                        opened.close()
                        target = self.target
                        server = socket.create_connection(("127.0.0.1", target))
                        opened.enter_context(server)
                        self.changed += 1
                    asked = True
                    server.sendall(data)
                elif server in ready:
                    data = server.recv(65536)
                    if not data:
                        return
                    asked = False
                    client.sendall(data)


class Place:
    """An app whose engine is behind a balancer; a handler that notes its calls."""

    def __init__(self, database: str, port: int) -> None:
        self.balancer = Balancer(port)
        self.app = App(self.url(self.balancer.port), retry=Retry(attempts=None, first=0.01))
        self.outbox = Outbox(self.app, database)
        self.handled: list[int] = []

        @self.app.task(keys="key")
        def note(n: int) -> None:
            self.handled.append(n)

        self.note = note

    def url(self, port: int) -> str:
        raise NotImplementedError

    @contextmanager
    def another(self) -> Iterator[int]:
        """The port of an empty engine."""
        raise NotImplementedError
        yield 0

    @contextmanager
    def paused(self, port: int) -> Iterator[interlock.Client]:
        """A client of the engine itself, whose queue is paused."""
        with interlock.connect(self.url(port)) as client:
            client.queue("default").pause()
            yield client


class HubPlace(Place):
    def url(self, port: int) -> str:
        return f"interlock://127.0.0.1:{port}"

    @contextmanager
    def another(self) -> Iterator[int]:
        needs_hub()
        with interlock.Hub(port=0, workers=1) as hub:
            yield int(hub.addresses[0].rpartition(":")[2])


class RedisPlace(Place):
    folder: Path

    def url(self, port: int) -> str:
        return f"redis://127.0.0.1:{port}"

    @contextmanager
    def another(self) -> Iterator[int]:
        with redis_server(self.folder) as (_, port):
            yield port


@pytest.fixture(params=[HubPlace, RedisPlace])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> type[Place]:
    RedisPlace.folder = tmp_path
    found: type[Place] = request.param
    return found


@pytest.mark.parametrize("next_row", [True, False], ids=["put", "idle"])
def test_an_engine_that_is_exchanged_under_an_open_connection_gets_all_rows_in_their_order(
    kind: type[Place], next_row: bool, database: str, connect: Connect
) -> None:
    place = kind(database, 0)
    db = connect(autocommit=True)
    with place.another() as first, place.another() as second, place.paused(first) as client:
        place.balancer.target = first
        with place.app.worker(threads=2):
            for n in (1, 2, 3):
                place.outbox.send(db, place.note, n)
            wait_for(lambda: client.queue("default").stats().unsettled == 3, "not all are put")
            place.balancer.target = second
            if next_row:
                place.outbox.send(db, place.note, 4)
            expected = [1, 2, 3, 4] if next_row else [1, 2, 3]
            wait_for(lambda: len(place.handled) >= len(expected), "not handled")
        assert place.balancer.changed > 0
    place.app.close()
    place.balancer.close()
    assert place.handled == expected
    assert db.execute("select count(*) from interlock.outbox").fetchone() == (0,)


@pytest.mark.share(2)
@pytest.mark.parametrize("next_row", [True, False], ids=["put", "idle"])
def test_a_flushed_redis_gets_all_rows_again_in_their_order(
    next_row: bool, database: str, connect: Connect, tmp_path: Path
) -> None:
    RedisPlace.folder = tmp_path
    place = RedisPlace(database, 0)
    db = connect(autocommit=True)
    with place.another() as port, place.paused(port) as client:
        place.balancer.target = port
        with place.app.worker(threads=2), redis.Redis(port=port) as server:
            for n in (1, 2, 3):
                place.outbox.send(db, place.note, n)
            wait_for(lambda: client.queue("default").stats().unsettled == 3, "not all are put")
            server.flushall()
            if next_row:
                place.outbox.send(db, place.note, 4)
            expected = [1, 2, 3, 4] if next_row else [1, 2, 3]
            wait_for(lambda: len(place.handled) >= len(expected), "not handled")
    place.app.close()
    place.balancer.close()
    assert place.handled == expected


def test_a_row_is_put_when_the_rows_before_it_were_handled_and_their_dedup_strings_forgotten(
    database: str, connect: Connect
) -> None:
    app = App("memory://", queues={"default": {"dedup_window": 0}})
    outbox = Outbox(app, database)
    handled: list[int] = []

    @app.task(keys="key")
    def note(n: int) -> None:
        handled.append(n)

    db = connect(autocommit=True)
    with app.worker(threads=2):
        for n in range(5):
            outbox.send(db, note, n)
            wait_for(lambda: len(handled) > n, "not handled")  # noqa: B023
    assert handled == [0, 1, 2, 3, 4]
