"""KeyedTaskGroup: order and exclusion of coroutines, and all that asyncio.TaskGroup does."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from interlock import KeyedTaskGroup, current_lease
from tests.executor.executors import LONG


def run(main: Coroutine[Any, Any, Any]) -> Any:
    async def within() -> Any:
        async with asyncio.timeout(LONG):
            return await main

    return asyncio.run(within(), debug=True)


class Calls:
    """Coroutines that note where they are."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.open = asyncio.Event()

    async def quick(self, name: str) -> str:
        self.log.append(name)
        return name

    async def slow(self, name: str) -> str:
        self.log.append(f"{name} begins")
        try:
            await self.open.wait()
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.log.append(f"{name} cancelled")
            raise
        self.log.append(f"{name} ends")
        return name

    async def fail(self, error: BaseException) -> None:
        await self.open.wait()
        raise error


async def settle() -> None:
    """Lets everything that can happen happen."""
    for _ in range(10):
        await asyncio.sleep(0)


# -- Order ----------------------------------------------------------------------------------------


def test_coroutines_on_one_key_run_in_order_and_never_overlap() -> None:
    async def main() -> None:
        calls = Calls()
        calls.open.set()
        async with KeyedTaskGroup() as group:
            tasks = [group.create_task(calls.slow(str(n)), keys="a") for n in range(5)]
        assert [await task for task in tasks] == ["0", "1", "2", "3", "4"]
        assert calls.log == [f"{n} {what}" for n in range(5) for what in ("begins", "ends")]

    run(main())


def test_coroutines_without_a_common_key_run_concurrently() -> None:
    async def main() -> None:
        calls = Calls()
        async with KeyedTaskGroup() as group:
            for name, keys in (("a", "a"), ("b", "b"), ("none", ()), ("a again", "a")):
                group.create_task(calls.slow(name), keys=keys)
            group.create_task(calls.slow("ab"), keys=["a", "b"])
            group.create_task(calls.slow("b, behind ab"), keys="b")
            await settle()
            assert calls.log == ["a begins", "b begins", "none begins"]
            calls.open.set()
        order = [line for line in calls.log if line.endswith("begins")]
        assert order[3:] == ["a again begins", "ab begins", "b, behind ab begins"]

    run(main())


def test_readers_share_a_key() -> None:
    async def main() -> None:
        calls = Calls()
        async with KeyedTaskGroup() as group:
            for n in range(3):
                group.create_task(calls.slow(str(n)), shared="room")
            group.create_task(calls.quick("writer"), keys="room")
            await settle()
            assert calls.log == ["0 begins", "1 begins", "2 begins"]
            calls.open.set()
        assert calls.log[-1] == "writer"

    run(main())


def test_max_tasks_bounds_concurrent_tasks() -> None:
    async def main() -> None:
        inside = most = 0

        async def call() -> None:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

        async with KeyedTaskGroup(max_tasks=3) as group:
            for n in range(30):
                group.create_task(call(), keys=str(n % 10))
        assert (most, inside) == (3, 0)

    run(main())


def test_a_task_waiting_for_its_key_does_not_count_towards_max_tasks() -> None:
    async def main() -> None:
        calls = Calls()
        async with KeyedTaskGroup(max_tasks=2) as group:
            for name in ("a", "a"):
                group.create_task(calls.slow(name), keys=name)
            group.create_task(calls.quick("b"), keys="b")
            await settle()
            assert calls.log == ["a begins", "b"]
            calls.open.set()

    run(main())


def test_tasks_may_create_tasks() -> None:
    async def main() -> None:
        calls = Calls()

        async def outer(group: KeyedTaskGroup) -> None:
            group.create_task(calls.quick("inner"), keys="a")
            await asyncio.sleep(0)
            calls.log.append("outer ends")

        async with KeyedTaskGroup(max_tasks=1) as group:
            group.create_task(outer(group), keys="a")
        assert calls.log == ["outer ends", "inner"]

    run(main())


