"""Dashboards over a Redis and a hub, each a real server on a thread of its own."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

import interlock
from interlock.client.admin import queue_counts
from interlock.client.admin.operator import Operator
from interlock.client.admin.server import Server
from interlock.client.faces.client import Client, connect
from interlock.client.faces.queue import RemoteQueue
from interlock.dashboard.polling import roster, watcher
from interlock.dashboard.polling.watcher import Watcher
from interlock.dashboard.service import Service
from interlock.dashboard.settings import Settings
from interlock.retry import Retry
from tests.hub.servers import needs_hub, redis_server

AT_ONCE = Retry(attempts=2, first=0)


class Page:
    """A browser's view of a dashboard: its cookie and its mark go with what it sends."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.http = httpx.Client(base_url=service.url, timeout=20, verify=False)
        self.mark = ""

    @property
    def watcher(self) -> Watcher:
        """The user of all pages, if there is no login of the engine's users."""
        shared = self.service.dashboard._identities._shared
        assert shared is not None
        return shared.watcher

    def get(self, path: str, status: int = 200, **query: Any) -> Any:
        answer = self.http.get(f"/api/{path}", params=query or None)
        assert answer.status_code == status, answer.text
        return answer.json()

    def post(self, path: str, body: object = None, status: int = 200, **headers: str) -> Any:
        if not self.mark:
            self.mark = self.get("server")["csrf"]
        sent = {"X-Interlock-CSRF": self.mark, **headers}
        answer = self.http.post(f"/api/{path}", json=body or {}, headers=sent)
        assert answer.status_code == status, answer.text
        return answer.json()


Serve = Callable[..., Page]


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("dashboard")) as (host, port):
        yield f"redis://{host}:{port}"


@pytest.fixture(scope="session")
def hub_url() -> Iterator[str]:
    needs_hub()
    with interlock.Hub(port=0, workers=2) as hub:
        yield f"interlock://{hub.addresses[0]}"


@pytest.fixture(scope="session", params=["redis", "hub"])
def url(request: pytest.FixtureRequest) -> str:
    """URL of each engine."""
    found = request.getfixturevalue(f"{request.param}_url")
    assert isinstance(found, str)
    return found


@pytest.fixture(scope="session")
def serve() -> Iterator[Serve]:
    """A dashboard with these settings: one for all tests that ask for the same."""
    # Looked more often than is wanted of an engine, for tests wait for what it sees.
    patch = pytest.MonkeyPatch()
    patch.setattr(queue_counts, "FRESH", 0.05)
    patch.setattr(queue_counts, "SHARE", 2)
    patch.setattr(watcher, "EVERY", 0.1)
    patch.setattr(roster, "EVERY", 0.1)
    running: dict[Settings, tuple[Service, threading.Thread]] = {}
    pages: list[Page] = []

    def start(url: str, **given: Any) -> Page:
        settings = Settings(url=url, port=0, **given)
        if settings not in running:
            service, ready = Service(settings), threading.Event()
            thread = threading.Thread(target=service.run, args=(lambda url: ready.set(),))
            thread.start()
            assert ready.wait(30)
            running[settings] = service, thread
        pages.append(Page(running[settings][0]))
        return pages[-1]

    yield start
    for page in pages:
        page.http.close()
    for service, _ in running.values():
        service.stop()
    for _, thread in running.values():
        thread.join()
    patch.undo()


@pytest.fixture
def page(url: str, serve: Serve) -> Page:
    """A dashboard that may write."""
    return serve(url, write=True)


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with connect(url) as opened:
        yield opened


@pytest.fixture
def operator(client: Client) -> Operator:
    return Operator(Server(client))


@pytest.fixture
def queue(client: Client) -> RemoteQueue[bytes]:
    return client.queue(f"q{uuid.uuid4().hex}", bytes, retry=AT_ONCE)
