"""`join` and `result` of the client sleep in the server until they are woken, on both servers."""

from __future__ import annotations

import asyncio
import signal
import threading
import uuid
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import redis

from interlock import JobFailed, NotDrained, Retry, ShutDown, connect
from interlock.client.faces.client import Client
from interlock.client.faces.queue import RemoteQueue
from interlock.client.requests import waiting as wait
from tests.client.connection.proxy import proxied
from tests.engine.calls import Queue


class Server:
    """A server and the calls that wait on it, seen from outside."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.port = int(url.rpartition(":")[2])
        self.connection = redis.Redis(port=self.port)

    def waiting(self) -> int:
        """The number of calls that the hub has parked, or of clients of Redis that are blocked."""
        told: Any = self.connection.info("clients")
        return int(told["blocked_clients"])

    def until_waiting(self, count: int) -> None:
        while self.waiting() != count:
            pass


@pytest.fixture(params=["redis", "hub"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    found = Server(request.getfixturevalue(f"{request.param}_url"))
    yield found
    found.connection.close()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with connect(server.url) as opened:
        yield opened


@pytest.fixture
def queue(client: Client) -> RemoteQueue[Any]:
    return client.queue(uuid.uuid4().hex)


Start = Callable[[Callable[[], Any], Callable[[], Coroutine[Any, Any, Any]]], "Future[Any]"]


@pytest.fixture(params=["threads", "asyncio"])
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    """Starts one of two calls, by the face, on another thread."""
    with ThreadPoolExecutor(4) as pool:
        if request.param == "threads":
            yield lambda plain, _: pool.submit(plain)
        else:
            yield lambda _, awaited: pool.submit(lambda: asyncio.run(awaited()))


@pytest.mark.watchdog(60)
def test_join_blocks_on_the_server_until_the_queue_is_empty(
    server: Server, queue: RemoteQueue[Any], start: Start
) -> None:
    queue.put_many([1, 2])
    joined = [start(queue.join, queue.aio.join) for _ in range(2)]
    server.until_waiting(2)
    queue.get().ack()
    server.until_waiting(2)
    queue.get().ack()
    for one in joined:
        assert one.result(30) is None


@pytest.mark.watchdog(60)
def test_waiting_for_a_result_blocks_on_the_server(
    server: Server, queue: RemoteQueue[Any], start: Start
) -> None:
    id, other, kept = (queue.put(n, result_ttl=60) for n in range(3))
    asked = [start(lambda: queue.result(id), lambda: queue.aio.result(id)) for _ in range(2)]
    lost = start(lambda: queue.result(other), lambda: queue.aio.result(other))
    server.until_waiting(3)
    queue.get().ack("sum")
    for one in asked:
        assert one.result(30) == "sum"
    server.until_waiting(1)
    queue.cancel(other)
    with pytest.raises(JobFailed, match="cancelled"):
        lost.result(30)
    assert server.waiting() == 0
    queue.cancel(kept)


@pytest.mark.watchdog(60)
def test_an_expiring_lease_ends_a_join_without_consumers(
    server: Server, client: Client, start: Start
) -> None:
    queue = client.queue(uuid.uuid4().hex)
    id = queue.put(1, retry=Retry(attempts=1))
    calls = Queue(server.connection, queue.name)
    # The first lease to run out is not charged, the second one ends the message.
    assert calls.lease(1, 1).messages
    while not (again := calls.lease(1, 200_000)).messages:
        pass
    calls.call("extend", again.token, 200_000)  # its handler begins
    start(queue.join, queue.aio.join).result(30)
    assert [dead.id for dead in queue.dead_letters()] == [id]


@pytest.mark.watchdog(60)
def test_a_lost_wake_up_delays_a_waiter_by_at_most_one_poll(
    redis_url: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait, "CHUNK", 0.2)
    with connect(redis_url) as client:
        queue = client.queue(uuid.uuid4().hex)
        id = queue.put(1, result_ttl=60)
        server = Server(redis_url)
        waits = [
            start(queue.join, queue.aio.join),
            start(lambda: queue.result(id), lambda: queue.aio.result(id)),
        ]
        server.until_waiting(2)
        calls = Queue(server.connection, queue.name)
        (one,) = calls.lease().messages
        pipeline = server.connection.pipeline()
        # A failover, for instance, can lose who waits.
        pipeline.delete(f"{calls.key}:w:settled")
        pipeline.fcall("il1_settle", 1, calls.key, "", 0, *one.ack())
        pipeline.execute()
        for waiting in waits:
            assert waiting.result(30) is None
        server.connection.close()


@pytest.mark.watchdog(60)
def test_a_join_that_times_out_leaves_no_waiter(
    server: Server, queue: RemoteQueue[Any], start: Start
) -> None:
    queue.put(1)
    late = start(lambda: queue.join(0.05), lambda: queue.aio.join(0.05))
    with pytest.raises(NotDrained):
        late.result(30)
    assert server.waiting() == 0
    again = queue._client.queue(queue.name)
    closed = start(again.join, again.aio.join)
    server.until_waiting(1)
    again.close()
    with pytest.raises(ShutDown):
        closed.result(30)
    server.until_waiting(0)
    queue.get().ack()
    queue.join(30)


@pytest.mark.watchdog(60)
def test_a_cancelled_wait_lets_its_connection_be_used(
    server: Server, queue: RemoteQueue[Any]
) -> None:
    id = queue.put(1, result_ttl=60)

    async def main() -> None:
        aio = queue.aio
        for waits in (aio.join, lambda: aio.result(id)):
            for _ in range(3):
                task = asyncio.create_task(waits())
                await asyncio.to_thread(server.until_waiting, 1)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                await asyncio.to_thread(server.until_waiting, 0)
        assert (await aio.stats()).unsettled == 1
        await (await aio.get()).ack("done")
        await aio.join()
        assert await aio.result(id) == "done"
        await aio._client.close()

    asyncio.run(main())


@pytest.mark.watchdog(60)
def test_a_wait_interrupted_by_a_signal_leaves_no_waiter(
    server: Server, queue: RemoteQueue[Any]
) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(_signal: int, _frame: object) -> None:
        raise Interrupted

    def strike() -> None:
        server.until_waiting(1)
        assert main is not None
        signal.pthread_kill(main, signal.SIGUSR1)

    main = threading.main_thread().ident
    id = queue.put(1, result_ttl=60)
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        for waits in (queue.join, lambda: queue.result(id)):
            striker = threading.Thread(target=strike)
            striker.start()
            with pytest.raises(Interrupted):
                waits()
            striker.join()
            server.until_waiting(0)
    finally:
        signal.signal(signal.SIGUSR1, before)
    queue.get().ack(5)
    queue.join(30)
    assert queue.result(id, 30) == 5


@pytest.mark.watchdog(60)
def test_a_wait_continues_after_its_connection_broke(server: Server, start: Start) -> None:
    with (
        proxied("127.0.0.1", server.port) as proxy,
        connect(server.url.replace(str(server.port), str(proxy.port))) as client,
        connect(server.url) as other,
    ):
        queue = client.queue(uuid.uuid4().hex)
        direct = other.queue(queue.name)
        id = direct.put(1, result_ttl=60)
        joined = start(queue.join, queue.aio.join)
        result = start(lambda: queue.result(id), lambda: queue.aio.result(id))
        server.until_waiting(2)
        proxy.cut()
        server.until_waiting(2)
        direct.get().ack("late")
        assert result.result(30) == "late"
        joined.result(30)


def test_a_join_ends_when_its_queue_is_dropped(
    server: Server, client: Client, queue: RemoteQueue[Any], start: Start
) -> None:
    queue.put(1)
    joined = start(queue.join, queue.aio.join)
    server.until_waiting(1)
    assert queue.drop(force=True)
    assert joined.result(30) is None
    # To ask makes no queue: neither this one anew nor one that never was.
    never = client.queue(uuid.uuid4().hex)
    never.join()
    assert not {queue.name, never.name} & listed(server)


def listed(server: Server) -> set[str]:
    """The names of all queues."""
    if server.url.startswith("redis"):
        keys: Any = server.connection.keys("il:{*}:c")
        return {key.decode().split("{")[1].split("}")[0] for key in keys}
    call: Any = server.connection.execute_command
    names = call("FCALL", "il1_queues", 0)
    return {name.decode() for name in names}
