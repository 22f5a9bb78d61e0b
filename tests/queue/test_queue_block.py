"""``block`` and ``immediate`` are judged by their truth, as in ``queue.Queue``."""

import asyncio
import queue as standard
from collections.abc import Callable
from typing import Any

import pytest

from interlock import Empty, Full, KeyedExecutor, KeyedQueue, ShutDown, connect
from tests.queue.hostile import Hostile, Untrue
from tests.support import blocked

FALSE: tuple[Any, ...] = (0, False, None, "", (), 0.0, [])
TRUE: tuple[Any, ...] = (1, True, "no", [0], 0.1, object())

GETS: dict[str, Callable[..., Any]] = {
    "get": lambda q, *given, **named: q.get(*given, **named).ack(),
    "get_many": lambda q, *given, **named: q.ack_many(q.get_many(3, *given, **named)),
}
PUTS: dict[str, Callable[..., Any]] = {
    "put": lambda q, *given, **named: q.put("m", *given, **named),
    "put, the slow way": lambda q, *given, **named: q._put("m", *given, **named),
    "put_many": lambda q, *given, **named: q.put_many(["m"], *given, **named),
}


@pytest.mark.parametrize("name", GETS)
def test_get_treats_any_false_value_of_block_as_non_blocking(name: str) -> None:
    get, q = GETS[name], KeyedQueue[str]()
    for no in FALSE:
        with pytest.raises(Empty):
            get(q, no)
        with pytest.raises(Empty):
            get(q, block=no, timeout=5)
    for yes in TRUE:
        with pytest.raises(Empty):
            get(q, yes, 0.001)
    with pytest.raises(Hostile):
        get(q, Untrue())
    waiting = blocked(q, lambda: get(q, 1))
    q.put("m")
    waiting.result()


@pytest.mark.parametrize("name", PUTS)
def test_put_treats_any_false_value_of_block_as_non_blocking(name: str) -> None:
    put, q = PUTS[name], KeyedQueue[str](maxsize=1)
    for way in ({}, {"keys": "a"}, {"keys": "a", "quiet": True}):
        with pytest.raises(Hostile):
            put(q, Untrue(), **way)
        assert q.unfinished_tasks == 0
    q.put("full")
    for no in FALSE:
        with pytest.raises(Full):
            put(q, no)
        with pytest.raises(Full):
            put(q, block=no, timeout=5)
    for yes in TRUE:
        with pytest.raises(Full):
            put(q, yes, 0.001)
    waiting = blocked(q, lambda: put(q, 1))
    q.get().ack()
    waiting.result()


def test_an_engine_s_queue_treats_any_false_value_of_block_as_non_blocking() -> None:
    with connect("memory://") as client:
        q = client.queue("block", str, maxsize=1)
        for no in FALSE:
            with pytest.raises(Empty):
                q.get(no)
        with pytest.raises(Empty):
            q.get(1, 0.001)  # type: ignore[arg-type]
        q.put("m", 1)  # type: ignore[arg-type]
        for no in FALSE:
            with pytest.raises(Full):
                q.put("n", no)
            with pytest.raises(Full):
                q.put("n", no, -1)


def test_a_timeout_is_ignored_without_block_as_in_the_standard_queue() -> None:
    theirs: standard.Queue[str] = standard.Queue()
    q = KeyedQueue[str]()
    theirs.put("m", False, -1)
    q.put("m", False, -1)
    assert theirs.get(False, -1) == "m"
    q.get(False, -1).ack()


def test_shutdown_treats_any_true_value_of_immediate_as_immediate() -> None:
    for no in FALSE:
        q = KeyedQueue[str]()
        q.put("m")
        assert q.shutdown(no) == [] and q.unfinished_tasks == 1
    for yes in TRUE:
        q = KeyedQueue[str]()
        q.put("m")
        assert [message.payload for message in q.aio.shutdown(yes)] == ["m"]
    q = KeyedQueue[str]()
    with pytest.raises(Hostile):
        q.shutdown(Untrue())  # type: ignore[arg-type]
    assert not q.is_shutdown
    with KeyedExecutor(1) as executor:
        executor.queue.pause()
        future = executor.submit(int)
        executor.shutdown(wait=0, cancel_futures=1)  # type: ignore[arg-type]
        assert future.cancelled()


def test_a_queue_says_whether_it_is_shut_down_and_what_is_not_done() -> None:
    q = KeyedQueue[str]()
    for face in (q, q.aio):
        assert (face.is_shutdown, face.unfinished_tasks) == (False, 0)
    q.put_many(["m", "n"], keys="a")
    q.put("later", delay=60)
    lease = q.get()
    for face in (q, q.aio):
        assert (face.is_shutdown, face.unfinished_tasks) == (False, 3)
    lease.ack()
    q.shutdown()
    for face in (q, q.aio):
        assert (face.is_shutdown, face.unfinished_tasks) == (True, 2)
    with pytest.raises(ShutDown):
        q.put("late")
    q.shutdown(immediate=True)
    assert (q.is_shutdown, q.unfinished_tasks, q.aio.unfinished_tasks) == (True, 0, 0)
    for name in ("is_shutdown", "unfinished_tasks"):
        with pytest.raises(AttributeError):
            setattr(q, name, 7)


def test_an_argument_whose_truth_value_raises_is_refused_in_asyncio_too() -> None:
    async def main() -> None:
        q = KeyedQueue[str]()
        with pytest.raises(TypeError, match="barrier is Untrue; allowed: bool"):
            await q.aio.put("m", barrier=Untrue())  # type: ignore[arg-type]
        assert q.unfinished_tasks == 0

    asyncio.run(main())
