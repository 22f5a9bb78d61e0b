"""The result of ``AsyncQueue.put`` and ``get``: it is used as every coroutine is."""

import asyncio
import gc
import inspect
import warnings
import weakref
from collections.abc import Coroutine
from typing import Any

import pytest

from interlock import AsyncLease, Empty, KeyedQueue
from interlock.aio import AsyncQueue
from tests.aio.test_aio import run


def made(q: KeyedQueue[Any], name: str) -> Coroutine[Any, Any, Any]:
    call = q.aio.put(1) if name == "put" else q.aio.get()
    assert isinstance(call, Coroutine)
    return call


both = pytest.mark.parametrize("name", ["put", "get"])


@both
def test_a_call_does_nothing_before_it_is_awaited(name: str) -> None:
    q = KeyedQueue[int]()
    q.put(0)
    call = made(q, name)
    assert q.stats().puts == 1 and q.stats().leased == 0
    call.close()
    assert q.stats().puts == 1 and q.stats().leased == 0


@both
def test_a_call_that_is_never_awaited_warns(name: str) -> None:
    q = KeyedQueue[int]()
    calls = [made(q, name)]
    with pytest.warns(RuntimeWarning, match=f"coroutine 'AsyncQueue.{name}' was never awaited"):
        calls.clear()


@both
def test_a_closed_call_does_not_warn(name: str) -> None:
    q = KeyedQueue[int]()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call = made(q, name)
        call.close()
        call.close()
        del call


@both
def test_a_call_can_be_awaited_only_once(name: str) -> None:
    async def main() -> None:
        q = KeyedQueue[int]()
        q.put(0)
        call = made(q, name)
        done = await call
        with pytest.raises(RuntimeError, match="already awaited"):
            await call
        if name == "get":
            await done.ack()

    run(main())


def test_a_call_can_be_driven_by_send() -> None:
    q = KeyedQueue[str]()
    call = q.aio.put("a", keys="k")
    with pytest.raises(TypeError, match="just-started"):
        call.send(1)
    with pytest.raises(StopIteration) as stopped:
        call.send(None)
    assert stopped.value.value == 1
    with pytest.raises(StopIteration) as stopped:
        q.aio.get().send(None)
    lease = stopped.value.value
    assert type(lease) is AsyncLease and lease.payload == "a" and lease.keys == {b"k"}
    with pytest.raises(StopIteration) as stopped:
        lease.ack().send(None)
    assert stopped.value.value is None


@both
def test_an_exception_thrown_into_an_unstarted_call_is_raised(name: str) -> None:
    q = KeyedQueue[int]()
    q.put(0)
    call = made(q, name)
    with pytest.raises(ZeroDivisionError, match="so"):
        call.throw(ZeroDivisionError("so"))
    with pytest.raises(RuntimeError, match="already awaited"):
        call.send(None)
    assert q.stats().puts == 1 and q.stats().leased == 0


def test_a_task_cancelled_before_it_started_takes_no_message() -> None:
    async def main() -> None:
        q = KeyedQueue[int]()
        q.put(0)
        task = asyncio.ensure_future(q.aio.get())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (q.qsize(), q.stats().leased) == (1, 0)
        lease = await asyncio.wait_for(q.aio.get(), 60)
        assert lease.attempt == 1
        await lease.ack()

    run(main())


def test_a_waiting_call_delegates_to_a_python_coroutine() -> None:
    async def main() -> None:
        q = KeyedQueue[int]()
        call: Any = q.aio.get()
        task = asyncio.create_task(call)
        assert "AsyncQueue.get" in repr(task)
        assert call.cr_await is None
        await asyncio.sleep(0)
        assert inspect.iscoroutine(call.cr_await)
        await q.aio.put(7)
        lease = await task
        assert lease.payload == 7
        assert call.cr_await is None
        await lease.ack()

    run(main())


def test_an_exception_thrown_into_a_waiting_call_reaches_it() -> None:
    async def main() -> None:
        q = KeyedQueue[int]()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(q.aio.get(), 0.001)
        with pytest.raises(Empty):
            await q.aio.get(timeout=0)

    run(main())