def test_a_thousand_tasks_on_few_keys_run_in_order() -> None:
    async def main() -> None:
        seen: dict[int, list[int]] = {lane: [] for lane in range(7)}

        async def call(n: int) -> None:
            await asyncio.sleep(0)
            seen[n % 7].append(n)

        async with KeyedTaskGroup(max_tasks=5) as group:
            for n in range(1000):
                group.create_task(call(n), keys=n % 7)
        assert all(order == list(range(lane, 1000, 7)) for lane, order in seen.items())
        assert group.queue.stats().unsettled == 0

    run(main())


# -- Like asyncio.TaskGroup ----------------------------------------------------------------------


def test_a_failure_cancels_running_and_waiting_tasks() -> None:
    async def main() -> None:
        calls, failing = Calls(), Calls()
        with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012
            async with KeyedTaskGroup() as group:
                tasks = [
                    group.create_task(calls.slow("running"), keys="a"),
                    group.create_task(calls.slow("behind"), keys="a"),
                    group.create_task(failing.fail(ValueError("no")), keys="b"),
                    group.create_task(calls.slow("behind the failure"), keys="b"),
                ]
                await settle()
                failing.open.set()
        assert [str(error) for error in caught.value.exceptions] == ["no"]
        assert calls.log == ["running begins", "running cancelled"]
        assert [task.cancelled() for task in tasks] == [True, True, False, True]
        assert group.queue.stats().unsettled == 0

    run(main())


def test_exceptions_are_grouped() -> None:
    async def main() -> None:
        calls = Calls()
        calls.open.set()
        with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012
            async with KeyedTaskGroup() as group:
                for n in range(2):
                    group.create_task(calls.fail(ValueError(str(n))), keys=str(n))
        assert {str(error) for error in caught.value.exceptions} == {"0", "1"}

    run(main())


def test_a_base_exception_goes_through() -> None:
    async def main() -> None:
        calls = Calls()
        calls.open.set()
        with pytest.raises(SystemExit):  # noqa: PT012
            async with KeyedTaskGroup() as group:
                group.create_task(calls.fail(SystemExit(1)), keys="a")
                group.create_task(calls.quick("never"), keys="a")
        assert calls.log == []

    with pytest.raises(SystemExit):
        run(main())


def test_an_exception_keeps_its_traceback() -> None:
    async def main() -> None:
        raised = ValueError("no")

        async def deep() -> None:
            await asyncio.sleep(0)
            raise raised

        with pytest.raises(ExceptionGroup) as caught:
            async with KeyedTaskGroup() as group:
                group.create_task(deep(), keys="a")
        assert caught.value.exceptions[0] is raised
        frames = raised.__traceback__
        while frames is not None and frames.tb_next is not None:
            frames = frames.tb_next
        assert frames is not None and frames.tb_frame.f_code.co_name == "deep"

    run(main())


@pytest.mark.parametrize(
    ("which", "ran"),
    [
        ("running", ["first begins", "first cancelled", "second begins", "third begins"]),
        ("waiting", ["first begins", "third begins"]),
        ("not begun", ["second begins", "third begins"]),
    ],
)
def test_a_cancelled_task_frees_its_keys(which: str, ran: list[str]) -> None:
    async def main() -> None:
        calls = Calls()
        async with KeyedTaskGroup(max_tasks=2) as group:
            tasks = [group.create_task(calls.slow(name), keys="a") for name in NAMES]
            if which != "not begun":
                await settle()
            cancelled = tasks[1 if which == "waiting" else 0]
            cancelled.cancel("because")
            await settle()
            assert [task for task in tasks if task.done()] == [cancelled]
            calls.open.set()
        assert [task.cancelled() for task in tasks] == [task is cancelled for task in tasks]
        assert [line for line in calls.log if not line.endswith("ends")] == ran
        assert group.queue.stats().unsettled == 0

    run(main())


NAMES = ("first", "second", "third")


def test_cancelling_the_group_cancels_all_tasks() -> None:
    async def main() -> None:
        calls = Calls()

        async def body() -> None:
            async with KeyedTaskGroup() as group:
                group.create_task(calls.slow("running"), keys="a")
                group.create_task(calls.slow("behind"), keys="a")

        task = asyncio.ensure_future(body())
        await settle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert calls.log == ["running begins", "running cancelled"]

    run(main())


