"""The same bytes to the hub and to Redis 7.0.15 give the same bytes back, errors included."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import interlock
from tests.hub.protocol.exchanges import EXCHANGES
from tests.hub.protocol.wire import Exchange, differences, play
from tests.hub.servers import REDIS_VERSION, needs_hub, redis_server, version_of


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    # Its own, and so empty: DBSIZE is among what is asked.
    with redis_server(tmp_path_factory.mktemp("redis")) as (_, port):
        version = version_of(port)
        if version != REDIS_VERSION:
            pytest.skip(f"Redis is {version}, and it is {REDIS_VERSION} that the hub answers like")
        yield port


@pytest.fixture(scope="module")
def one_worker() -> object:
    needs_hub()
    # With one worker a delivery and the answer that shows it come in the same order as in Redis.
    with interlock.Hub(port=0, workers=1) as hub:
        yield hub.port


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.name)
@pytest.mark.parametrize("size", [1 << 20, 1], ids=["whole", "by bytes"])
def test_hub_and_redis_answer_the_same_bytes(
    exchange: Exchange, size: int, redis: int, one_worker: int
) -> None:
    if size == 1 and any(len(step.data) > LONGEST_BY_BYTES for step in exchange.steps):
        size = 4096
    expected = play(redis, exchange)
    found = list(differences(exchange, expected, play(one_worker, exchange, size)))
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.name)
def test_redis_answers_the_same_twice(exchange: Exchange, redis: int) -> None:
    """Or the comparison would say nothing."""
    assert not list(differences(exchange, play(redis, exchange), play(redis, exchange)))


def test_the_names_of_exchanges_are_unique() -> None:
    names = [exchange.name for exchange in EXCHANGES]
    assert len(names) == len(set(names))


# A system call for each byte.
LONGEST_BY_BYTES = 2000
