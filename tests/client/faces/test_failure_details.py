"""The place where an exception was raised is kept with its message, and told line by line."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from interlock import App, Reject, Retry, RetryAfter, connect
from interlock.client.admin.operator import Operator
from interlock.client.admin.server import Server
from interlock.client.faces.client import Client
from interlock.client.wire.failures import Failure
from interlock.failure import details_of, judged, whole_of
from interlock.runtime.limits import MAX_ERROR
from tests.consumer.raised import RAISED

HERE = __file__


def raised(call: Callable[[], object]) -> BaseException:
    try:
        call()
    except BaseException as error:
        return error
    raise AssertionError("it did not raise")


def inner() -> None:
    raise ValueError("no route\nto host")


def outer() -> None:
    try:
        inner()
    except ValueError as error:
        raise KeyError("address") from error


def test_a_traceback_lists_the_innermost_frame_last_and_then_the_cause() -> None:
    first, *lines = whole_of(raised(outer)).splitlines()
    assert first == "KeyError: 'address'"
    places = [line.rpartition(" in ")[2] for line in lines if line.startswith('  File "')]
    assert places == ["raised", "outer", "outer", "inner"]
    assert "caused by ValueError: no route" in lines
    assert '    raise KeyError("address") from error' in lines


def test_a_long_traceback_keeps_its_last_frames() -> None:
    def deeper(left: int) -> None:
        if left == 0:
            inner()
        deeper(left - 1)

    error = raised(lambda: deeper(300))
    details = details_of(error)
    assert len(whole_of(error).encode()) <= MAX_ERROR
    assert details.count("in deeper") > 5 and details.rstrip().endswith(
        'raise ValueError("no route\\nto host")'
    )


def test_a_cycle_of_causes_ends() -> None:
    error, other = ValueError("a"), ValueError("b")
    error.__cause__, other.__cause__ = other, error
    assert details_of(error).count("caused by") == 2


@pytest.mark.parametrize("name", RAISED)
def test_the_text_of_any_exception_is_bounded(name: str) -> None:
    failure = judged(raised(lambda: throw(name)), (Exception,), details=True)
    assert len(failure.whole.encode()) <= MAX_ERROR
    assert failure.whole.startswith(failure.text)
    assert failure.details if not failure.steered else not failure.details


def throw(name: str) -> None:
    raise RAISED[name].make()


def failures(client: Client, name: str, id: int) -> tuple[Failure, ...]:
    found = Operator(Server(client)).peek(name, id)
    assert found is not None and found.state == "dead"
    return found.failures


def of_the_handler(failure: Failure) -> None:
    assert failure.line == "ValueError: no route"
    assert f'File "{HERE}"' in failure.traceback and "in inner" in failure.traceback
    # Nobody looks for the fault in this package.
    assert "interlock/" not in failure.traceback.replace(HERE, "")


@pytest.mark.parametrize("face", ["threads", "asyncio"])
def test_a_failed_handler_of_consume_records_its_traceback(face: str) -> None:
    def handle(payload: Any) -> None:
        inner()

    async def ahandle(payload: Any) -> None:
        inner()

    with connect(f"memory://{uuid.uuid4().hex}") as client:
        queue = client.queue("q", str, retry=Retry(attempts=2, first=0))
        id = queue.put("p")
        if face == "threads":
            with queue.consume(handle):
                queue.join(timeout=30)
        else:

            async def main() -> None:
                consuming = asyncio.create_task(queue.aio.consume(ahandle))
                await queue.aio.join(timeout=30)
                consuming.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await consuming

            asyncio.run(main())
        newest, oldest = failures(client, "q", id)
        assert (newest.attempt, oldest.attempt) == (2, 1)
        of_the_handler(newest)
        assert queue.dead_letters()[0].error == "ValueError: no route"


def test_a_failed_task_records_its_traceback_and_a_steering_exception_does_not() -> None:
    app = App(f"memory://{uuid.uuid4().hex}", retry=Retry(attempts=1))

    @app.task
    def fails() -> None:
        inner()

    @app.task
    def rejects() -> None:
        raise Reject("malformed")

    with app.testing() as worker:
        ids = [fails.send().id, rejects.send().id]
        worker.run_until_idle(raise_errors=False)
        assert worker._client is not None
        (failed,) = failures(worker._client, "default", ids[0])
        (rejected,) = failures(worker._client, "default", ids[1])
    of_the_handler(failed)
    assert (rejected.text, rejected.traceback) == ("malformed", "")


def test_retry_after_records_no_traceback() -> None:
    failure = judged(raised(lambda: steer(RetryAfter(3))), (), details=True)
    assert failure.whole == failure.text == "RetryAfter: retry after 3 s"


def steer(error: Exception) -> None:
    raise error