def test_a_task_that_resists_its_cancellation_keeps_its_keys() -> None:
    async def main() -> None:
        calls = Calls()

        async def resists() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await calls.slow("resists")

        async with KeyedTaskGroup() as group:
            task = group.create_task(resists(), keys="a")
            group.create_task(calls.quick("behind"), keys="a")
            await settle()
            task.cancel()
            await settle()
            assert calls.log == ["resists begins"]
            calls.open.set()
        assert calls.log == ["resists begins", "resists ends", "behind"]

    run(main())


def test_a_coroutine_receives_throw_and_close() -> None:
    async def main() -> None:
        async def times_out() -> str:
            try:
                async with asyncio.timeout(0):
                    await asyncio.Event().wait()
            except TimeoutError:
                return "in time"
            return "never"

        async def through_a_future() -> int:
            future = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(future.set_result, 5)
            return int(await future)

        async with KeyedTaskGroup() as group:
            first = group.create_task(times_out(), keys="a")
            second = group.create_task(through_a_future(), keys="a")
        assert (await first, await second) == ("in time", 5)

    run(main())


def test_a_task_takes_a_name_and_a_context() -> None:
    async def main() -> None:
        variable = contextvars.ContextVar("variable", default="outer")
        context = contextvars.copy_context()
        context.run(variable.set, "inner")

        async def call() -> tuple[str, str]:
            task = asyncio.current_task()
            assert task is not None
            return task.get_name(), variable.get()

        async with KeyedTaskGroup() as group:
            named = group.create_task(call(), keys="a", name="mine", context=context)
            plain = group.create_task(call(), keys="a")
            assert "call" in repr(plain)
        assert await named == ("mine", "inner")
        assert (await plain)[1] == "outer" and (await plain)[0].startswith("Task-")

    run(main())


def test_every_argument_of_the_standard_task_group_is_accepted() -> None:
    own = inspect.signature(KeyedTaskGroup.create_task).parameters
    standard = inspect.signature(asyncio.TaskGroup.create_task).parameters
    assert set(standard) - {"kwargs"} <= set(own)

    async def main() -> None:
        calls = Calls()
        options: dict[str, Any] = {"eager_start": True} if sys.version_info >= (3, 14) else {}
        async with KeyedTaskGroup() as group:
            group.create_task(calls.quick("eager"), keys="a", **options)
            if not options:
                with pytest.raises(TypeError, match="eager_start"):
                    group.create_task(calls.quick("eager"), keys="a", eager_start=True)
        assert calls.log == ["eager"]
        assert group.queue.stats().unsettled == 0

    run(main())


@pytest.mark.skipif(sys.version_info < (3, 12), reason="asyncio.eager_task_factory came with 3.12")
def test_a_group_works_under_an_eager_task_factory() -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(getattr(asyncio, "eager_task_factory"))  # noqa: B009
        calls = Calls()
        async with KeyedTaskGroup() as group:
            for n in range(3):
                group.create_task(calls.quick(str(n)), keys="a")
        assert calls.log == ["0", "1", "2"]

    run(main())


# -- Its lease ------------------------------------------------------------------------------------


def test_current_lease_is_available_in_a_task() -> None:
    async def main() -> None:
        async def call() -> Any:
            await asyncio.sleep(0)
            return current_lease()

        async with KeyedTaskGroup() as group:
            tasks = [group.create_task(call(), keys=key, shared="s") for key in "ab"]
        leases = [await task for task in tasks]
        assert [lease.keys for lease in leases] == [{b"a"}, {b"b"}]
        assert [(lease.shared, lease.attempt) for lease in leases] == [({b"s"}, 1)] * 2
        with pytest.raises(LookupError):
            current_lease()

    run(main())


def test_an_operator_can_pause_resume_and_revoke_from_any_thread() -> None:
    async def main() -> None:
        calls = Calls()
        async with KeyedTaskGroup() as group:

            async def elsewhere(what: Callable[[], object]) -> None:
                thread = threading.Thread(target=what)
                thread.start()
                await asyncio.to_thread(thread.join)

            group.queue.pause("a")
            paused = group.create_task(calls.quick("paused"), keys="a")
            await settle()
            assert calls.log == []
            await elsewhere(lambda: group.queue.resume("a"))
            assert await paused == "paused"

            hung = group.create_task(calls.slow("hung"), keys="b")
            await settle()
            behind = group.create_task(calls.quick("behind"), keys="b")
            explained = group.queue.explain(key="b")
            await elsewhere(lambda: group.queue.revoke(explained.nodes[0].id))
            assert await behind == "behind"
            calls.open.set()
            assert await hung == "hung"
        assert group.queue.stats().unsettled == 0

    run(main())


