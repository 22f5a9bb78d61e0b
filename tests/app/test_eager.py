"""Tests of code that awaits what it sends: ``arun_until_idle``, ``eager``, the lifespan."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from interlock import App, JobFailed, Reject, Retry, current_lease
from interlock.testing import TestWorker

app = App("redis://127.0.0.1:1", retry=Retry(2, first=10, jitter=False))
seen: list[object] = []


@app.task(keys="{key}", result_ttl=60)
async def double(key: str, number: int) -> int:
    await asyncio.sleep(0)
    seen.append((key, number))
    return 2 * number


@app.task(keys="{key}", result_ttl=60)
def plain(key: str, number: int) -> int:
    seen.append((key, number))
    return 3 * number


@app.task(result_ttl=60)
def fails(how: str) -> None:
    if how == "reject":
        raise Reject("too large")
    raise OSError(how)


@app.task(keys="{key}", result_ttl=60)
async def through(key: str, other: str) -> int:
    """Sends another and awaits it, within its handler."""
    job = await double.asend(other, 5)
    return await job.aresult(timeout=5)


@app.task(keys="a", result_ttl=60)
def nested() -> int:
    job = plain.send("b", 5)
    seen.append("sent")
    return job.result(timeout=5)


async def endpoint(number: int) -> int:
    """Part of a web application."""
    job = await double.asend("k", number)
    return await job.aresult(timeout=5)


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


def test_a_request_that_awaits_its_result_is_answered_at_once() -> None:
    async def main() -> None:
        async with app.testing(eager=True) as worker:
            assert await endpoint(4) == 8
            assert [call.args for call in worker.acked] == [("k", 4)]

    asyncio.run(main())


def test_many_requests_at_once_are_each_answered_in_the_order_of_their_key() -> None:
    async def main() -> None:
        async with app.testing(eager=True):
            assert await asyncio.gather(*map(endpoint, range(20))) == [2 * n for n in range(20)]

    asyncio.run(main())
    assert seen == [("k", n) for n in range(20)]


def test_a_plain_program_has_its_result_too() -> None:
    with app.testing(eager=True) as worker:
        assert plain.send("k", 2).result(timeout=5) == 6
        assert double.send("k", 2).result(timeout=5) == 4
        assert len(worker.acked) == 2
    with app.testing():
        plain.send("k", 2)
    assert len(seen) == 2


@pytest.mark.parametrize("eager", [True, False])
def test_an_exception_of_a_handler_is_stored_and_raised_by_result(eager: bool) -> None:
    async def main() -> None:
        async with app.testing(eager=eager) as worker:
            job = await fails.asend("reject")
            other = await fails.asend("away")
            if not eager:
                await worker.arun_until_idle(raise_errors=False)
            with pytest.raises(JobFailed) as failed:
                await job.aresult(timeout=5)
            assert failed.value.reason == "rejected"
            assert [str(error) for error in worker.errors] == ["away"]
            if eager:
                with pytest.raises(TimeoutError, match="the test's clock does not advance"):
                    await other.aresult(timeout=1000)
            worker.advance(10)
            with pytest.raises(OSError, match="away"):
                await worker.arun_until_idle()
            with pytest.raises(JobFailed) as failed:
                await other.aresult(timeout=5)
            assert failed.value.reason == "exhausted"

    asyncio.run(main())


def test_a_message_in_backoff_makes_result_raise_at_once() -> None:
    with app.testing(eager=True), pytest.raises(TimeoutError, match="does not advance"):
        fails.send("away").result()


def test_a_handler_may_await_what_it_sends() -> None:
    async def main() -> None:
        async with app.testing(eager=True):
            assert await (await through.asend("a", "b")).aresult(timeout=5) == 10

    asyncio.run(main())
    with app.testing(eager=True):
        assert nested.send().result(timeout=5) == 15
    # A message sent by a handler is handled after it, or when it waits for the result.
    assert seen[-2:] == ["sent", ("b", 5)]


def test_a_handler_that_awaits_a_message_blocked_by_itself_gets_a_timeout_error() -> None:
    async def main() -> None:
        async with app.testing(eager=True) as worker:
            job = await through.asend("a", "a")
            assert [type(error) for error in worker.errors] == [TimeoutError]
            assert await job.astate() == "backing_off"

    asyncio.run(main())


def test_without_eager_a_request_waits_until_the_test_runs_the_worker() -> None:
    async def main() -> None:
        async with app.testing() as worker:
            request = asyncio.create_task(endpoint(4))
            while not worker.sent:
                await asyncio.sleep(0)
            assert await worker.arun_until_idle() == 1
            assert await request == 8

    asyncio.run(main())


def test_eager_ends_with_its_block() -> None:
    with app.testing(eager=True):
        pass
    with app.testing() as worker:
        plain.send("k", 2)
        assert not seen
        assert worker.run_until_idle() == 1


class Pool:
    """A resource that belongs to a loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.open = True


def living() -> App:
    @app_of
    async def lifespan(app: App) -> AsyncIterator[Pool]:
        pool = Pool()
        yield pool
        pool.open = False

    return lifespan


def app_of(lifespan: object) -> App:
    made = App("redis://127.0.0.1:1", lifespan=lifespan)  # type: ignore[arg-type]

    @made.task(result_ttl=60)
    async def use() -> bool:
        pool: Pool = made.state
        return (
            pool.open and pool.loop is asyncio.get_running_loop() and current_lease().attempt == 1
        )

    return made


def test_the_lifespan_encloses_a_test_and_coroutines_run_on_its_loop() -> None:
    made = living()
    use = made.tasks["use"]

    def in_a_plain_program() -> None:
        with made.testing() as worker:
            pool: Pool = made.state
            job = use.send()
            assert worker.run_until_idle() == 1
            assert job.result(timeout=5) is True
        assert not pool.open

    async def awaited(worker: TestWorker) -> None:
        job = await use.asend()
        await worker.arun_until_idle()
        assert await job.aresult(timeout=5) is True

    async def main() -> None:
        async with made.testing() as worker:
            pool: Pool = made.state
            await awaited(worker)
        assert not pool.open
        with made.testing() as worker:
            await awaited(worker)
        # As pytest's own loop.
        in_a_plain_program()

    in_a_plain_program()
    asyncio.run(main())
    with pytest.raises(RuntimeError):
        _ = made.state


def test_a_lifespan_that_fails_fails_the_test() -> None:
    async def lifespan(app: App) -> AsyncIterator[None]:
        raise ConnectionError("no database")
        yield

    made = App("redis://127.0.0.1:1", lifespan=lifespan)
    with pytest.raises(ConnectionError), made.testing():
        pass

    async def main() -> None:
        async with made.testing():
            pass

    with pytest.raises(ConnectionError):
        asyncio.run(main())
    assert made._client is None
