"""`app.testing()`: what is sent is handled in the test, on an engine in memory, in its own time."""

from __future__ import annotations

import asyncio
import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from interlock import Reject, RetryAfter, current_lease
from interlock.app import App
from interlock.retry import Retry
from interlock.testing import TestCall, TestWorker

app = App("redis://127.0.0.1:1")
seen: list[object] = []


@dataclass
class Order:
    id: int


@app.task(keys="order:{order.id}", shared="rates")
def ship(order: Order, note: str = "") -> None:
    seen.append((order, note))


@app.task(keys="k")
async def wait(number: int) -> None:
    await asyncio.sleep(0)
    seen.append((number, current_lease().attempt))


@app.task(retry=Retry(2, first=10, jitter=False))
def broken() -> None:
    seen.append(current_lease().attempt)
    raise ValueError("no")


@app.task()
def steers(how: str) -> None:
    if how == "reject":
        raise Reject("too large")
    if current_lease().attempt == 1:
        raise RetryAfter(30)
    seen.append(how)


@app.task(queue="other")
def follows(number: int) -> None:
    if number:
        follows.send(number - 1)


@pytest.fixture
def worker() -> Iterator[TestWorker]:
    seen.clear()
    with app.testing() as entered:
        yield entered


def test_a_sent_message_is_handled_with_encoded_and_decoded_arguments(worker: TestWorker) -> None:
    order = Order(3)
    job = ship.send(order, note="x")
    assert worker.run_until_idle() == 1
    assert seen == [(order, "x")] and seen[0] is not order
    keys, shared = frozenset({b"order:3"}), frozenset({b"rates"})
    sent = TestCall("ship", (order,), {"note": "x"}, "default", job.id, keys, shared)
    done = dataclasses.replace(sent, attempt=1)
    assert (worker.sent, worker.acked, worker.dead) == ([sent], [done], [])


def test_a_coroutine_function_is_awaited_with_or_without_a_running_loop(worker: TestWorker) -> None:
    wait.send(1)
    worker.run_until_idle()

    async def main() -> None:
        await wait.asend(2)
        worker.run_until_idle()
        await app.aclose()

    asyncio.run(main())
    assert seen == [(1, 1), (2, 1)]


def test_an_exception_of_a_handler_is_raised_after_its_message_is_settled(
    worker: TestWorker,
) -> None:
    broken.send()
    with pytest.raises(ValueError, match="no"):
        worker.run_until_idle()
    assert worker.run_until_idle() == 0
    worker.advance(9)
    assert worker.run_until_idle() == 0
    worker.advance(1)
    assert worker.run_until_idle(raise_errors=False) == 1
    assert seen == [1, 2]
    (letter,) = worker.dead
    assert (letter.task, letter.attempt, letter.error) == ("broken", 2, "ValueError: no")


def test_a_steering_exception_is_not_raised(worker: TestWorker) -> None:
    steers.send("later")
    steers.send("reject")
    assert worker.run_until_idle() == 2
    assert [call.error for call in worker.dead] == ["too large"]
    worker.advance(30)
    assert worker.run_until_idle() == 1
    assert seen == ["later"]


def test_messages_sent_by_a_handler_are_handled_on_all_queues(worker: TestWorker) -> None:
    follows.send(3)
    assert worker.run_until_idle() == 4
    assert [call.args for call in worker.acked] == [(3,), (2,), (1,), (0,)]


def test_a_delayed_message_waits_until_the_clock_is_advanced(worker: TestWorker) -> None:
    ship.options(delay=60).send(Order(1))
    assert worker.run_until_idle() == 0
    worker.advance(60)
    assert worker.run_until_idle() == 1


def test_a_deduplicated_send_is_listed_once(worker: TestWorker) -> None:
    assert not ship.options(dedup="d").send(Order(1)).known
    assert ship.options(dedup="d").send(Order(1)).known
    assert len(worker.sent) == 1


@pytest.mark.parametrize("seed", range(5))
def test_a_shuffled_run_keeps_only_the_order_of_each_key(worker: TestWorker, seed: int) -> None:
    for number in range(20):
        ship.send(Order(number % 4), str(number))
    worker.shuffle(seed).run_until_idle()
    numbers = [int(call.kwargs.get("note") or call.args[1]) for call in worker.acked]
    assert sorted(numbers) == list(range(20)) and numbers != list(range(20))
    for key in range(4):
        assert [n for n in numbers if n % 4 == key] == list(range(key, 20, 4))
    assert all(call.attempt == 1 for call in worker.acked)


def test_a_seed_repeats_its_order() -> None:
    def order(seed: int) -> list[object]:
        with app.testing() as worker:
            for number in range(20):
                ship.send(Order(number))
            worker.shuffle(seed).run_until_idle()
            return [call.args for call in worker.acked]

    assert order(1) == order(1) != order(2)


def test_after_a_test_sends_go_to_the_original_engine() -> None:
    before = app._client
    with app.testing():
        assert app._client is not before
        ship.send(Order(1))
    assert app._client is before
    with app.testing() as worker:
        assert worker.sent == [] and worker.run_until_idle() == 0


def test_a_test_worker_must_be_entered() -> None:
    worker = app.testing()
    with pytest.raises(RuntimeError, match="enter it first"):
        worker.run_until_idle()
    with worker, pytest.raises(RuntimeError, match="is in use"):
        worker.__enter__()


PROGRAM = """
from interlock import App

app = App()

@app.task()
def f() -> None: ...

def test_it(interlock_testing, interlock_clock):
    worker = interlock_testing(app, eager=False)
    f.send()
    assert worker.run_until_idle() == 1
    interlock_clock.advance(3)
"""


def test_the_pytest_fixture_is_found(tmp_path: Path) -> None:
    (tmp_path / "test_program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly"]
    if not entry_points(group="pytest11", name="interlock"):
        # Not installed, as in a tree that was only checked out.
        command += ["-p", "interlock.testing.plugin"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_pytest_plugin_loads_few_modules() -> None:
    program = "import interlock.testing.plugin, sys; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert not {"redis", "msgspec", "interlock.app", "interlock.client"} & set(
        loaded.stdout.split()
    )
