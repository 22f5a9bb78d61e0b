"""``AsyncQueue.consume``: handlers in tasks."""

import asyncio
import logging
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from interlock import KeyedQueue, Reject, Retry, RetryAfter, WouldDeadlock, current_lease
from interlock.testing import ManualClock
from tests.aio.test_aio import parked, run
from tests.support import PATIENCE, collect, python

AT_ONCE = Retry(attempts=None, first=0)


async def consuming(
    q: KeyedQueue[Any], handler: Callable[[Any], Any], **options: Any
) -> asyncio.Task[None]:
    """A consumer that has begun."""
    task = asyncio.create_task(q.aio.consume(handler, **options))
    await parked(q, options.get("threads", 1))
    return task


def test_asyncio_consume_handles_every_message_and_ends_with_the_queue() -> None:
    async def main() -> None:
        q = KeyedQueue[tuple[int, int]](keys=lambda payload: payload[0])
        seen: dict[int, list[int]] = {lane: [] for lane in range(5)}
        running = most = 0

        async def handle(payload: tuple[int, int]) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            seen[payload[0]].append(payload[1])
            running -= 1

        consumer = await consuming(q, handle, threads=3)
        for n in range(200):
            await q.aio.put((n % 5, n))
        await q.aio.join()
        q.shutdown()
        await consumer
        for lane, numbers in seen.items():
            assert numbers == list(range(lane, 200, 5))
        assert most == 3

    run(main())


def test_an_exception_of_a_handler_is_logged_and_the_message_redelivered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        q = KeyedQueue[str](retry=Retry(attempts=2, first=0), name="orders")

        async def handle(payload: str) -> None:
            await asyncio.sleep(0)
            if payload == "poison":
                raise ValueError("cannot")

        consumer = await consuming(q, handle)
        q.put("poison", keys="a")
        q.put("behind", keys="a")
        await q.aio.join()
        q.shutdown()
        await consumer
        assert q.dead_letters()[0].error == "ValueError: cannot"

    with caplog.at_level(logging.WARNING, "interlock.worker"):
        run(main())
    records = [record for record in caplog.records if record.name == "interlock.worker"]
    assert [record.levelname for record in records] == ["WARNING", "ERROR"]
    assert vars(records[0])["keys"] == ["a"]


def test_a_handler_settles_its_message_by_a_steering_exception() -> None:
    async def main() -> None:
        clock = ManualClock()
        q = KeyedQueue[str](retry=AT_ONCE, clock=clock)
        seen: list[tuple[str, int]] = []

        async def handle(payload: str) -> None:
            seen.append((payload, current_lease().attempt))
            if payload == "bad":
                raise Reject("malformed")
            if current_lease().attempt == 1:
                raise RetryAfter(30)

        consumer = await consuming(q, handle)
        q.put("late", keys="a")
        q.put("bad", keys="b")
        while not q.stats().dead:
            await asyncio.sleep(0)
        assert q.stats().backing_off == 1
        clock.advance(30)
        await q.aio.join()
        assert seen == [("late", 1), ("bad", 1), ("late", 2)]
        q.shutdown()
        await consumer

    run(main())


def test_cancelling_a_consumer_returns_its_messages() -> None:
    async def main() -> None:
        q = KeyedQueue[int](retry=AT_ONCE)
        entered = asyncio.Event()

        async def handle(payload: int) -> None:
            entered.set()
            await asyncio.get_running_loop().create_future()

        consumer = await consuming(q, handle, threads=2)
        q.put(1)
        await entered.wait()
        consumer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await consumer
        assert q._parked() == 0
        # No fault of the message's: it is as if its handling had never begun.
        lease = q.aio.get_nowait()
        assert (lease.payload, lease.attempt) == (1, 1)
        await lease.ack()
        stats = q.stats()
        assert (stats.releases, stats.retries) == (1, 0)

    run(main())


def test_repeatedly_cancelled_consumers_use_up_no_attempts() -> None:
    async def main() -> None:
        q = KeyedQueue[int](retry=Retry(attempts=2, first=0))
        entered = asyncio.Event()

        async def handle(payload: int) -> None:
            entered.set()
            await asyncio.get_running_loop().create_future()

        q.put(1)
        for _ in range(5):
            entered.clear()
            consumer = asyncio.create_task(q.aio.consume(handle))
            await entered.wait()
            consumer.cancel()
            await asyncio.wait([consumer])
        stats = q.stats()
        assert (stats.dead, stats.ready) == (0, 1)

    run(main())


@pytest.mark.parametrize("raises", [False, True])
def test_a_handler_that_swallows_a_cancellation_does_not_keep_its_consumer_running(
    raises: bool,
) -> None:
    async def main() -> None:
        q = KeyedQueue[int](retry=Retry(attempts=1))
        entered = asyncio.Event()

        async def handle(payload: int) -> None:
            try:
                entered.set()
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                if raises:
                    raise ValueError("while it cleaned up") from None

        q.put(1)
        q.put(2)
        consumer = asyncio.create_task(q.aio.consume(handle))
        await entered.wait()
        consumer.cancel()
        await asyncio.wait([consumer], timeout=PATIENCE)
        assert consumer.cancelled()
        stats = q.stats()
        assert (stats.acks, stats.dead, stats.ready) == (1 - raises, raises, 1)

    run(main())


