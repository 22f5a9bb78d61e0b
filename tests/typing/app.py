"""A user's code of tasks, and the types it must have: for mypy and pyright, never run."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, assert_type

from interlock import (
    App,
    AsyncTask,
    Handling,
    Job,
    JobFailed,
    KeySet,
    Middleware,
    Retry,
    RetryAfter,
    Run,
    Sending,
    Task,
    Worker,
)
from interlock.testing import TestCall, TestWorker

app = App("redis://127.0.0.1:6379", retry=Retry(3), send_timeout=dt.timedelta(seconds=2))


@dataclass
class Order:
    id: int
    customer: str


def instruments(order: Order, *, rush: bool = False) -> list[str]:
    return [order.customer]


@app.task(keys="order:{order.id}", shared=["rates", "day:{day}"], timeout=30, result_ttl=60)
def ship(order: Order, day: int = 1) -> str:
    return order.customer


@app.task(name="shop.notify", keys=instruments, queue="slow", retry=Retry(attempts=None))
async def notify(order: Order, *, rush: bool = False) -> int:
    return order.id


@app.task(keys="order:{id}", priority=5, expires=dt.timedelta(minutes=5), result_ttl=60)
def late(id: uuid.UUID) -> str:
    return str(id)


@app.task(barrier=True, expires=5)
async def alone() -> None: ...


@app.task
def count(number: int) -> int:
    return number


@app.task
async def wait(number: int) -> str:
    return str(number)


@app.task(keys="customer:{orders.customer}", run=100)
def book(orders: Run[Order]) -> None:
    assert_type(orders[0], Order)
    orders.done(len(orders))


@app.task(keys="customer:{orders.customer}", run=100)
async def abook(orders: Run[Order]) -> None: ...


assert_type(book.send(Order(1, "ada")), Job[None])
assert_type(abook.send(Order(1, "ada")), Job[None])
assert_type(count.send(1), Job[int])
assert_type(wait.send(1), Job[str])


def send() -> None:
    job = ship.send(Order(1, "ada"), day=3)
    assert_type(job, Job[str])
    assert_type(job.result(timeout=5), str)
    assert_type(job.id, int)
    assert_type(job.known, bool)
    assert_type(ship(Order(1, "ada")), str)
    assert_type(ship.keys_of(Order(1, "ada")), KeySet)
    assert_type(
        ship.options(delay=dt.timedelta(minutes=1), priority=5, dedup="d", timeout=3).send(
            Order(1, "ada")
        ),
        Job[str],
    )
    ship.send("ada")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ship.send()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    ship.send(Order(1, "ada"), night=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def asend() -> None:
    job = await notify.asend(Order(1, "ada"), rush=True)
    assert_type(job, Job[int])
    assert_type(await job.aresult(), int)
    assert_type(await notify(Order(1, "ada")), int)
    assert_type(await notify.options(priority=1).asend(Order(1, "ada")), Job[int])
    async with app:
        pass


def jobs() -> None:
    job = ship.job(7)
    assert_type(job, Job[str])
    assert_type(job.cancel(), bool)
    assert_type(job.forget(), bool)
    if job.state() == "backing_off" or job.state() == "dead":
        pass
    if job.state() == "no state":  # type: ignore[comparison-overlap]  # pyright: ignore[reportUnnecessaryComparison]
        pass
    late.options(expires=3).send(uuid.uuid4())
    try:
        job.result()
    except JobFailed as failed:
        assert_type(failed.reason, str)
    raise RetryAfter(dt.timedelta(seconds=3), attempt=False)


async def ajobs() -> None:
    job = alone.job(7)
    assert_type(await job.acancel(), bool)
    assert_type(await job.aforget(), bool)
    if await job.astate() == "gone":
        pass


class Pool: ...


@app.lifespan
async def lifespan(of: App) -> AsyncIterator[Pool]:
    yield Pool()


def plain_lifespan(of: App) -> Iterator[None]:
    yield


other = App(lifespan=plain_lifespan)


@app.on_worker_start
def began() -> None: ...


@app.on_process_stop
async def ended() -> None: ...


assert_type(began(), None)


class Tracing(Middleware):
    def before_send(self, sending: Sending) -> None:
        sending.headers["trace"] = sending.task

    def on_error(self, handling: Handling, error: BaseException) -> None:
        assert_type(handling.lease.token, int)


app.use(Tracing())


@app.after_handle
def seen(handling: Handling, result: Any) -> None:
    assert_type(handling.headers, dict[str, str])


def work() -> None:
    with app, app.worker(threads=4, queues=["default", "slow"], pool="asyncio") as worker:
        assert_type(worker, Worker)
        assert_type(worker.figures().handled, int)
    with app.testing() as trial:
        assert_type(trial, TestWorker)
        assert_type(trial.shuffle(7).run_until_idle(raise_errors=False), int)
        trial.advance(60)
        assert_type(trial.errors, list[BaseException])
        assert_type(trial.sent + trial.acked + trial.dead, list[TestCall])


async def awork() -> None:
    async with app.testing(eager=True) as trial:
        assert_type(trial, TestWorker)
        assert_type(await trial.arun_until_idle(), int)


def kinds(one: Task[[int], str], other: AsyncTask[[int], str]) -> None:
    assert_type(one(3), str)
    assert_type(one.send(3), Job[str])
    assert_type(other.send(3), Job[str])


@app.cron("0 3 * * *", tz="Europe/Berlin", missed="all", args=lambda tick: [tick.isoformat()])
@app.every("15m", name="often", args=("now",), missed="skip")
@app.every(dt.timedelta(hours=1), name="hourly", kwargs={"when": "now"})
@app.task(keys="day:{when}")
def close_day(when: str) -> int:
    return len(when)


@app.every(60)
@app.task
async def look() -> bool:
    return True


assert_type(close_day("today"), int)
assert_type(look, AsyncTask[[], bool])
