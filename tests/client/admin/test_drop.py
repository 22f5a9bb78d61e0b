"""`drop()`: a queue goes, and what is made anew under its name is another one."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.client.faces.client import Client, connect
from interlock.client.faces.queue import RemoteQueue
from interlock.errors import InterlockError, LeaseLost, OptionsMismatch, ResultGone
from interlock.retry import Retry
from tests.engine.calls import Queue, message
from tests.engine.timed import TimedQueue
from tests.hub.servers import needs_hub


@pytest.fixture(params=["redis", "hub", "memory"])
def client(request: pytest.FixtureRequest, engine_port: int) -> Iterator[Client]:
    if request.param == "hub":
        needs_hub()
        with interlock.Hub(port=0) as hub, connect(f"interlock://127.0.0.1:{hub.port}") as opened:
            yield opened
        return
    redis, memory = f"redis://127.0.0.1:{engine_port}", f"memory://{uuid.uuid4().hex}"
    with connect(redis if request.param == "redis" else memory) as opened:
        yield opened


@pytest.fixture
def filled(client: Client) -> RemoteQueue[bytes]:
    queue = client.queue(f"q{uuid.uuid4().hex}", bytes, maxsize=90, retry=Retry(attempts=1))
    queue.put_many([b"a", b"b", b"c"], keys="k")
    queue.put(b"dead", keys="d", dedup="d")
    for lease in queue.get_many(5):
        if lease.payload == b"dead":
            lease.reject("bad")
        else:
            lease.release()
    return queue


def test_a_queue_with_unsettled_messages_is_kept(filled: RemoteQueue[bytes]) -> None:
    with pytest.raises(InterlockError, match="holds 3 unsettled messages, 0 of them leased"):
        filled.drop()
    assert filled.stats().unsettled == 3


def test_dropping_a_queue_deletes_all_its_keys(filled: RemoteQueue[bytes], client: Client) -> None:
    filled.pause("k")
    filled.pause()
    assert filled.drop(force=True) is True
    assert filled.drop() is False
    other = client.queue(filled.name, bytes, maxsize=3)
    stats = other.stats()
    assert (stats.unsettled, stats.dead, stats.puts) == (0, 0, 0)
    # Its dedup string is not known, and the first handle's declaration is not that of now.
    other.put(b"new", dedup="d")
    with other.get(timeout=30) as payload:
        assert payload == b"new"
    with pytest.raises(OptionsMismatch):
        filled.put(b"a")


def test_a_lease_of_a_dropped_queue_is_lost(filled: RemoteQueue[bytes]) -> None:
    lease = filled.get()
    filled.drop(force=True)
    id = filled.put(b"again", keys="k")
    with pytest.raises(LeaseLost):
        lease.ack()
    new = filled.get(timeout=30)
    assert new.id == id > lease.id
    assert new.token > lease.token
    new.ack()


def test_a_consumer_of_a_dropped_queue_gets_messages_put_later(filled: RemoteQueue[bytes]) -> None:
    filled.pause()
    taken: list[bytes] = []

    def take() -> None:
        with filled.get(timeout=30) as payload:
            taken.append(payload)

    thread = threading.Thread(target=take)
    thread.start()
    # It may not wait yet: then it comes to the queue that is new.
    filled.drop(force=True)
    filled.put(b"new")
    thread.join(30)
    assert taken == [b"new"]


def test_waiting_for_a_result_of_a_dropped_queue_raises(client: Client) -> None:
    queue = client.queue(f"q{uuid.uuid4().hex}", bytes)
    id = queue.put(b"a", result_ttl=60)
    told: list[type[BaseException]] = []

    def wait() -> None:
        try:
            queue.result(id, timeout=30)
        except BaseException as error:
            told.append(type(error))

    thread = threading.Thread(target=wait)
    thread.start()
    queue.drop(force=True)
    thread.join(30)
    assert told == [ResultGone]


def test_the_asyncio_client_can_drop_a_queue(client: Client) -> None:
    async def main() -> None:
        queue = client.aio.queue(f"q{uuid.uuid4().hex}", bytes)
        await queue.put(b"a")
        with pytest.raises(InterlockError, match="holds 1 unsettled"):
            await queue.drop()
        assert await queue.drop(force=True)
        assert not await queue.drop()
        await client.aio.close()

    asyncio.run(main())


def test_a_dropped_queue_leaves_only_expiring_keys_on_redis(queue: Queue) -> None:
    queue.consumer, number = "me", 1
    for _ in range(2):
        queue.call("put", "me", number, 0, "x" * 2000, 1, 1, 0, "a", "b")
        queue.call("put", "me", number + 1, 0, "p", 0, 0, 1, "BARRIER", 1)
        queue.call("put", "me", number + 2, 0, "p", 1, 0, 1, "a", "DEDUP", "d")
        number += 3
    queue.call("pause", "a", "b")
    queue.call("lease", "you", 7, 5_000_000, 9, 60_000_000, "any")
    assert queue.call("drop") == ["0", "5", "0", "0", "0"]
    assert queue.call("drop", "FORCE") == ["1", "5", "0", "0", "0"]
    left = queue.parts()
    assert left <= {"series", "k:me", "k:you", "wake:any"}
    for part in left:
        assert queue.connection.pttl(f"{queue.key}:{part}") > 0


def test_a_repeated_drop_gets_the_first_reply(queue: Queue) -> None:
    queue.put(message("p", ["a"]))
    put = queue.call("put", "me", 1, 0, "p", 0, 0, 0)
    leased = queue.call("lease", "you", 1, 0, 9, 60_000_000, "any")
    queue.call("drop", "FORCE")
    assert queue.call("put", "me", 1, 0, "p", 0, 0, 0) == put
    assert queue.call("lease", "you", 1, 0, 9, 60_000_000, "any") == leased
    assert queue.stats()["unsettled"] == 0
    # And once somebody has made the queue anew.
    queue.put(message("another's"))
    assert queue.call("put", "me", 1, 0, "p", 0, 0, 0) == put
    assert queue.call("lease", "you", 1, 0, 9, 60_000_000, "any") == leased
    assert queue.stats()["unsettled"] == 1


def test_a_dropped_queue_reuses_no_id_or_token_while_the_clock_stands_still(
    timed: TimedQueue,
) -> None:
    """A burst of puts is ahead of the time, and so may be what was dropped."""
    before = timed.put(*[message("p")] * 50)
    tokens = [timed.lease(1).token for _ in range(20)]
    timed.call("drop", "FORCE")
    after = timed.put(message("p"))
    assert int(after[0]) == int(before[-1]) + 1
    assert int(timed.lease().token) == int(tokens[-1]) + 1


def test_a_durable_queue_that_was_dropped_stays_dropped_after_a_restart(tmp_path: Path) -> None:
    needs_hub()
    name = "orders"

    def started() -> interlock.Hub:
        settings: dict[str, Any] = {"queues.journal": str(tmp_path), "queues.durability": "always"}
        return interlock.Hub(port=0, **settings)

    with started() as hub, connect(f"interlock://127.0.0.1:{hub.port}") as client:
        queue = client.queue(name, bytes)
        first = queue.put_many([b"%d" % number for number in range(500)])
        queue.drop(force=True)
        again = queue.put_many([b"new", b"newer"])
        assert min(again) > max(first)
        queue.get().ack()
        other = client.queue("other", bytes)
        other.put(b"a")
        other.drop(force=True)
    with started() as hub, connect(f"interlock://127.0.0.1:{hub.port}") as client:
        queue = client.queue(name, bytes)
        assert (queue.stats().unsettled, queue.stats().puts) == (1, 2)
        lease = queue.get()
        assert (lease.id, lease.payload) == (again[1], b"newer")
        assert hub.info()["queues"] == 1
