"""The cost of a call must not grow with the messages of the queue, or only as it must."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import redis

import interlock
from interlock import Retry
from interlock.client.faces.queue import RemoteQueue
from tests.engine.calls import Queue, commands_of, message

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


def text(key: object) -> str:
    return key.decode() if isinstance(key, bytes) else str(key)


def hot_keys(queue: RemoteQueue[Any], n: int) -> list[tuple[str, int]]:
    return [(text(one.key), one.depth) for one in queue.hot_keys(n)]


def test_a_batch_on_one_key_takes_redis_few_commands(queue: Queue) -> None:
    batch = [message(str(n), ["key", "other"]) for n in range(100)]
    assert commands_of(queue, lambda: queue.put(*batch)) < 20
    assert [one.payload for one in queue.lease(9).messages] == ["0"]


@pytest.mark.parametrize("each", [2, 40], ids=["two on each key", "40 on each key"])
def test_hot_keys_cost_the_same_in_a_long_queue_on_redis(redis_url: str, each: int) -> None:
    taken = []
    for count in (8_000, 24_000):
        with Costs(redis_url) as costs:
            queue = costs.queue(0)
            for start in range(0, count, 1_000):
                queue.put_many(range(start, start + 1_000), keys=lambda n: f"key {n // each}")
            taken.append(costs.of(lambda: queue.hot_keys(5)))  # noqa: B023
            assert [one.depth for one in queue.hot_keys(5)] == [each] * 5
    few, many = taken
    assert many < 1.5 * few


def test_hot_keys_of_a_queue_on_redis_are_exact_while_it_changes(redis_url: str) -> None:
    chance = random.Random(5)
    with Costs(redis_url) as costs:
        queue = costs.queue(0)
        stored = redis.Redis(port=int(redis_url.rpartition(":")[2]))
        depths: Counter[str] = Counter()
        for step in range(400):
            if chance.random() < 0.55:
                keys = {f"key {chance.randrange(chance.choice((5, 60, 3_000)))}" for _ in range(2)}
                count = chance.choice((1, 30))
                queue.put_many(range(count), keys=lambda _, keys=keys: sorted(keys))  # type: ignore[misc]
                depths.update(list(keys) * count)
            elif depths:
                for lease in queue.get_many(chance.choice((1, 20)), timeout=0):
                    depths.subtract(map(text, lease.keys))
                    lease.ack()
            depths = +depths
            if step % 200 == 150:
                # As a release stored it that listed no depths.
                stored.delete(f"il:{{{queue.name}}}:dep")
            if step % 10 == 0:
                n = chance.choice((1, 5, 40, 3_000))
                deepest = sorted(depths.items(), key=lambda one: (-one[1], one[0]))[:n]
                assert hot_keys(queue, n) == deepest
        while depths:
            for lease in queue.get_many(1_000, timeout=20):
                depths.subtract(map(text, lease.keys))
                lease.ack()
            depths = +depths
        assert queue.hot_keys(5) == []
        assert not stored.exists(f"il:{{{queue.name}}}:dep")
        stored.close()


def test_hot_keys_of_a_queue_on_redis_are_exact_if_thousands_are_deep(redis_url: str) -> None:
    with Costs(redis_url) as costs:
        queue = costs.queue(0)
        depths = {f"key {n}": 4 + n % 2 for n in range(1_100)} | {"deep": 9, "single": 1}
        for turn in range(9):
            keys = [key for key, depth in depths.items() if depth > turn]
            queue.put_many(keys[:1_000], keys=str)
            if keys[1_000:]:
                queue.put_many(keys[1_000:], keys=str)
        deepest = sorted(depths.items(), key=lambda one: (-one[1], one[0]))
        for n in (1, 600, 1_024, 2_000):
            assert hot_keys(queue, n) == deepest[:n]


@pytest.mark.parametrize(
    "state", [None, "waiting", "ready", "leased", "backing_off", "held", "delayed"]
)
def test_the_first_page_of_messages_costs_the_same_in_a_long_queue(
    costs: Costs, state: Any
) -> None:
    taken = []
    for count in (FEW, MANY):
        queue = costs.queue(count)
        queue.put("retry", keys="r", retry=Retry(attempts=2, first=3_600, longest=3_600))
        queue.put("hold", keys="h", retry=Retry(attempts=1, then="hold"))
        leases = queue.get_many(KEYS + 2, timeout=20)
        for lease in leases:
            if lease.payload in ("retry", "hold"):
                lease.nack(error="bad")
            elif lease.payload % 2:
                lease.release()
        queue.put_many(["late"] * 3, delay=3_600)
        shown: list[Any] = []
        taken.append(costs.of(lambda: shown.extend(queue.messages(5, state=state))))  # noqa: B023
        # More than a server finds from the front.
        wanted = [one for one in queue.messages(10_000) if state in (None, one.state)]
        assert shown == wanted[:5] != []
        for lease in leases[:KEYS:2]:
            lease.ack()
    few, many = taken
    assert many == few


@pytest.mark.parametrize("state", ["leased", "held"])
def test_the_next_page_of_a_rare_state_costs_the_same_in_a_long_queue(
    costs: Costs, state: Any
) -> None:
    taken = []
    for count in (FEW, MANY):
        queue = costs.queue(count)
        leases = queue.get_many(20, timeout=20)
        ids = [lease.id for lease in leases]
        for lease in leases:
            if state == "held":
                queue.revoke(lease.id, then="hold")
        shown = queue.messages(7, state=state)
        last = shown[-1].id

        def read_on(queue: RemoteQueue[Any], shown: list[Any], last: int) -> None:
            shown.extend(queue.messages(50, state=state, after=last))

        taken.append(costs.of(partial(read_on, queue, shown, last)))
        assert [one.id for one in shown] == sorted(ids)
        for lease in leases if state == "leased" else []:
            lease.ack()
    few, many = taken
    assert many == few


def test_the_dead_letters_on_a_key_cost_the_same_behind_many_others(costs: Costs) -> None:
    taken = []
    for count in (100, 900):
        queue = costs.queue(0)
        for start in range(0, count, 100):
            queue.put_many(range(start, start + 100), keys=lambda n: ["all", f"key {n}"])
            for _ in range(100):
                queue.get(timeout=20).reject("bad")
        found: list[Any] = []
        taken.append(costs.of(lambda: found.extend(queue.dead_letters(key="key 99"))))  # noqa: B023
        assert [one.payload for one in found] == [99]
        letters = queue.dead_letters(10_000, key="all")
        assert [one.payload for one in letters] == list(range(count))
    few, many = taken
    assert many == few


def test_the_next_page_from_the_front_costs_the_same_in_a_long_queue_on_redis(
    redis_url: str,
) -> None:
    taken = []
    for count in (FEW, MANY):
        with Costs(redis_url) as costs:
            queue = costs.queue(count)
            shown = [one.id for one in queue.messages(5)]
            assert len(queue.messages(5, after=shown[-1])) == 5
            taken.append(
                [
                    costs.of(lambda: queue.messages(5)),  # noqa: B023
                    costs.of(lambda: queue.messages(5, after=shown[-1])),  # noqa: B023
                ]
            )
    assert taken[0] == taken[1]


def test_messages_settled_since_a_listing_are_looked_up_once(redis_url: str) -> None:
    with Costs(redis_url) as costs:
        queue = costs.queue(FEW)
        newest = [queue.put("newest", keys=f"new {n}") for n in range(2)]
        # More than a server finds from the front.
        most = 2_000
        assert len(queue.messages(most)) == FEW + 2
        for _ in range(FEW):
            with queue.get(timeout=20):
                pass
        first = costs.of(lambda: queue.messages(most))
        assert [one.id for one in queue.messages(most)] == newest
        assert costs.of(lambda: queue.messages(most)) < first / 2


def test_the_first_waiting_message_on_redis_is_found_behind_thousands_of_ready_ones(
    redis_url: str,
) -> None:
    with Costs(redis_url) as costs:
        queue = costs.queue(0)
        for start in range(0, 6_000, 1_000):
            queue.put_many(range(start, start + 1_000), keys=str)
        waiting = queue.put("waits", keys=5_999)
        assert [one.id for one in queue.messages(state="waiting")] == [waiting]
        assert len(queue.messages(1_024)) == 1_024
        assert len(queue.messages(10_000, state="ready")) == 6_000


def test_listings_of_a_queue_on_redis_show_what_is_unsettled_while_it_changes(
    redis_url: str,
) -> None:
    chance = random.Random(17)
    with interlock.connect(redis_url) as client:
        queue: RemoteQueue[Any] = client.queue(uuid.uuid4().hex, warn_depth=0)
        unsettled: dict[int, str] = {}
        for step in range(300):
            pick = chance.random()
            if pick < 0.4:
                count = chance.choice((1, 20))
                batch = queue.put_many(range(count), keys=lambda n: f"key {n % 7}")
                unsettled |= dict.fromkeys(batch, "")
            elif pick < 0.5:
                delay = chance.choice((0.001, 3_600))
                unsettled[queue.put(step, keys="key 1", delay=delay)] = ""
            elif unsettled and pick < 0.8:
                for lease in queue.get_many(chance.choice((1, 20)), timeout=0):
                    lease.ack()
                    del unsettled[lease.id]
            limit = chance.choice((1, 5, 50))
            after = chance.choice([None, chance.choice([None, *unsettled])])
            told = [one.id for one in queue.messages(limit, after=after)]
            assert told == [id for id in sorted(unsettled) if id > (after or 0)][:limit]


@pytest.mark.parametrize("part", [(), ("larger", 0)], ids=["messages", "ids"])
def test_a_scan_finds_messages_that_fall_due_between_two_of_its_pages(
    redis_url: str, part: tuple[Any, ...]
) -> None:
    with interlock.connect(redis_url) as client:
        name = uuid.uuid4().hex
        queue: RemoteQueue[Any] = client.queue(name, warn_depth=0)
        ids = set(queue.put_many(range(900), delay=0.000_001))
        server: Any = redis.Redis(port=int(redis_url.rpartition(":")[2]))
        found: set[int] = set()

        def page(cursor: bytes) -> bytes:
            cursor, *said = server.fcall("il1_scan", 1, f"il:{{{name}}}", cursor, 100, *part)
            # No other part of a message is as long as an id.
            found.update(int(one) for one in said if len(one) == 16 and int(one) in ids)
            return cursor

        cursor = page(b"0")
        server.fcall("il1_join", 1, f"il:{{{name}}}", 0)
        assert {one.state for one in queue.messages(900)} == {"ready"}
        while cursor != b"0":
            cursor = page(cursor)
        assert found == ids
