"""One Redis for the tests of workers; each test finds it empty."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from interlock.app import App
from tests.hub.servers import redis_server
from tests.worker.workers import Workers


@pytest.fixture(scope="session")
def worker_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with redis_server(tmp_path_factory.mktemp("worker")) as (_, port):
        yield port


@pytest.fixture
def url(worker_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of an empty Redis; INTERLOCK_URL names it too, for processes."""
    with redis.Redis(port=worker_port) as server:
        server.flushall()
    found = f"redis://127.0.0.1:{worker_port}"
    monkeypatch.setenv("INTERLOCK_URL", found)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    (tmp_path / "runtime").mkdir()
    return found


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
