"""The engines for the tests of workers; each test finds its own empty."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

import interlock
from interlock.app import App
from tests.hub.servers import needs_hub, redis_server
from tests.worker.workers import Workers


@pytest.fixture(scope="session")
def worker_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with redis_server(tmp_path_factory.mktemp("worker")) as (_, port):
        yield port


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of an empty engine: ``redis``, unless a test is parametrised by it: ``hub``, or
    ``memory``, which is this process's own."""
    kind = getattr(request, "param", "redis")
    if kind == "memory":
        yield f"memory://{uuid.uuid4().hex}"
    elif kind == "hub":
        needs_hub()
        with interlock.Hub(port=0, workers=2) as hub:
            yield f"interlock://{hub.addresses[0]}"
    else:
        port = request.getfixturevalue("worker_port")
        with redis.Redis(port=port) as server:
            server.flushall()
        yield f"redis://127.0.0.1:{port}"


@pytest.fixture
def url(engine: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URL of the engine; INTERLOCK_URL names it too, for processes."""
    monkeypatch.setenv("INTERLOCK_URL", engine)
    # The path of a unix socket may not be long, as that of a test's own folder is.
    with tempfile.TemporaryDirectory(prefix="il") as runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        yield engine


@pytest.fixture
def app(url: str) -> Iterator[App]:
    """Audited, as all workers of the tests are."""
    with App(url, audit=True) as made:
        yield made


@pytest.fixture
def workers(url: str, tmp_path: Path) -> Iterator[Workers]:
    """Starts ``interlock worker`` as a process."""
    with Workers(tmp_path) as made:
        yield made
