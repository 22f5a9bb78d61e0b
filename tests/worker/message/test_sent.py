"""A message sent to a worker: whether its arguments fit, and its result."""

from __future__ import annotations

import asyncio

import pytest

from interlock import current_lease
from interlock.app import App
from interlock.errors import JobFailed
from interlock.retry import Retry
from tests.worker.loop.test_worker import drained, queue_of
from tests.worker.workers import wait_for

pytestmark = pytest.mark.parametrize("engine", ["memory", "redis", "hub"], indirect=True)


def test_results_are_stored_only_if_the_task_says_so(app: App) -> None:
    @app.task(result_ttl=60)
    def double(n: int) -> list[int]:
        return [n, n]

    @app.task(result_ttl=60, retry=Retry(1))
    def broken() -> None:
        raise ValueError("no")

    async def awaited() -> list[int]:
        async with app:
            with app.worker():
                job = await double.asend(3)
                return await job.aresult(30)

    with app.worker():
        assert double.send(2).result(30) == [2, 2]
        with pytest.raises(JobFailed, match="ValueError: no"):
            broken.send().result(30)
    assert asyncio.run(awaited()) == [3, 3]


def test_a_send_with_a_known_dedup_string_sends_nothing(app: App) -> None:
    @app.task()
    def f() -> None: ...

    first = f.options(dedup="d").send()
    second = f.options(dedup="d").send()
    assert (first.known, second.known) == (False, True) and second.id == first.id
    assert queue_of(app).qsize() == 1


def test_a_message_with_a_too_large_result_becomes_a_dead_letter(app: App) -> None:
    @app.task(result_ttl=60)
    def large() -> str:
        return "x" * 2_000_000

    with app.worker():
        with pytest.raises(JobFailed, match=r"large\(\) returned 20000\d\d bytes"):
            large.send().result(30)
        assert queue_of(app).stats().dead == 1


def test_a_timeout_of_a_result_names_the_command_to_run(app: App, url: str) -> None:
    @app.task(result_ttl=60)
    def never() -> int:
        return 1

    job = never.send()
    where = f"queue explain default {job.id}" if "memory" not in url else "of this process"
    with pytest.raises(TimeoutError, match=where) as caught:
        job.result(timeout=0)
    assert f"message {job.id} was not settled in time (a call of 'never')" in str(caught.value)
    with pytest.raises(TimeoutError, match=where):
        asyncio.run(job.aresult(timeout=0))


def test_a_message_with_an_unknown_argument_is_left_to_newer_workers(
    app: App, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[tuple[int, str, int]] = []
    with App(url, audit=True) as newer:

        @newer.task(name="pay", keys="account:{account}")
        def pay(account: int, currency: str = "EUR") -> None:
            done.append((account, currency, current_lease().attempt))

        @app.task(name="pay", keys="account:{account}")
        def old(account: int) -> None:
            done.append((account, "", current_lease().attempt))

        with app.worker():
            pay.send(1, currency="USD")
            pay.send(2, "USD")
            wait_for(lambda: caplog.text.count("this worker does not know") >= 3, "not leased")
            old.send(3)
            wait_for(lambda: queue_of(app).stats().acks == 1, "held up by an unknown argument")
        with newer.worker():
            drained(newer)
    assert sorted(done) == [(1, "USD", 1), (2, "USD", 1), (3, "", 1)]
    assert queue_of(app).stats().dead == 0


def test_a_message_with_a_missing_argument_becomes_a_dead_letter_at_once(
    app: App, url: str
) -> None:
    with App(url) as older:

        @older.task(name="pay", keys="account")
        def old(account: int) -> None: ...

        @app.task(name="pay", keys="account")
        def pay(account: int, currency: str) -> None: ...

        old.send(1)
        with app.worker():
            drained(app)
    (letter,) = queue_of(app).dead_letters()
    assert letter.attempts == 1
    assert "pay() was sent no argument 'currency', which it requires" in letter.error
