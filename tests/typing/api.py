"""A user's code, and the types it must have: for mypy --strict and pyright, never run."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, assert_type

from interlock import (
    U32,
    AsyncLease,
    AsyncQueue,
    AsyncRemoteLease,
    AsyncRemoteTable,
    Consumer,
    DeadLetter,
    Explanation,
    HotKey,
    Hub,
    KeyedExecutor,
    KeyedQueue,
    KeyedTaskGroup,
    Lease,
    LeaseBatch,
    LimitUse,
    Message,
    NotDrained,
    Reject,
    RemoteLease,
    RemoteQueue,
    RemoteTable,
    Retry,
    RetryAfter,
    Row,
    Stats,
    connect,
    current_lease,
)
from interlock.hub.client import Client, Published
from interlock.testing import ManualClock, replay


class Presence(Row):
    unread: U32


@dataclass
class Order:
    id: int
    customer: str
    size: int


def handle(order: Order) -> None:
    if order.size > 100:
        raise Reject("too large")
    if order.size == 0:
        raise RetryAfter(30)
    assert_type(current_lease(), Lease[Any])


def queues() -> None:
    queue: KeyedQueue[Order] = KeyedQueue(
        maxsize=100,
        keys=lambda order: order.customer,
        shared=lambda order: ("rates",),
        sizeof=lambda order: order.size,
        retry=Retry(3, first=dt.timedelta(seconds=1), on=(OSError,), then="hold"),
        lease=30,
        clock=ManualClock(),
    )
    assert_type(queue.put(Order(1, "ada", 3)), int)
    assert_type(queue.put(Order(1, "ada", 3), timeout=1.5, keys=["a", 7, b"c"], priority=5), int)
    assert_type(queue.put_many([Order(2, "ada", 1)], keys=lambda order: order.id), list[int])
    lease = queue.get(timeout=1, kind="keyed")
    assert_type(lease, Lease[Order])
    assert_type(lease.payload, Order)
    assert_type(lease.keys, frozenset[bytes])
    assert_type(lease.token, int)
    lease.extend(dt.timedelta(minutes=1))
    lease.nack(delay=0.5, error="later")
    with queue.get() as order:
        assert_type(order, Order)
    batch = queue.get_many(10)
    assert_type(batch, LeaseBatch[Order])
    assert_type(batch[0], Lease[Order])
    assert_type(batch[1:], list[Lease[Order]])
    assert_type(batch.payloads, list[Order])
    assert_type(queue.put_many([Order(2, "ada", 1)], each_keys=["ada"]), list[int])
    queue.ack_many(queue.get_many(10))
    consumer = queue.consume(handle, threads=4, timeout=60)
    assert_type(consumer, Consumer)
    assert_type(consumer.stop(), bool)
    assert_type(queue.explain(1), Explanation)
    assert_type(queue.explain(key="ada").nodes[0].blocked[0].holders, tuple[int, ...])
    assert_type(queue.dead_letters(key="ada"), list[DeadLetter[Order]])
    assert_type(queue.hot_keys(3), list[HotKey])
    assert_type(queue.limits(3), list[LimitUse])
    assert_type(queue.stats(), Stats)
    assert_type(queue.revoke(1, then="dead"), bool)
    assert_type(queue.shutdown(immediate=True), list[Message[Order]])
    try:
        queue.join(timeout=1)
    except NotDrained as undrained:
        assert_type(undrained.held, tuple[int, ...])
    assert_type(replay(queue.recording()), list[str])


async def tasks() -> None:
    queue: KeyedQueue[Order] = KeyedQueue()
    assert_type(queue.aio, AsyncQueue[Order])
    assert_type(await queue.aio.put(Order(1, "ada", 3), keys="ada"), int)
    lease = await queue.aio.get()
    assert_type(lease, AsyncLease[Order])
    assert_type(lease.payload, Order)
    await lease.ack()
    async with await queue.aio.get() as order:
        assert_type(order, Order)

    async def double(number: int) -> int:
        return number * 2

    async with KeyedTaskGroup(max_tasks=10, limits={"bank": 4}) as group:
        task = group.create_task(double(4), keys="a", shared=["b"], limit="bank", name="four")
        assert_type(task, asyncio.Task[int])


def executors() -> None:
    def triple(number: int, *, times: int = 3) -> int:
        return number * times

    with KeyedExecutor(4, unkeyed_workers=1, retry=Retry(), limits={"host:*": 2}) as executor:
        first: Future[int] = executor.submit_keyed(["a", "b"], triple, 4, times=5)
        second: Future[int] = executor.submit(triple, 4)
        assert_type(first.result(timeout=1), int)
        done, _ = wait([first, second])
        assert_type(done, set[Future[int]])
        view: Executor = executor.keyed("a", shared=["b"], priority=3)
        assert_type(view.submit(triple, 1).result(), int)
        executor.keyed("a", limit=["bank", "host:a"]).submit(triple, 4)
        executor.map_keyed(triple, [1, 2], limit=lambda number: f"host:{number}")
        results = executor.map_keyed(triple, [1, 2], keys=lambda number: number, limit="bank")
        assert_type(results, Iterator[int])
    with ProcessPoolExecutor(2) as pool, KeyedExecutor(2, pool=pool) as executor:
        executor.submit_keyed("a", triple, 4)


def hubs() -> None:
    with Hub({"limits": {"pubsub": {"hard": 0}}}, port=0, workers=2) as hub:
        assert_type(hub.addresses, list[str])
        assert_type(hub.url, str)
        with Client(hub.url, timeout=1) as client:
            client.subscribe("a", b"b")
            assert_type(client.publish("a", b"x"), int)
            assert_type(client.message(timeout=1), Published | None)
        assert_type(hub.stop(0.5), int)


async def engines() -> None:
    with connect("memory://") as client:
        queue = client.queue("orders", Order, maxsize=5, retry=Retry())
        assert_type(queue, RemoteQueue[Order])
        assert_type(client.queue("any"), RemoteQueue[Any])
        assert_type(queue.put(Order(1, "a", 5), keys="a", result_ttl=5), int)
        lease = queue.get(timeout=1)
        assert_type(lease, RemoteLease[Order])
        with lease as order:
            assert_type(order, Order)
        answers, leases = queue.exchange([], 5)
        assert_type(answers, list[str])
        assert_type(leases, list[RemoteLease[Order]])
        table = client.table("presence", Presence)
        assert_type(table, RemoteTable[Presence])
        assert_type(table["a"], Presence)
        assert_type(table.get("a"), Presence | None)
        assert_type(table.get_many(["a", 5]), list[Presence | None])
        assert_type(list(table.items()), list[tuple[str | int | bytes, Presence]])
        assert_type(table.ttl("a"), float | None)
    async with connect("memory://") as aio:
        far = aio.table("presence", Presence)
        assert_type(far, AsyncRemoteTable[Presence])
        assert_type(await far.get("a"), Presence | None)
        assert_type(await far.pop("a"), Presence)
        assert_type([row async for _, row in far.scan()], list[Presence])
        remote = aio.queue("orders", Order)
        assert_type(await remote.get(), AsyncRemoteLease[Order])
        async with await remote.get() as order:
            assert_type(order, Order)