def test_a_waiting_call_can_be_closed() -> None:
    async def main() -> None:
        q = KeyedQueue[int]()
        call = q.aio.get()
        waits_for = call.send(None)
        assert waits_for is not None
        call.close()
        with pytest.raises(RuntimeError, match="already awaited"):
            call.send(None)
        await q.aio.put(1)
        lease = q.aio.get_nowait()
        assert lease.payload == 1
        await lease.ack()

    run(main())


def test_errors_of_a_put_are_raised_when_it_is_awaited() -> None:
    async def main() -> None:
        q = KeyedQueue[int]()
        call = q.aio.put(1, keys=1.5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"put\(\): keys"):
            await call

    run(main())


def test_a_subclass_s_overridden_methods_are_called() -> None:
    said = []

    class Loud(AsyncQueue[int]):
        async def put(self, payload: int, **options: Any) -> int:
            said.append(payload)
            return await super().put(payload, **options)

    async def main() -> None:
        loud = Loud(KeyedQueue())
        assert await loud.put(3, keys="k") == 1
        assert said == [3]
        lease = await loud.get()
        assert lease.payload == 3
        await lease.ack()

    run(main())


def test_a_waiting_call_in_a_reference_cycle_is_collected() -> None:
    class Held:
        call: Any

    async def main() -> None:
        q = KeyedQueue[Any](1)
        q.put(0)
        held = Held()
        held.call = q.aio.put(held)
        held.call.send(None)
        alive = weakref.ref(held)
        del held
        gc.collect()
        assert alive() is None

    run(main())


def test_many_dropped_calls_do_not_grow_memory() -> None:
    q = KeyedQueue[int]()
    for _ in range(3):
        calls = [q.aio.get() for _ in range(200)]
        for call in calls:
            call.close()
    assert len({id(call) for call in calls}) == 200


def test_a_running_call_cannot_be_entered_again() -> None:
    """The attempt does no harm: a waiting task continues."""

    async def main() -> None:
        q = KeyedQueue[int]()
        call = q.aio.get()
        refused: list[str] = []

        class Wait:
            def __await__(self) -> Any:
                for enter in (lambda: call.send(None), lambda: call.throw(KeyError), call.close):
                    try:
                        enter()
                    except ValueError as error:
                        refused.append(str(error))
                return (yield from asyncio.sleep(0).__await__())

        # The loop that it asks for a future is what comes back to it.
        loop = asyncio.get_running_loop()
        create = loop.create_future

        def reenter() -> Any:
            list(Wait().__await__())
            return create()

        loop.create_future = reenter  # type: ignore[method-assign]
        task = asyncio.create_task(call)
        await asyncio.sleep(0)
        loop.create_future = create  # type: ignore[method-assign]
        assert refused == ["coroutine already executing"] * 3
        await q.aio.put(7)
        lease = await asyncio.wait_for(task, 20)
        assert lease.payload == 7
        await lease.ack()

    run(main())


class Payload:
    """Something that can be seen to go."""


@pytest.mark.parametrize("end", ["awaited", "awaited later", "closed", "thrown into"])
def test_a_finished_call_keeps_no_payload(end: str) -> None:
    async def main() -> None:
        q = KeyedQueue[Payload](1)
        if end == "awaited later":
            q.put(Payload())
        payload = Payload()
        gone = weakref.ref(payload)
        call = q.aio.put(payload, keys="k")
        del payload
        if end == "closed":
            call.close()
        elif end == "thrown into":
            with pytest.raises(KeyError):
                call.throw(KeyError())
        else:
            task = asyncio.create_task(call)
            await asyncio.sleep(0)
            for _ in range(2 if end == "awaited later" else 1):
                lease = await q.aio.get()
                await asyncio.sleep(0)
                await lease.ack()
                await asyncio.sleep(0)
            await task
            del lease
        assert gone() is None

    run(main())


def test_a_finished_call_releases_its_queue() -> None:
    q = KeyedQueue[int]()
    gone = weakref.ref(q)
    call = q.aio.put(1)
    with pytest.raises(StopIteration):
        call.send(None)
    del q
    gc.collect()
    assert gone() is None


def test_an_unstarted_call_in_a_reference_cycle_is_collected() -> None:
    q = KeyedQueue[Any]()
    holder: dict[str, Any] = {"queue": q}
    holder["call"] = q.aio.put(holder)
    gone = weakref.ref(q)
    q.put(holder)
    del holder, q
    with pytest.warns(RuntimeWarning, match="never awaited"):
        gc.collect()
    assert gone() is None
