"""A worker in the process of the test, on each engine: handling, judging, settling, ending."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import re
import threading
import time
from typing import Any

import pytest

from interlock import Reject, RetryAfter, current_lease
from interlock.app import App, Handling, Middleware, Sending
from interlock.retry import Retry
from interlock.worker.worker import Worker
from tests.worker.workers import wait_for

pytestmark = pytest.mark.parametrize("engine", ["memory", "redis", "hub"], indirect=True)
THREADED = ["thread", "asyncio"]


def queue_of(app: App, name: str = "default") -> Any:
    return app._queue(name)


def drained(app: App, name: str = "default") -> None:
    queue_of(app, name).join(30)


@pytest.mark.parametrize("pool", THREADED)
def test_plain_functions_and_coroutine_functions_are_handled(app: App, pool: str) -> None:
    seen: list[tuple[str, int]] = []

    @app.task(keys="{n}")
    def plain(n: int) -> None:
        seen.append(("plain", n))

    @app.task(keys="{n}")
    async def awaited(n: int) -> None:
        await asyncio.sleep(0)
        seen.append(("awaited", n))

    with app.worker(threads=4, pool=pool) as worker:
        for n in range(20):
            plain.send(n)
            awaited.send(n)
        drained(app)
    assert sorted(seen) == sorted((name, n) for n in range(20) for name in ("plain", "awaited"))
    for n in range(20):
        # They share a key, so the one that was sent first came first.
        assert [name for name, number in seen if number == n] == ["plain", "awaited"]
    figures = worker.figures()
    assert (figures.handled, figures.failed, figures.lost, figures.running) == (40, 0, 0, 0)
    assert figures.violations == 0


@pytest.mark.parametrize("pool", THREADED)
def test_a_handler_sees_its_lease(app: App, pool: str) -> None:
    leases = []

    @app.task(keys="account:{n}", shared="rates")
    def plain(n: int) -> None:
        leases.append(current_lease())

    @app.task()
    async def awaited(n: int) -> None:
        leases.append(current_lease())

    with app.worker(pool=pool):
        first = plain.send(1)
        drained(app)
        second = awaited.send(2)
        drained(app)
    assert [lease.id for lease in leases] == [first.id, second.id]
    assert leases[0].keys == {b"account:1"} and leases[0].shared == {b"rates"}
    assert leases[0].attempt == 1 and leases[1].token > leases[0].token
    assert leases[0].queue == "default"
    for settle in (leases[0].ack, leases[0].release, leases[0].nack):
        with pytest.raises(TypeError, match="the worker settles when the handler has ended"):
            settle()
    with pytest.raises(LookupError):
        current_lease()


def test_a_failed_message_is_logged_and_retried_until_its_attempts_are_used_up(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(keys="k", retry=Retry(2, first=0))
    def broken() -> None:
        raise OSError("no route")

    with app.worker():
        job = broken.send()
        drained(app)
    records = [record for record in caplog.records if record.name == "interlock.worker"]
    assert [record.levelno for record in records] == [logging.WARNING, logging.ERROR]
    expected = f"the handler of message {job.id} (broken) in queue 'default' raised, attempt 2"
    times = r", \[k\] waited \d+\.\d ms, handled \d+\.\d ms"
    assert re.fullmatch(re.escape(expected) + times, records[1].getMessage())
    assert vars(records[1])["waited"] >= 0 and vars(records[1])["handled"] >= 0
    assert records[1].exc_info and isinstance(records[1].exc_info[1], OSError)
    told = [getattr(records[0], name) for name in ("queue", "id", "keys", "attempt", "task")]
    assert told == ["default", job.id, ["k"], 1, "broken"]
    assert getattr(records[1], "token") > getattr(records[0], "token")  # noqa: B009
    (letter,) = queue_of(app).dead_letters()
    assert (letter.id, letter.attempts, letter.error) == (job.id, 2, "OSError: no route")


def test_a_handler_settles_its_message_by_a_steering_exception(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    attempts: list[int] = []

    @app.task()
    def later() -> None:
        attempts.append(current_lease().attempt)
        if len(attempts) == 1:
            raise RetryAfter(0.01)

    @app.task()
    def never() -> None:
        raise Reject("too large")

    @app.task(retry=Retry(5, on=(OSError,)))
    def wrong() -> None:
        raise ValueError("not worth another attempt")

    with app.worker():
        for task in (later, never, wrong):
            task.send()
        drained(app)
    assert attempts == [1, 2]
    errors = sorted(letter.error for letter in queue_of(app).dead_letters())
    assert errors == ["ValueError: not worth another attempt", "too large"]
    # A chosen outcome is not logged.
    assert [record.levelno for record in caplog.records if "raised" in record.getMessage()] == [
        logging.ERROR
    ]


def test_an_exception_that_is_not_retried_holds_the_message_if_the_policy_says_so(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(retry=Retry(5, on=(OSError,), then="hold"))
    def wrong() -> None:
        raise ValueError("not worth another attempt")

    with app.worker():
        id = wrong.send().id
        queue = queue_of(app)
        wait_for(lambda: queue.stats().held == 1, "the message is not held")
    assert queue.bury(id)
    assert [letter.error for letter in queue.dead_letters()] == [
        "ValueError: not worth another attempt"
    ]
    assert "by the policy it was sent with" not in caplog.text


def test_an_undecodable_message_becomes_a_dead_letter_at_once(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task()
    def f(n: int) -> None: ...

    with app.worker():
        queue_of(app).put(b"junk")
        f.send("x")  # type: ignore[arg-type]
        drained(app)
    letters = sorted(letter.error for letter in queue_of(app).dead_letters())
    assert "argument 'n' of f() cannot be decoded" in letters[0]
    assert "the message is not a call of a task" in letters[1]
    assert all(letter.attempts == 1 for letter in queue_of(app).dead_letters())
    assert caplog.text.count("cannot be handled") == 2


def test_a_message_of_an_unknown_task_is_returned_without_using_an_attempt(
    app: App, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with App(url, audit=True) as newer:
        attempts: list[int] = []

        @newer.task()
        def fresh() -> None:
            attempts.append(current_lease().attempt)

        @app.task()
        def old() -> None: ...

        with app.worker():
            fresh.send()
            wait_for(lambda: caplog.text.count("this worker does not have") >= 2, "not leased")
            old.send()
            wait_for(lambda: queue_of(app).stats().acks == 1, "held up by an unknown task")
        with newer.worker():
            drained(newer)
    assert attempts == [1]
    assert "calls the task 'fresh'" in caplog.text


def test_a_handler_that_exceeds_its_timeout_loses_its_lease(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    gate, lost, attempts = threading.Event(), [], []

    @app.task(keys="k", timeout=0.1, retry=Retry(first=0))
    def hangs() -> None:
        lease = current_lease()
        attempts.append(lease.attempt)
        if lease.attempt == 1:
            gate.wait(30)
            lost.append(lease.lost)

    with app.worker(threads=2) as worker:
        hangs.send()
        drained(app)
        # The second may take that long too, on a busy machine.
        assert attempts[:2] == [1, 2]
        gate.set()
        wait_for(lambda: worker.figures().running == 0, "the handler did not end")
    assert lost == [True]
    assert "was handled for more than 0.1 s; its lease is revoked. The handler is" in caplog.text
    assert "gate.wait(30)" in caplog.text
    assert "ended after its lease was revoked" in caplog.text


def test_a_coroutine_that_exceeds_its_timeout_is_cancelled(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    attempts, cancelled = [], []

    @app.task(timeout=0.1, retry=Retry(first=0))
    async def hangs() -> None:
        attempts.append(current_lease().attempt)
        if len(attempts) == 1:
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                cancelled.append(current_lease().lost)
                raise

    with app.worker(pool="asyncio"):
        hangs.options().send()
        drained(app)
    assert attempts[:2] == [1, 2] and cancelled == [True]
    assert "await asyncio.sleep(30)" in caplog.text


def test_a_send_can_override_the_timeout_of_its_task(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    gate = threading.Event()

    @app.task(retry=Retry(1))
    def hangs() -> None:
        gate.wait(30)

    with app.worker():
        hangs.options(timeout=0.1).send()
        drained(app)
        gate.set()
    (letter,) = queue_of(app).dead_letters()
    assert letter.error == "handled for more than 0.1 s"


def test_hooks_run_around_sends_and_handlers(app: App, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []

    class Outer(Middleware):
        def before_send(self, sending: Sending) -> None:
            sending.headers["trace"] = "t1"
            seen.append(("outer before_send", sending.task, sending.keys))

        def before_handle(self, handling: Handling) -> None:
            seen.append(("outer before", handling.headers["trace"], handling.args))

        def after_handle(self, handling: Handling, result: Any) -> None:
            seen.append(("outer after", result))

        def on_error(self, handling: Handling, error: BaseException) -> None:
            seen.append(("outer error", str(error)))

    app.use(Outer())

    @app.before_handle
    def inner(handling: Handling) -> None:
        seen.append(("inner before", current_lease().id == handling.lease.id))

    @app.after_handle
    def inner_after(handling: Handling, result: Any) -> None:
        seen.append(("inner after", result))
        raise OSError("a hook that is broken changes nothing")

    @app.after_send
    def sent(sending: Sending, job: Any) -> None:
        seen.append(("sent", job.task))

    @app.task(keys="k", retry=Retry(1))
    def double(n: int) -> int:
        if n < 0:
            raise ValueError("negative")
        return 2 * n

    double.send(2)
    double.send(-1)
    with app.worker():
        drained(app)
    around_send = [("outer before_send", "double", {b"k"}), ("sent", "double")]
    assert seen == [
        *around_send,
        *around_send,
        ("outer before", "t1", (2,)),
        ("inner before", True),
        ("inner after", 4),
        ("outer after", 4),
        ("outer before", "t1", (-1,)),
        ("inner before", True),
        ("outer error", "negative"),
    ]
    assert "the hook after_handle" in caplog.text
    assert queue_of(app).stats().acks == 1


def test_an_exception_in_a_before_hook_fails_the_message(app: App) -> None:
    @app.before_handle
    def refuse(handling: Handling) -> None:
        raise Reject("not today")

    @app.task()
    def f() -> None:
        raise AssertionError("must not run")

    with app.worker():
        f.send()
        drained(app)
    assert [letter.error for letter in queue_of(app).dead_letters()] == ["not today"]


def test_an_exception_in_a_send_hook_stops_the_send(app: App) -> None:
    @app.before_send
    def refuse(sending: Sending) -> None:
        raise PermissionError("not you")

    @app.task()
    def f() -> None: ...

    with pytest.raises(PermissionError):
        f.send()
    assert queue_of(app).qsize() == 0


def test_several_queues_share_the_handlers_without_starvation(app: App) -> None:
    seen: list[str] = []

    @app.task(queue="a")
    def of_a() -> None:
        seen.append("a")

    @app.task(queue="b")
    def of_b() -> None:
        seen.append("b")

    with app.worker(threads=1, queues=("a", "b")):
        for _ in range(20):
            of_a.send()
            of_b.send()
        drained(app, "a")
        drained(app, "b")
    assert (seen.count("a"), seen.count("b")) == (20, 20)


def test_a_message_that_no_handler_begins_is_returned(app: App) -> None:
    # The loop is blocked by a handler that does not await, so what it was offered cannot begin.
    gate, begun = threading.Event(), threading.Event()

    @app.task()
    async def blocks() -> None:
        begun.set()
        gate.wait(30)

    attempts: list[int] = []

    @app.task()
    async def other() -> None:
        attempts.append(current_lease().attempt)

    with app.worker(threads=4, pool="asyncio"):
        blocks.send()
        assert begun.wait(30)
        other.send()
        wait_for(lambda: queue_of(app).stats().releases >= 1, "it was kept")
        gate.set()
        drained(app)
    assert attempts == [1]


def test_a_stopped_worker_finishes_running_handlers_and_leases_no_more(app: App) -> None:
    gate, begun, done = threading.Event(), threading.Event(), []

    @app.task()
    def f(n: int) -> None:
        begun.set()
        gate.wait(30)
        done.append(n)

    worker = app.worker(threads=1).start()
    f.send(1)
    assert begun.wait(30)
    f.send(2)
    ending = threading.Thread(target=worker.stop)
    ending.start()
    gate.set()
    ending.join(30)
    assert not ending.is_alive()
    assert done == [1] and queue_of(app).qsize() == 1
    assert queue_of(app).stats().leased == 0


def test_a_stop_that_waits_long_names_the_handlers_that_still_run(
    app: App, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.worker.worker.FIRST_WARNING", 0.01)
    gate, begun = threading.Event(), threading.Event()

    @app.task()
    def f() -> None:
        begun.set()
        gate.wait(60)

    worker = app.worker(threads=1).start()
    job = f.send()
    assert begun.wait(30)
    ended: list[bool] = []
    ending = threading.Thread(target=lambda: ended.append(worker.stop()))
    ending.start()
    text = rf"has waited \S+ s for running handlers: \S+ \(message {job.id} in queue 'default'"
    try:
        wait_for(lambda: len(re.findall(text, caplog.text)) >= 2, "nothing names the handler")
    finally:
        gate.set()
        ending.join(30)
    assert ended == [True]


def test_messages_unfinished_at_the_stop_deadline_are_returned(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    gate, begun = threading.Event(), threading.Event()

    @app.task(retry=Retry(first=0))
    def f() -> None:
        begun.set()
        gate.wait(30)

    worker = app.worker(threads=1).start()
    f.send()
    assert begun.wait(30)
    assert worker.stop(timeout=0.05) is False
    assert queue_of(app).stats().leased == 0 and queue_of(app).qsize() == 1
    assert "the worker was stopped while its handler ran" in caplog.text
    gate.set()


def test_the_worker_reports_what_its_handlers_do(app: App) -> None:
    gate, begun = threading.Event(), threading.Event()

    @app.task(keys="k:{n}")
    def plain(n: int) -> None:
        begun.set()
        gate.wait(30)

    with app.worker() as worker:
        job = plain.send(1)
        assert begun.wait(30)
        (entry,) = worker.stacks()
        assert (entry["task"], entry["id"], entry["keys"]) == ("plain", job.id, ["k:1"])
        assert entry["attempt"] == 1 and entry["lost"] is False and entry["seconds"] >= 0
        assert "gate.wait(30)" in entry["stack"]
        gate.set()


def test_order_and_exclusion_hold_under_load(app: App) -> None:
    seen: dict[str, list[int]] = {f"k{n}": [] for n in range(5)}
    running: dict[str, int] = dict.fromkeys(seen, 0)

    @app.task(keys=["{a}", "{b}"], shared="rates")
    def pair(number: int, a: str, b: str) -> None:
        for key in {a, b}:
            running[key] += 1
            assert running[key] == 1
            seen[key].append(number)
        if number % 17 == 0:
            time.sleep(0.001)
        for key in {a, b}:
            running[key] -= 1

    readers: list[int] = []

    @app.task(keys="rates")
    def change(number: int) -> None:
        readers.append(sum(running.values()))

    with app.worker(threads=8) as worker:
        for number in range(400):
            pair.send(number, f"k{number % 5}", f"k{number * 3 % 5}")
            if number % 50 == 0:
                change.send(number)
        drained(app)
    assert all(numbers == sorted(numbers) and len(numbers) > 50 for numbers in seen.values())
    assert readers == [0] * 8
    assert worker.figures().violations == 0 and worker.figures().failed == 0


def test_a_worker_cannot_be_started_twice(app: App) -> None:
    with app.worker() as worker, pytest.raises(RuntimeError, match="was started before"):
        worker.start()
    assert isinstance(worker, Worker)


def test_a_context_variable_set_by_a_hook_does_not_leak_to_the_next_message(app: App) -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="none")
    seen = []

    @app.before_handle
    def set_tenant(handling: Handling) -> None:
        seen.append(tenant.get())
        tenant.set("ada")

    @app.task()
    def f() -> None:
        seen.append(tenant.get())

    with app.worker(threads=1):
        f.send()
        f.send()
        drained(app)
    assert seen == ["none", "ada", "none", "ada"]


def test_settlements_beyond_the_limit_of_a_call_are_sent_in_several(app: App) -> None:
    gate = asyncio.Event()
    count = 1500

    @app.task()
    async def waits(number: int) -> None:
        if number == count - 1:
            gate.set()
        await gate.wait()

    with app.worker(threads=count, pool="asyncio") as worker:
        for number in range(count):
            waits.send(number)
        drained(app)
    assert (worker.figures().handled, worker.figures().lost) == (count, 0)
