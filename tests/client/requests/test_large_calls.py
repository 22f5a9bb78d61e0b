"""No call of a client is more than a server takes: batches are refused, settlements parted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import interlock
from interlock import connect
from interlock.client.wire import messages as wire
from interlock.runtime.limits import MAX_CALL
from tests.hub.servers import needs_hub

MIB = 1 << 20


@pytest.fixture(params=["redis", "hub"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "redis":
        yield request.getfixturevalue("redis_url") + "?timeout=30"
        return
    needs_hub()
    with interlock.Hub(port=0, workers=1) as hub:
        yield f"interlock://{hub.addresses[0]}?timeout=30"


@pytest.fixture
def queue(url: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    with connect(url) as client:
        # Redis is everybody's here.
        queue = client.queue(request.node.name.replace("[", " ").replace("]", ""), bytes)
        yield queue
        queue.drop(force=True)


def test_the_largest_batch_with_every_option_is_put(queue: Any) -> None:
    most = MAX_CALL // MIB
    items = [bytes([n]) * MIB for n in range(most)] + [b""] * (1_024 - most)
    each = [[f"{n} {key}".ljust(1_024, "x") for key in range(4)] for n in range(len(items))]
    texts = iter(range(len(items)))
    ids = queue.put_many(items, each_keys=each, dedup=lambda item: f"{next(texts)}".ljust(1_024))
    assert len(set(ids)) == 1_024 and queue.qsize() == 1_024


@pytest.mark.parametrize("face", ["threads", "asyncio"])
def test_a_batch_that_no_server_takes_whole_is_refused_by_its_size(
    queue: Any, url: str, face: str
) -> None:
    items = [bytes(MIB)] * (MAX_CALL // MIB) + [b"x"]

    async def put() -> None:
        async with connect(url) as client:
            await client.queue(queue.name, bytes).put_many(items)

    with pytest.raises(ValueError, match=r"put_many\(\): 49 payloads of 50331649 bytes.*50331648"):
        queue.put_many(items) if face == "threads" else asyncio.run(put())
    assert queue.qsize() == 0
    queue.put_many(items[:-1])
    assert queue.qsize() == len(items) - 1


@pytest.mark.parametrize("way", ["settle", "exchange"])
@pytest.mark.parametrize("face", ["threads", "asyncio"])
def test_results_larger_than_one_call_are_sent_in_several(
    queue: Any, url: str, face: str, way: str
) -> None:
    ids = [queue.put(b"x", result_ttl=60) for _ in range(70)]
    last = queue.put(b"behind")
    # As MessagePack has it, five bytes more.
    result = bytes(MIB - 5)

    async def settled() -> list[str]:
        async with connect(url) as client:
            own: Any = client.queue(queue.name, bytes)
            settlements = [one.acking(result) for one in await own.get_many(70)]
            if way == "settle":
                return list(await own.settle(settlements))
            answers, leases = await own.exchange(settlements, 1)
            assert [one.id for one in leases] == [last]
            await leases[0].ack()
            return list(answers)

    if face == "asyncio":
        answers = asyncio.run(settled())
    else:
        settlements = [one.acking(result) for one in queue.get_many(70)]
        if way == "settle":
            answers = queue.settle(settlements)
        else:
            answers, leases = queue.exchange(settlements, 1)
            assert [one.id for one in leases] == [last]
            leases[0].ack()
    assert answers == ["acked"] * 70
    # The queue keeps the newest results, as many as it may.
    assert queue.result(ids[-1], type=bytes) == result


def test_settlements_are_split_by_number_and_by_size() -> None:
    acks = [wire.acking(1, id) for id in range(1, 2_050)]
    assert [len(part) for part in wire.parts(acks)] == [1_024, 1_024, 1]
    assert wire.parts([]) == [[]]
    results = [wire.acking(1, id, bytes(MIB)) for id in range(1, 99)]
    some = wire.parts(results)
    assert [len(part) for part in some] == [48, 48, 2]
    assert [one for part in some for one in part] == results
