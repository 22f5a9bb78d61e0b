"""A task of a KeyedTaskGroup that would wait for itself gets WouldDeadlock (clause 25)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from interlock import KeyedTaskGroup, WouldDeadlock
from tests.executor.executors import LONG


def run(main: Coroutine[Any, Any, Any]) -> Any:
    async def within() -> Any:
        async with asyncio.timeout(LONG):
            return await main

    return asyncio.run(within(), debug=True)


async def one() -> int:
    return 1


async def told(awaited: Any) -> str:
    with pytest.raises(WouldDeadlock) as caught:
        await awaited
    return str(caught.value)


@pytest.mark.parametrize("gathered", [False, True])
def test_awaiting_a_task_behind_the_own_key_raises(gathered: bool) -> None:
    async def main() -> None:
        async def outer(group: KeyedTaskGroup) -> str:
            behind = group.create_task(one(), keys="a")
            return await told(asyncio.gather(behind, one()) if gathered else behind)

        async with KeyedTaskGroup() as group:
            task = group.create_task(outer(group), keys="a")
        assert "message 2" in task.result() and "(2 behind 1)" in task.result()

    run(main())


def test_awaiting_a_task_several_hops_behind_raises_even_in_nested_coroutines() -> None:
    async def main() -> None:
        async def deep(task: asyncio.Task[int]) -> str:
            return await told(task)

        async def outer(group: KeyedTaskGroup) -> str:
            group.create_task(one(), keys=["a", "b"])
            group.create_task(one(), keys="c", shared="b")
            return await deep(group.create_task(one(), keys="c"))

        async with KeyedTaskGroup() as group:
            task = group.create_task(outer(group), keys="a")
        assert "(4 behind 3 behind 2 behind 1)" in task.result()

    run(main())


def test_a_task_whose_await_was_refused_still_runs() -> None:
    async def main() -> None:
        async def outer(group: KeyedTaskGroup) -> asyncio.Task[int]:
            behind = group.create_task(one(), keys="a")
            await told(behind)
            return behind

        async with KeyedTaskGroup() as group:
            behind = await group.create_task(outer(group), keys="a")
            assert await behind == 1

    run(main())


def test_two_tasks_awaiting_each_other_raises() -> None:
    async def main() -> None:
        both = asyncio.Barrier(2)
        behind: dict[str, asyncio.Task[int]] = {}
        texts: list[str] = []

        async def call(group: KeyedTaskGroup, mine: str, other: str) -> None:
            behind[mine] = group.create_task(one(), keys=mine)
            await both.wait()
            try:
                await behind[other]
            except WouldDeadlock as error:
                texts.append(str(error))

        async with KeyedTaskGroup() as group:
            group.create_task(call(group, "a", "b"), keys="a")
            group.create_task(call(group, "b", "a"), keys="b")
        assert len(texts) == 1 and "behind" in texts[0]
        assert [task.result() for task in behind.values()] == [1, 1]

    run(main())


def test_awaiting_a_task_that_needs_a_free_place_among_max_tasks_raises() -> None:
    async def main() -> None:
        async def outer(group: KeyedTaskGroup) -> str:
            return await told(group.create_task(one()))

        async with KeyedTaskGroup(max_tasks=1) as group:
            task = group.create_task(outer(group))
        assert "all 1 tasks" in task.result()

    run(main())


def test_the_last_task_within_max_tasks_to_wait_gets_would_deadlock() -> None:
    async def main() -> None:
        both = asyncio.Barrier(2)

        async def outer(group: KeyedTaskGroup) -> bool:
            await both.wait()
            try:
                return await group.create_task(one()) == 1
            except WouldDeadlock:
                return False

        async with KeyedTaskGroup(max_tasks=2) as group:
            tasks = [group.create_task(outer(group)) for _ in range(2)]
        assert sorted(task.result() for task in tasks) == [False, True]

    run(main())


@pytest.mark.parametrize("gathered", [False, True])
def test_awaiting_a_task_that_needs_the_own_slot_raises(gathered: bool) -> None:
    async def main() -> None:
        async def outer(group: KeyedTaskGroup) -> str:
            waits = group.create_task(one(), limit="bank")
            return await told(asyncio.gather(waits, one()) if gathered else waits)

        async with KeyedTaskGroup(limits={"bank": 1}) as group:
            task = group.create_task(outer(group), limit="bank")
        assert "the task's own (2 behind 1 on limit bank)" in task.result()

    run(main())


def test_the_last_of_the_tasks_that_have_all_slots_to_wait_for_one_raises() -> None:
    async def main() -> None:
        both = asyncio.Barrier(2)
        texts: list[str] = []

        async def outer(group: KeyedTaskGroup) -> bool:
            await both.wait()
            try:
                return await group.create_task(one(), limit="bank") == 1
            except WouldDeadlock as error:
                texts.append(str(error))
                return False

        async with KeyedTaskGroup(limits={"bank": 2}) as group:
            tasks = [group.create_task(outer(group), limit="bank") for _ in range(2)]
        assert sorted(task.result() for task in tasks) == [False, True]
        assert len(texts) == 1 and "(4 behind 1 and 2 on limit bank)" in texts[0]

    run(main())


def test_awaiting_a_task_for_which_another_frees_a_slot_works() -> None:
    async def main() -> None:
        open = asyncio.Event()

        async def outer(group: KeyedTaskGroup) -> int:
            waits = group.create_task(one(), limit="bank")
            asyncio.get_running_loop().call_soon(open.set)
            return await waits

        async with KeyedTaskGroup(limits={"bank": 2}) as group:
            group.create_task(open.wait(), limit="bank")
            task = group.create_task(outer(group), limit="bank")
        assert task.result() == 1

    run(main())


def test_awaiting_a_slot_of_a_task_that_awaits_a_running_one_works() -> None:
    async def main() -> None:
        open = asyncio.Event()

        async def other(running: asyncio.Task[Any]) -> None:
            await running

        async def outer(group: KeyedTaskGroup) -> int:
            # Both others wait by now.
            await asyncio.sleep(0)
            waits = group.create_task(one(), limit="bank")
            asyncio.get_running_loop().call_soon(open.set)
            return await waits

        async with KeyedTaskGroup(limits={"bank": 2}) as group:
            running = group.create_task(open.wait())
            group.create_task(other(running), limit="bank")
            task = group.create_task(outer(group), limit="bank")
        assert task.result() == 1

    run(main())


def test_awaiting_a_finished_or_independent_task_works() -> None:
    async def main() -> None:
        async def outer(group: KeyedTaskGroup) -> int:
            tasks = [group.create_task(one(), keys=key) for key in "bcd"]
            done = tasks[0]
            assert await done == 1
            # The awaited message no longer blocks anyone.
            return await done + sum(await asyncio.gather(*tasks))

        async with KeyedTaskGroup(max_tasks=2) as group:
            task = group.create_task(outer(group), keys="a")
        assert task.result() == 4

    run(main())


def test_a_task_outside_the_group_may_await_any_task() -> None:
    async def main() -> None:
        open = asyncio.Event()

        async def waits() -> int:
            await open.wait()
            return 5

        async with KeyedTaskGroup(max_tasks=1) as group:
            tasks = [group.create_task(waits(), keys="a") for _ in range(3)]
            asyncio.get_running_loop().call_soon(open.set)
            assert await tasks[2] == 5

    run(main())


def test_a_refused_await_can_be_cancelled_like_any_other() -> None:
    async def main() -> None:
        async def outer(group: KeyedTaskGroup) -> None:
            behind = group.create_task(one(), keys="a")
            await told(behind)
            await asyncio.Event().wait()

        async with KeyedTaskGroup() as group:
            task = group.create_task(outer(group), keys="a")
            behind = group.create_task(one(), keys="b")
            await behind
            await asyncio.sleep(0)
            task.cancel()
        assert task.cancelled()

    run(main())


def test_a_task_that_awaits_itself_gets_asyncio_s_error() -> None:
    async def main() -> None:
        async def outer() -> None:
            task = asyncio.current_task()
            assert task is not None
            with pytest.raises(RuntimeError, match="cannot await on itself"):
                await task

        async with KeyedTaskGroup() as group:
            group.create_task(outer(), keys="a")

    run(main())
