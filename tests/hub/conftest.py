"""One Redis for all tests of the hub, and a hub for each that asks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

import interlock
from tests.hub.protocol.foreign_builds import SPOKEN, build
from tests.hub.servers import needs_hub, redis_server


@pytest.fixture(scope="session")
def redis_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with redis_server(tmp_path_factory.mktemp("redis")) as (_, port):
        yield port


@pytest.fixture
def hub() -> Iterator[interlock.Hub]:
    needs_hub()
    with interlock.Hub(port=0, workers=2) as running:
        yield running


@pytest.fixture(params=["redis", "hub"])
def port(request: pytest.FixtureRequest) -> int:
    """The port of Redis, then of a hub: what holds for both."""
    if request.param == "redis":
        found = request.getfixturevalue("redis_port")
    else:
        found = request.getfixturevalue("hub").port
    assert isinstance(found, int)
    return found


@pytest.fixture(scope="session")
def builds() -> Iterator[dict[str, Future[Path]]]:
    """The folders of the programs in other languages, each when its build has ended."""
    if "INTERLOCK_LONG" not in os.environ:
        pytest.skip("clients in other languages take minutes to build: INTERLOCK_LONG=1 runs them")
    with ThreadPoolExecutor(len(SPOKEN)) as pool:
        yield {language: pool.submit(build, language) for language in SPOKEN}
