"""One Redis for the tests that replay through an engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hub.servers import redis_server


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("replay")) as (host, port):
        yield f"redis://{host}:{port}"
