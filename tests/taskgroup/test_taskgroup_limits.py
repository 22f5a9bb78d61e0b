"""Tasks with limit names: at most N of a name run, the others wait (clause 26)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from interlock import KeyedTaskGroup, Rate
from tests.taskgroup.test_taskgroup import Calls, run, settle


def test_at_most_n_tasks_of_a_name_run_at_once() -> None:
    async def main() -> None:
        calls = Calls()
        async with KeyedTaskGroup(limits={"bank": 2}) as group:
            for n in range(4):
                group.create_task(calls.slow(str(n)), keys=n, limit="bank")
            group.create_task(calls.quick("mail"))
            await settle()
            assert calls.log == ["0 begins", "1 begins", "mail"]
            calls.open.set()
        assert len(calls.log) == 9 and group.queue.stats().unsettled == 0

    run(main())


def test_each_name_with_a_prefix_is_limited_by_itself() -> None:
    async def main() -> None:
        calls = Calls()
        async with KeyedTaskGroup(limits={"host:*": 1}) as group:
            for name in ("a", "a", "b"):
                group.create_task(calls.slow(name), limit=f"host:{name}")
            await settle()
            assert calls.log == ["a begins", "b begins"]
            calls.open.set()

    run(main())


def test_a_task_that_waits_for_its_limit_does_not_count_towards_max_tasks() -> None:
    async def main() -> None:
        calls = Calls()
        async with KeyedTaskGroup(max_tasks=2, limits={"bank": 1}) as group:
            for n in range(3):
                group.create_task(calls.slow(str(n)), limit="bank")
            group.create_task(calls.slow("mail"))
            await settle()
            assert calls.log == ["0 begins", "mail begins"]
            calls.open.set()

    run(main())


def test_a_higher_limit_starts_tasks_that_wait() -> None:
    async def main() -> None:
        calls = Calls()
        async with KeyedTaskGroup(limits={"bank": 1}) as group:
            for n in range(3):
                group.create_task(calls.slow(str(n)), limit="bank")
            await settle()
            assert calls.log == ["0 begins"]
            group.queue.configure(limits={"bank": 3})
            await settle()
            assert calls.log == ["0 begins", "1 begins", "2 begins"]
            calls.open.set()

    run(main())


def test_a_task_that_waits_for_its_rate_starts_when_the_rate_allows_it() -> None:
    async def main() -> None:
        log: list[str] = []

        async def note(text: str) -> None:
            log.append(text)

        async with KeyedTaskGroup(limits={"api": Rate(1, per=86_400)}, max_tasks=1) as group:
            for n in range(3):
                group.create_task(note(f"api {n}"), limit="api")
            mail = group.create_task(note("mail"))
            await mail
            assert log == ["api 0", "mail"] and group.queue.stats().limited == 2
            # From now on the clock alone starts them.
            group.queue.configure(limits={"api": Rate(1_000)})
        assert log == ["api 0", "mail", "api 1", "api 2"]

    run(main())


def test_a_cancelled_task_leaves_its_turn_to_the_next() -> None:
    async def main() -> None:
        calls = Calls()
        async with KeyedTaskGroup(limits={"bank": 1}) as group:
            tasks = [group.create_task(calls.slow(str(n)), limit="bank") for n in range(3)]
            await settle()
            tasks[1].cancel()
            await settle()
            tasks[0].cancel()
            await settle()
            assert calls.log == ["0 begins", "0 cancelled", "2 begins"]
            calls.open.set()

    run(main())


def test_explain_names_the_full_limit() -> None:
    async def main() -> None:
        calls = Calls()
        async with KeyedTaskGroup(limits={"bank": 1}) as group:
            for n in range(2):
                group.create_task(calls.slow(str(n)), limit="bank")
            await settle()
            assert "waits for a limit: 1 of 1 on bank" in str(group.queue.explain(2))
            assert group.queue.stats().limited == 1
            calls.open.set()

    run(main())


@pytest.mark.parametrize(
    ("limits", "kind", "says"),
    [
        (2, TypeError, "limits is int; allowed: a mapping"),
        ({"bank": 0}, ValueError, r"limits\['bank'\] is 0; .* pause it"),
    ],
)
def test_wrong_limits_are_refused(limits: Any, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=rf"KeyedTaskGroup\(\): {says}"):
        KeyedTaskGroup(limits=limits)


def test_a_wrong_limit_name_is_refused_and_the_coroutine_closed() -> None:
    async def main() -> None:
        async with KeyedTaskGroup() as group:
            with pytest.raises(TypeError, match="limit is int; allowed: str"):
                group.create_task(asyncio.sleep(0), limit=5)  # type: ignore[arg-type]
            assert group.queue.stats().puts == 0

    run(main())
