"""The contract suite, mounted on Redis through the client, sync and asyncio."""

import itertools
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import redis

from interlock.client.connection.call import Engine
from interlock.client.faces.client import Client
from interlock.client.url import parse
from interlock.testing.contract import BAD_CALL, Case, Face, NotHeld, cases, run
from tests.contract.faces import faced
from tests.contract.remote import ON_REDIS, Queue
from tests.engine.timed import START, timed_library
from tests.hub.servers import redis_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis.Redis]:
    folder = tmp_path_factory.mktemp("contract")
    with redis_server(folder) as (host, port), redis.Redis(host=host, port=port) as connection:
        yield connection


class StepClock:
    """The keys that the test build of the library reads the time from, one of each queue."""

    def __init__(self, connection: redis.Redis) -> None:
        self._connection = connection
        self._queues: list[str] = []
        self._now = 0

    def follow(self, queue: str) -> None:
        self._queues.append(queue)
        self._set(queue)

    def now(self) -> float:
        return self._now / 1e6

    def advance(self, seconds: float) -> None:
        self._now += round(seconds * 1e6)
        for queue in self._queues:
            self._set(queue)
            # A client sleeps in BLPOP by the server's clock, which has not moved: waking any client
            # only makes it ask again.
            for kind in ("wake:any", "wake:keyed", "wake:unkeyed"):
                self._connection.lpush(f"il:{{{queue}}}:{kind}", *["1"] * 4)
            # So does one that waits for room, and one for the end of a message, or of all.
            for line in ("room", "settled"):
                waiting: Any = self._connection.zrange(f"il:{{{queue}}}:w:{line}", 0, -1)
                for one in waiting:
                    self._connection.lpush(f"il:{{{queue}}}:{line}:{one.decode()}", "1")

    def _set(self, queue: str) -> None:
        self._connection.set(f"il:{{{queue}}}:clock", START + self._now)


class RedisHarness:
    """One client of a Redis whose library reads the time from a key."""

    name = "redis"
    capabilities: Mapping[int | str, str] = ON_REDIS

    def __init__(self, connection: redis.Redis) -> None:
        self.clock = StepClock(connection)
        options = connection.get_connection_kwargs()
        target = parse(f"redis://{options['host']}:{options['port']}")
        self._client = Client(Engine(target, timed_library()))
        self._names = (f"q{n}-{uuid.uuid4().hex}" for n in itertools.count())

    def queue(self, **options: Any) -> Queue:
        name = next(self._names)
        queue = Queue(self._client, name, options)
        self.clock.follow(name)
        return queue

    def aio(self, queue: Queue) -> Any:
        return queue.aio

    def close(self) -> None:
        self._client.close()


@pytest.mark.parametrize(("case", "face"), faced())
def test_redis(case: Case, face: Face, server: redis.Redis) -> None:
    try:
        run(case, RedisHarness(server), face)
    except NotHeld as reason:
        pytest.skip(str(reason))


def test_every_excluded_case_exists() -> None:
    assert ON_REDIS.keys() - {BAD_CALL, *range(1, 28)} <= {case.name for case in cases()}
