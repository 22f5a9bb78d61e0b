"""``queue.aio.consume``: what becomes of a message, whatever its handler does."""

import asyncio
from typing import Any

import pytest

from interlock import KeyedQueue, Reject, Retry, RetryAfter, current_lease
from tests.unit.support import PATIENCE

AT_ONCE = Retry(attempts=None, first=0)


def consumed(queue: KeyedQueue[Any], handler: Any, **options: Any) -> None:
    """Runs a consumer until the queue is drained."""

    async def main() -> None:
        queue.shutdown()
        async with asyncio.timeout(PATIENCE):
            await queue.aio.consume(handler, **options)

    asyncio.run(main(), debug=True)


@pytest.mark.parametrize(
    "error", [ValueError("no"), BaseException("worse"), RetryAfter(0), asyncio.CancelledError()]
)
def test_whatever_a_handler_raises_its_message_comes_again_in_its_place(
    error: BaseException,
) -> None:
    q = KeyedQueue[int](retry=AT_ONCE)
    q.put_many([1, 2, 3], keys="a")
    seen: list[tuple[int, int]] = []

    async def handle(payload: int) -> None:
        attempt = current_lease().attempt
        seen.append((payload, attempt))
        await asyncio.sleep(0)
        if payload == 2 and attempt == 1:
            raise error

    consumed(q, handle, threads=2)
    assert seen == [(1, 1), (2, 1), (2, 2), (3, 1)]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_program_ends_the_consumer_and_loses_nothing(
    kind: type[BaseException],
) -> None:
    q = KeyedQueue[int](retry=AT_ONCE)
    q.put(1, keys="a")

    async def handle(_: int) -> None:
        raise kind

    with pytest.raises(kind):
        consumed(q, handle)
    lease = q.get_nowait()
    assert lease.attempt == 2
    lease.ack()


def test_a_rejected_message_is_a_dead_letter() -> None:
    q = KeyedQueue[int](retry=AT_ONCE)
    q.put_many([1, 2], keys="a")

    async def handle(payload: int) -> None:
        if payload == 1:
            raise Reject("not this one")

    consumed(q, handle)
    (letter,) = q.dead_letters()
    assert (letter.payload, letter.error) == (1, "not this one")


def test_a_handler_that_never_returns_loses_its_lease_and_is_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    q = KeyedQueue[int](retry=AT_ONCE)
    q.put_many([1, 2], keys="a")
    go_on = asyncio.Event()
    lost: list[bool] = []

    async def hang(payload: int) -> None:
        if payload == 2:
            go_on.set()
        elif current_lease().attempt == 1:
            await go_on.wait()
            lost.append(current_lease().lost)

    consumed(q, hang, threads=2, timeout=0.01)
    assert lost == [True] and q.stats().acks == 2
    (record,) = [r for r in caplog.records if "its lease is revoked" in r.getMessage()]
    assert "go_on.wait" in record.getMessage()


def test_a_cancelled_consumer_gives_its_messages_back() -> None:
    q = KeyedQueue[str](retry=AT_ONCE)
    q.put("a", keys="a")
    q.put("b", keys="b")

    async def hang(_: str) -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        consumer = asyncio.create_task(q.aio.consume(hang, threads=2))
        while q.stats().leased < 2:
            await asyncio.sleep(0)
        consumer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await consumer

    asyncio.run(main(), debug=True)
    leases = q.get_many(2)
    assert [(lease.payload, lease.attempt) for lease in leases] == [("a", 2), ("b", 2)]
    q.ack_many(leases)


def test_a_loop_that_ends_with_a_consumer_that_waits_leaves_the_queue_usable() -> None:
    q = KeyedQueue[int]()

    async def main() -> None:
        consumer = asyncio.create_task(q.aio.consume(print, threads=3))  # type: ignore[arg-type]
        while q._parked() < 3:
            await asyncio.sleep(0)
        assert not consumer.done()

    asyncio.run(main(), debug=True)
    assert q._parked() == 0
    q.put(1, keys="a")
    with q.get_nowait() as payload:
        assert payload == 1