@pytest.mark.parametrize("then", ["retry", "hold", "dead", "skip"])
def test_a_revoked_task_continues(then: Any) -> None:
    async def main() -> None:
        calls = Calls()
        async with KeyedTaskGroup(max_tasks=2) as group:
            hung = group.create_task(calls.slow("hung"), keys="a")
            await settle()
            group.queue.revoke(group.queue.explain(key="a").nodes[0].id, then)
            calls.open.set()
            assert await hung == "hung"
            assert await group.create_task(calls.quick("next"), keys="a") == "next"
        stats = group.queue.stats()
        assert (stats.unsettled, stats.dead) == (0, 0)

    run(main())


# -- The rest -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "kind"), [({"keys": 1.5}, TypeError), ({"shared": ""}, ValueError)]
)
def test_an_invalid_key_is_refused_and_closes_the_coroutine(
    arguments: dict[str, Any], kind: type[Exception]
) -> None:
    async def main() -> None:
        calls = Calls()
        async with KeyedTaskGroup() as group:
            with pytest.raises(kind):
                group.create_task(calls.quick("never"), **arguments)
            with pytest.raises(TypeError, match="coro is int"):
                group.create_task(5, keys="a")  # type: ignore[arg-type]
        assert group.queue.stats().puts == 0

    run(main())


def test_a_group_that_is_not_entered_refuses_tasks() -> None:
    async def main() -> None:
        calls = Calls()
        group = KeyedTaskGroup()
        with pytest.raises(RuntimeError, match="has not been entered"):
            group.create_task(calls.quick("never"), keys="a")
        async with group:
            group.create_task(calls.quick("first"), keys="a")
        with pytest.raises(RuntimeError, match="is finished"):
            group.create_task(calls.quick("never"), keys="a")
        assert calls.log == ["first"] and group.queue.stats().unsettled == 0
        async with KeyedTaskGroup() as group:
            group.queue.shutdown()
            with pytest.raises(RuntimeError, match="shut down"):
                group.create_task(calls.quick("never"))

    run(main())


@pytest.mark.parametrize(("given", "kind"), [(0, ValueError), ("1", TypeError), (True, TypeError)])
def test_an_invalid_max_tasks_is_refused(given: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="max_tasks is"):
        KeyedTaskGroup(max_tasks=given)


def test_a_finished_group_is_released() -> None:
    async def main() -> Any:
        calls = Calls()
        calls.open.set()
        async with KeyedTaskGroup() as group:
            for n in range(10):
                group.create_task(calls.slow(str(n)), keys="a")
        return weakref.ref(group), weakref.ref(group.queue)

    group, queue = run(main())
    gc.collect()
    assert group() is None and queue() is None


def test_a_loop_closed_with_waiting_tasks_leaks_nothing() -> None:
    loop = asyncio.new_event_loop()

    async def main() -> Any:
        calls = Calls()
        group = await KeyedTaskGroup().__aenter__()
        for n in range(3):
            group.create_task(calls.quick(str(n)), keys="a")
        return weakref.ref(group), calls

    group, calls = loop.run_until_complete(main())
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.close()
    del tasks, task
    gc.collect()
    assert group() is None
    assert calls.log in ([], ["0"])


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("nested", [False, True])
def test_a_loop_closed_with_running_tasks_leaks_nothing(nested: bool) -> None:
    # The collector ends them, in an order and a context of its own; what it ignores is reported.
    loop = asyncio.new_event_loop()
    ended: list[str] = []

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    async def main(group: KeyedTaskGroup) -> None:
        async with group:
            group.create_task(hang() if nested else asyncio.Event().wait(), keys="a")
            group.create_task(hang(), keys="a")

    group = KeyedTaskGroup()
    task = loop.create_task(main(group))
    while not group.queue.stats().leased:
        loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(settle())
    loop.close()
    seen = weakref.ref(group)
    del task, group
    gc.collect()
    assert seen() is None
    assert ended == (["ended"] if nested else [])
