"""Executors under asyncio: wrap_future, and run_in_executor with keys."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from interlock import KeyedExecutor
from tests.executor.executors import LONG, Gate, busy


def test_a_future_can_be_awaited() -> None:
    async def main() -> None:
        with KeyedExecutor(2) as executor:
            assert await asyncio.wrap_future(executor.submit_keyed("a", pow, 2, 5)) == 32
            with pytest.raises(ZeroDivisionError):
                await asyncio.wrap_future(executor.submit_keyed("a", divmod, 1, 0))

    asyncio.run(main())


def test_run_in_executor_works_with_keys() -> None:
    async def main() -> list[int]:
        order: list[int] = []
        with KeyedExecutor(4) as executor:
            loop, view = asyncio.get_running_loop(), executor.keyed("a")
            await asyncio.gather(*[loop.run_in_executor(view, order.append, n) for n in range(50)])
        return order

    assert asyncio.run(main()) == list(range(50))


def test_a_cancelled_await_cancels_the_call() -> None:
    async def main() -> None:
        with KeyedExecutor(2) as executor, busy(executor, "a"):
            call = executor.submit_keyed("a", int)
            task = asyncio.ensure_future(asyncio.wrap_future(call))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(0)
            assert call.cancelled()

    asyncio.run(main())


def test_a_cancelled_call_cancels_the_await() -> None:
    async def main() -> None:
        with KeyedExecutor(2) as executor, busy(executor, "a"):
            call = executor.submit_keyed("a", int)
            awaited = asyncio.wrap_future(call)
            assert call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await awaited

    asyncio.run(main())


def test_a_loop_closed_before_the_call_ends_causes_no_error() -> None:
    gate = Gate("made")

    async def main() -> Any:
        executor = KeyedExecutor(1)
        call = executor.submit_keyed("a", gate)
        asyncio.wrap_future(call)
        return executor, call

    executor, call = asyncio.run(main())
    gate.open.set()
    assert call.result(LONG) == "made"
    executor.shutdown()