def test_a_cancelled_error_raised_by_a_handler_does_not_end_the_consumer() -> None:
    async def main() -> None:
        q = KeyedQueue[int](retry=AT_ONCE)
        seen: list[int] = []

        async def handle(payload: int) -> None:
            seen.append(payload)
            if len(seen) == 1:
                other = asyncio.create_task(asyncio.sleep(60))
                other.cancel()
                await other

        consumer = await consuming(q, handle)
        q.put(1)
        await q.aio.join()
        assert seen == [1, 1]
        q.shutdown()
        await consumer

    run(main())


@pytest.mark.parametrize("error", ["SystemExit", "KeyboardInterrupt"])
def test_an_exception_that_ends_the_program_ends_the_loop_and_returns_messages(error: str) -> None:
    done = python(f"""
import asyncio, logging
from interlock import KeyedQueue, Retry

logging.disable()
q = KeyedQueue(retry=Retry(attempts=None, first=0))
q.put(1)

async def handle(payload):
    raise {error}

try:
    asyncio.run(q.aio.consume(handle))
except {error}:
    with q.get_nowait() as payload:
        assert payload == 1
    print(q.stats())
""")
    assert "acks=1, retries=1" in done.stdout, done.stderr


def test_a_handler_that_never_returns_loses_its_lease_and_is_listed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        q = KeyedQueue[int](retry=AT_ONCE)
        go_on = asyncio.Event()
        lost: list[bool] = []

        async def handle(payload: int) -> None:
            if payload == 1 and current_lease().attempt == 1:
                await go_on.wait()
                lost.append(current_lease().lost)

        consumer = await consuming(q, handle, threads=2, timeout=0.01)
        q.put(1, keys="a")
        q.put(2, keys="a")
        await q.aio.join()
        go_on.set()
        q.shutdown()
        await consumer
        assert lost == [True]

    run(main())
    # On a busy machine the other two may take that long too.
    (record,) = [r for r in caplog.records if "await go_on.wait()" in r.getMessage()]
    assert "its lease is revoked" in record.getMessage()


def test_a_handler_that_awaits_nothing_lets_the_loop_run() -> None:
    async def main() -> None:
        q = KeyedQueue[int](warn_depth=0)
        turns = 0

        async def handle(payload: int) -> None:
            pass

        async def count() -> None:
            nonlocal turns
            while not q.empty():
                turns += 1
                await asyncio.sleep(0)

        await q.aio.put_many(range(1000))
        consumer = asyncio.create_task(q.aio.consume(handle))
        await count()
        await q.aio.join()
        q.shutdown()
        await consumer
        assert turns > 10

    run(main())


def test_a_put_that_only_its_own_handler_could_make_room_for_raises() -> None:
    async def main() -> None:
        q = KeyedQueue[int](1, retry=Retry(attempts=1))
        seen: list[str] = []

        async def handle(payload: int) -> None:
            for call in (q.aio.put(2), q.aio.put_many([2]), q.aio.join()):
                with pytest.raises(WouldDeadlock, match="message 1"):
                    await call
                seen.append("told")

        consumer = await consuming(q, handle)
        q.put(1)
        await q.aio.join()
        assert seen == ["told"] * 3
        q.shutdown()
        await consumer

    run(main())


def test_a_put_that_another_handler_makes_room_for_waits() -> None:
    async def main() -> None:
        q = KeyedQueue[str](2, retry=Retry(attempts=1))
        putting = asyncio.Event()
        handled: list[str] = []

        async def handle(payload: str) -> None:
            if payload == "puts":
                putting.set()
                await q.aio.put("room")
            elif payload == "other":
                await putting.wait()
            handled.append(payload)

        consumer = await consuming(q, handle, threads=2)
        await q.aio.put_many(["puts", "other"])
        await q.aio.join()
        q.shutdown()
        await consumer
        assert sorted(handled) == ["other", "puts", "room"]

    run(main())


def test_an_idle_consumer_keeps_no_reference_to_the_last_message() -> None:
    class Payload:
        pass

    async def main() -> None:
        q = KeyedQueue[Payload]()

        async def handle(payload: Payload) -> None:
            await asyncio.sleep(0)

        consumer = await consuming(q, handle, timeout=60)
        payload = Payload()
        reference = weakref.ref(payload)
        q.put(payload)
        del payload
        await q.aio.join()
        await parked(q)
        collect()
        assert reference() is None
        q.shutdown()
        await consumer

    run(main())


def test_the_signature_is_checked() -> None:
    async def main() -> None:
        q = KeyedQueue[int]()
        wrong: list[tuple[type[Exception], dict[str, Any]]] = [
            (TypeError, {"handler": "print"}),
            (TypeError, {"threads": "2"}),
            (ValueError, {"threads": 0}),
            (ValueError, {"timeout": -1}),
            (ValueError, {"kind": "all"}),
        ]
        for kind, options in wrong:
            (name,) = options
            with pytest.raises(kind, match=name):
                await q.aio.consume(**{"handler": print, **options})

    run(main())


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
def test_a_message_is_redelivered_in_its_position_whatever_its_handler_raises(
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


def test_a_loop_closed_with_a_waiting_consumer_leaves_the_queue_usable() -> None:
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
