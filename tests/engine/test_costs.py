"""The cost of a call must not grow with the messages of the queue, or only as it must."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

import interlock
from interlock import Retry
from interlock.client.faces.queue import RemoteQueue

FEW, MANY = 1_000, 4_000
PAGE = 100
KEYS = 40


class Costs:
    """Counts the commands that a server executes: of a Redis also those within functions."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection = redis.Redis(port=int(url.rpartition(":")[2]))

    def _count(self) -> int:
        found: Any = self._connection.info("commandstats")
        own = ("cmdstat_info", "cmdstat_config")
        return sum(one["calls"] for name, one in found.items() if not name.startswith(own))

    def of(self, call: Callable[[], object]) -> int:
        """Return how many commands a call takes."""
        before = self._count()
        call()
        return self._count() - before

    def __enter__(self) -> Costs:
        self._client = interlock.connect(self._url)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._connection.close()

    def queue(self, count: int) -> RemoteQueue[Any]:
        """Return a queue with this number of messages, on some keys."""
        queue: RemoteQueue[Any] = self._client.queue(uuid.uuid4().hex, retry=Retry(attempts=1))
        for start in range(0, count, 1_000):
            queue.put_many(range(start, start + 1_000), keys=lambda n: f"key {n % KEYS}")
        return queue


@pytest.fixture(params=["redis", "hub"])
def costs(request: pytest.FixtureRequest) -> Iterator[Costs]:
    with Costs(request.getfixturevalue(f"{request.param}_url")) as made:
        yield made


def listed(queue: RemoteQueue[Any], **options: Any) -> list[int]:
    """List a queue by pages."""
    found = queue.messages(PAGE, **options)
    while page := queue.messages(PAGE, after=found[-1].id, **options):
        found += page
    return [one.payload for one in found]


@pytest.mark.parametrize("options", [{}, {"state": "waiting"}], ids=["all", "of a state"])
def test_listing_by_pages_costs_the_same_per_message_in_a_long_queue(
    costs: Costs, options: dict[str, Any]
) -> None:
    taken = []
    for count in (FEW, MANY):
        queue = costs.queue(count)
        first = KEYS if options else 0
        taken.append(costs.of(lambda: listed(queue, **options)) / count)  # noqa: B023
        assert listed(queue, **options) == list(range(first, count))
    few, many = taken
    assert many < 1.5 * few


@pytest.mark.parametrize("count", [FEW, MANY])
def test_a_page_of_messages_or_hot_keys_is_one_command_on_the_hub(hub_url: str, count: int) -> None:
    with Costs(hub_url) as costs:
        queue = costs.queue(count)
        ids = [one.id for one in queue.messages(5)]
        assert costs.of(lambda: queue.messages(5)) == 1
        assert costs.of(lambda: queue.messages(5, after=ids[-1])) == 1
        assert costs.of(lambda: queue.hot_keys(5)) == 1
        assert [one.id for one in queue.messages(9)][:5] == ids
