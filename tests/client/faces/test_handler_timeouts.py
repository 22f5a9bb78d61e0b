"""A handler's timeout ends the lease that the handler has, and no other of its message."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from interlock import Retry, connect, current_lease
from interlock.client.faces.aio_lease import AsyncRemoteLease
from interlock.client.faces.aio_queue import AsyncRemoteQueue
from interlock.client.faces.client import Client
from interlock.client.faces.lease import RemoteLease
from interlock.client.faces.queue import RemoteQueue

LIMIT = 0.1


@pytest.fixture(params=["redis", "hub"])
def clients(request: pytest.FixtureRequest) -> Iterator[tuple[Client, Client]]:
    """One that consumes, and another program's."""
    url = request.getfixturevalue(f"{request.param}_url")
    with connect(url) as client, connect(url) as other:
        yield client, other


@pytest.fixture
def queues(clients: tuple[Client, Client]) -> tuple[RemoteQueue[Any], RemoteQueue[Any]]:
    name, retry = uuid.uuid4().hex, Retry(attempts=None, first=0)
    first, second = clients
    return first.queue(name, retry=retry), second.queue(name, retry=retry)


def test_a_timeout_does_not_affect_a_message_leased_by_another_consumer(
    queues: tuple[RemoteQueue[Any], RemoteQueue[Any]],
) -> None:
    queue, other = queues
    taken: list[RemoteLease[Any]] = []
    elsewhere, begun, hang = (threading.Event() for _ in range(3))

    def handle(number: int) -> None:
        if number == 1:
            assert other.revoke(current_lease().id)
            taken.append(other.get(timeout=30))
            elsewhere.set()
        else:
            begun.set()
        hang.wait(60)

    queue.put(1)
    consumers = [queue.consume(handle, timeout=LIMIT)]
    try:
        assert elsewhere.wait(30)
        queue.put(2)
        consumers.append(queue.consume(handle, timeout=LIMIT))
        assert begun.wait(30)
        # This one's time is up later: when it is redelivered, the first one is over too.
        second = other.get(timeout=30)
        assert (second.payload, second.attempt) == (2, 2)
        taken[0].ack()
        second.ack()
    finally:
        hang.set()
        for consumer in consumers:
            consumer.stop(30)


def test_a_timeout_on_a_loop_does_not_affect_a_message_leased_by_another_consumer(
    queues: tuple[RemoteQueue[Any], RemoteQueue[Any]],
) -> None:
    async def main(queue: AsyncRemoteQueue[Any], other: AsyncRemoteQueue[Any]) -> None:
        taken: list[AsyncRemoteLease[Any]] = []
        elsewhere, begun = asyncio.Event(), asyncio.Event()

        async def handle(number: int) -> None:
            if number == 1:
                assert await other.revoke(current_lease().id)
                taken.append(await other.get(timeout=30))
                elsewhere.set()
            else:
                begun.set()
            await asyncio.sleep(60)

        await queue.put(1)
        tasks = [asyncio.create_task(queue.consume(handle, timeout=LIMIT))]
        try:
            async with asyncio.timeout(30):
                await elsewhere.wait()
                await queue.put(2)
                tasks.append(asyncio.create_task(queue.consume(handle, timeout=LIMIT)))
                await begun.wait()
            second = await other.get(timeout=30)
            assert (second.payload, second.attempt) == (2, 2)
            await taken[0].ack()
            await second.ack()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    asyncio.run(main(queues[0].aio, queues[1].aio))
