"""One Redis for the tests that replay through an engine."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

import interlock
from tests.hub.servers import needs_hub, redis_server


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("replay")) as (host, port):
        yield f"redis://{host}:{port}"


@pytest.fixture
def memory_url() -> str:
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture(scope="session")
def hub_url() -> Iterator[str]:
    needs_hub()
    with interlock.Hub(port=0, workers=2) as hub:
        yield f"interlock://127.0.0.1:{hub.port}"
