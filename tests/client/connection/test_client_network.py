"""A network that cuts and splits: no put is doubled, no lease lost in silence, no call hangs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from interlock import EngineUnavailable, LeaseLost, connect
from interlock.client.faces.client import Client
from interlock.client.faces.queue import RemoteQueue
from tests.client.connection.proxy import Proxy, cutting, delaying, proxied

REPLY = b"*"
"""Every reply of a function is an array."""


@pytest.fixture
def proxy(engine_port: int) -> Iterator[Proxy]:
    with proxied("127.0.0.1", engine_port) as spoiler:
        yield spoiler


@pytest.fixture
def client(proxy: Proxy) -> Iterator[Client]:
    with connect(f"redis://127.0.0.1:{proxy.port}?timeout=2") as opened:
        yield opened


@pytest.fixture
def queue(client: Client) -> RemoteQueue[Any]:
    opened = client.queue(uuid.uuid4().hex)
    # The library is there, and the connection made, which a busy machine may take longer for.
    while True:
        with contextlib.suppress(EngineUnavailable):
            opened.stats()
            return opened


# Where a call is cut, and how: before it is sent, in its middle, before its reply, in its middle.
CUTS: dict[str, Callable[[Proxy, bytes], None]] = {
    "before the request": lambda proxy, word: setattr(proxy, "requests", cutting(word)),
    "in the request": lambda proxy, word: setattr(proxy, "requests", cutting(word, keep=20)),
    "before the reply": lambda proxy, _: setattr(proxy, "replies", cutting(REPLY)),
    "in the reply": lambda proxy, _: setattr(proxy, "replies", cutting(REPLY, keep=3)),
}
cuts = pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS.keys())


@cuts
def test_a_put_whose_connection_broke_is_put_once(
    queue: RemoteQueue[Any], proxy: Proxy, cut: Callable[[Proxy, bytes], None]
) -> None:
    first = queue.put("a", keys="k")
    cut(proxy, b"il1_put")
    second = queue.put("b", keys="k")
    third = queue.put("c", keys="k")
    assert first < second < third
    stats = queue.stats()
    assert (stats.puts, stats.unsettled) == (3, 3)
    for id, payload in ((first, "a"), (second, "b"), (third, "c")):
        lease = queue.get_nowait()
        assert (lease.id, lease.payload) == (id, payload)
        lease.ack()


@cuts
def test_a_get_whose_connection_broke_returns_what_it_leased(
    queue: RemoteQueue[Any], proxy: Proxy, cut: Callable[[Proxy, bytes], None]
) -> None:
    queue.put_many([1, 2])
    cut(proxy, b"il1_lease")
    with queue.get_nowait() as payload:
        assert payload == 1
    with queue.get_nowait() as payload:
        assert payload == 2
    assert queue.stats().leases == 2


def test_a_batch_whose_ack_never_left_is_still_held_and_can_be_settled(
    queue: RemoteQueue[Any], proxy: Proxy
) -> None:
    queue.put_many([1, 2])
    batch = queue.get_many(2)
    proxy.refuse = True
    proxy.cut()
    with pytest.raises(EngineUnavailable):
        queue.ack_many(batch)
    proxy.heal()
    assert queue.stats().leased == 2
    queue.ack_many(batch)
    assert queue.stats().acks == 2


def test_a_batch_of_the_asyncio_client_whose_ack_never_left_can_be_settled(
    queue: RemoteQueue[Any], proxy: Proxy
) -> None:
    async def main() -> None:
        queue.put_many([1, 2])
        batch = await queue.aio.get_many(2)
        proxy.refuse = True
        proxy.cut()
        with pytest.raises(EngineUnavailable):
            await queue.aio.ack_many(batch)
        proxy.heal()
        await queue.aio.ack_many(batch)

    asyncio.run(main())
    assert queue.stats().acks == 2


def test_a_lease_of_another_queue_is_refused_and_stays_held(
    client: Client, queue: RemoteQueue[Any]
) -> None:
    other: RemoteQueue[Any] = client.queue(uuid.uuid4().hex)
    other.put_many([1, 2])
    batch = other.get_many(2)
    with pytest.raises(ValueError, match=r"ack_many\(\): leases\[0\] is of queue"):
        queue.ack_many(batch)
    other.ack_many(batch)
    assert other.stats().acks == 2


@cuts
def test_an_ack_whose_connection_broke_is_done_once_and_not_reported_as_lost(
    queue: RemoteQueue[Any], proxy: Proxy, cut: Callable[[Proxy, bytes], None]
) -> None:
    queue.put(1)
    lease = queue.get()
    cut(proxy, b"il1_settle")
    lease.ack()
    assert not lease.lost
    with pytest.raises(LeaseLost):
        lease.ack()
    assert queue.stats().acks == 1


@cuts
def test_an_exchange_whose_connection_broke_settles_and_leases_once(
    queue: RemoteQueue[Any], proxy: Proxy, cut: Callable[[Proxy, bytes], None]
) -> None:
    queue.put_many([1, 2])
    lease = queue.get()
    cut(proxy, b"il1_next")
    answers, leases = queue.exchange([lease.acking()], 5)
    assert answers == ["acked"] and [one.payload for one in leases] == [2]
    queue.ack_many(leases)
    stats = queue.stats()
    assert (stats.acks, stats.leases, stats.unsettled) == (2, 2, 0)


@cuts
def test_the_asyncio_client_repeats_calls_too(
    queue: RemoteQueue[Any], proxy: Proxy, cut: Callable[[Proxy, bytes], None]
) -> None:
    async def main() -> None:
        async with queue._client.aio as client:
            aio = client.queue(queue.name)
            await aio.stats()
            cut(proxy, b"il1_put")
            id = await aio.put("a")
            proxy.heal()
            cut(proxy, b"il1_lease")
            lease = await aio.get()
            assert lease.id == id
            proxy.heal()
            cut(proxy, b"il1_settle")
            await lease.ack()
            stats = await aio.stats()
            assert (stats.puts, stats.leases, stats.acks, stats.unsettled) == (1, 1, 1, 0)

    asyncio.run(main())


@pytest.mark.parametrize("function", ["cancel", "retry", "skip", "requeue"])
def test_a_change_whose_reply_was_lost_raises_an_error_marked_unknown(
    queue: RemoteQueue[Any], proxy: Proxy, function: str
) -> None:
    id = queue.put(1)
    if function == "requeue":
        queue.get().reject("bad")
    proxy.replies = cutting(REPLY)
    with pytest.raises(EngineUnavailable, match="not known") as caught:
        getattr(queue, function)(id)
    assert caught.value.unknown
    assert str(proxy.port) in str(caught.value)
    assert queue.stats().unsettled == (1 if function != "cancel" else 0)


def test_a_change_that_was_never_sent_is_repeated(queue: RemoteQueue[Any], proxy: Proxy) -> None:
    id = queue.put(1)
    proxy.refuse = True
    proxy.cut()
    with pytest.raises(EngineUnavailable, match=str(proxy.port)):
        queue.cancel(id)
    proxy.heal()
    assert queue.cancel(id)


@pytest.mark.parametrize("seconds", [0.3, 1.6])
def test_a_slow_reply_repeats_no_call(
    queue: RemoteQueue[Any], proxy: Proxy, seconds: float
) -> None:
    # The longer one is beyond what one attempt waits of the 2 s: the call is repeated meanwhile.
    for way in ("requests", "replies"):
        setattr(proxy, way, delaying(seconds))
        queue.put(way)
        with queue.get_nowait() as payload:
            assert payload == way
    stats = queue.stats()
    assert (stats.puts, stats.leases, stats.acks) == (2, 2, 2)


def test_replies_split_into_single_bytes_are_assembled(
    queue: RemoteQueue[Any], proxy: Proxy
) -> None:
    proxy.split = True
    payloads = [{"n": n, "text": "x" * 50} for n in range(20)]
    queue.put_many(payloads, keys=lambda payload: payload["n"])
    leases = queue.get_many(20)
    assert [lease.payload for lease in leases] == payloads
    queue.ack_many(leases)


@pytest.mark.share(2)
def test_a_silent_server_is_given_up_at_the_timeout(queue: RemoteQueue[Any], proxy: Proxy) -> None:
    proxy.silent = True
    for call in (
        lambda: queue.put(1),
        lambda: queue.get_nowait(),
        lambda: queue.get(),
        lambda: queue.stats(),
    ):
        with pytest.raises(EngineUnavailable, match=rf"{proxy.port}.* in 2(\.\d)? s;"):
            call()
    proxy.heal()
    proxy.cut()
    assert queue.stats().puts == 0


def test_a_server_that_refuses_connections_is_given_up_at_the_timeout(proxy: Proxy) -> None:
    proxy.refuse = True
    with connect(f"redis://me:secret@127.0.0.1:{proxy.port}?timeout=0.3") as client:
        with pytest.raises(EngineUnavailable) as caught:
            client.queue("orders").put(1)
        assert str(proxy.port) in str(caught.value)
        assert "secret" not in str(caught.value)
        assert isinstance(caught.value, ConnectionError)


@pytest.mark.parametrize("face", ["sync", "asyncio"])
def test_closing_a_handle_does_not_interrupt_a_settlement(
    queue: RemoteQueue[Any], proxy: Proxy, face: str
) -> None:
    reached, go = threading.Event(), threading.Event()

    def holding(data: bytes) -> bytes:
        if b"il1_settle" in data:
            reached.set()
            go.wait(30)
        return data

    async def main() -> str:
        async with queue._client.aio as client:
            aio = client.queue(queue.name)
            lease = await aio.get()
            proxy.requests = holding
            settling = asyncio.create_task(aio.settle([lease.acking()]))
            await asyncio.to_thread(reached.wait, 30)
            await aio.close()
            # The loop has run what the closing asked of it.
            await asyncio.to_thread(go.set)
            return (await settling)[0]

    queue.put("a")
    if face == "asyncio":
        assert asyncio.run(main()) == "acked"
    else:
        lease = queue.get()
        proxy.requests = holding
        with ThreadPoolExecutor() as pool:
            settling = pool.submit(queue.settle, [lease.acking()])
            assert reached.wait(30)
            queue.close()
            go.set()
            assert settling.result(30) == ["acked"]


def test_a_waiting_get_continues_after_its_connection_broke(
    queue: RemoteQueue[Any], proxy: Proxy
) -> None:
    async def main() -> None:
        async with queue._client.aio as client:
            aio = client.queue(queue.name)
            getter = asyncio.create_task(aio.get())
            while not await asyncio.to_thread(_sleeps, queue):
                await asyncio.sleep(0)
            proxy.cut()
            await aio.put("late")
            lease = await getter
            assert (lease.payload, lease.attempt) == ("late", 1)
            await lease.ack()

    asyncio.run(main())


def _sleeps(queue: RemoteQueue[Any]) -> bool:
    """Somebody of this client sleeps in BLPOP."""
    import redis

    with redis.Redis(port=int(queue._client._engine.target.addresses[0].split(":")[1])) as other:
        return any(one["cmd"] == "blpop" for one in other.client_list())


def test_a_large_reply_is_repeated_after_a_cut_and_many_later_calls(hub_url: str) -> None:
    address = hub_url.removeprefix("interlock://")
    host, _, port = address.rpartition(":")
    payload = b"x" * 1_000_000
    cut, read = threading.Event(), 0

    def spoilt(data: bytes) -> bytes | None:
        nonlocal read
        read += len(data)
        if read < 300_000:
            return data
        between.refuse = True
        cut.set()
        return None

    with connect(hub_url) as client, proxied(host, int(port)) as between:
        queue = client.queue("large", bytes)
        for _ in range(41):
            queue.put(payload)
        found: list[tuple[int, int, int]] = []
        with connect(f"interlock://127.0.0.1:{between.port}?timeout=50") as far:
            far.queue("large", bytes).stats()
            between.replies = spoilt

            def take() -> None:
                lease = far.queue("large", bytes).get(timeout=40)
                found.append((lease.id, lease.attempt, len(lease.payload)))
                lease.ack()

            taker = threading.Thread(target=take)
            taker.start()
            cut.wait()
            # Each by a consumer of its own, for these hold theirs.
            held = []
            for _ in range(40):
                with connect(hub_url) as other:
                    held.append(other.queue("large", bytes).get(timeout=20))
            between.heal()
            taker.join()
        assert len(found) == 1
        assert found[0][1:] == (1, len(payload))
        assert found[0][0] < min(lease.id for lease in held)
        assert queue.stats().leases_expired == 0
