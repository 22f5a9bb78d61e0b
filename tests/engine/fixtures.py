"""Fixtures of the engine and its client: one Redis with the library, a queue for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
import redis

import interlock
from interlock.client.lua.library import Library
from tests.engine.calls import Queue
from tests.engine.timed import TimedQueue
from tests.hub.servers import needs_hub, redis_server

LIBRARY = Library()


@pytest.fixture(scope="session")
def engine_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with redis_server(tmp_path_factory.mktemp("engine")) as (_, port):
        yield port


@pytest.fixture
def connection(engine_port: int) -> Iterator[redis.Redis]:
    with redis.Redis(port=engine_port) as opened:
        LIBRARY.load(opened)
        yield opened


@pytest.fixture
def queue(connection: redis.Redis) -> Queue:
    return Queue(connection, uuid.uuid4().hex)


@pytest.fixture
def timed(connection: redis.Redis) -> TimedQueue:
    return TimedQueue(connection, uuid.uuid4().hex)


@pytest.fixture
def redis_url(engine_port: int) -> str:
    return f"redis://127.0.0.1:{engine_port}"


@pytest.fixture
def hub_url() -> Iterator[str]:
    needs_hub()
    with interlock.Hub(port=0, workers=1) as hub:
        yield f"interlock://{hub.addresses[0]}"
