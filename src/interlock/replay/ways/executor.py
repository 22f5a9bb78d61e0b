"""`KeyedExecutor` with N threads, or with N processes of a pool."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from itertools import count
from threading import get_ident
from typing import TypeVar

from interlock.executor import KeyedExecutor
from interlock.replay.trace import Message
from interlock.replay.watch import timed
from interlock.replay.ways.base import Job, Way, one_lane_a_key
from interlock.runtime import interrupt

T = TypeVar("T")


def run(job: Job) -> None:
    """Submit every message with its keys."""
    if job.executor is not None:
        _run_in_pool(job)
    else:
        _run_on_threads(job)


def _run_on_threads(job: Job) -> None:
    numbers: dict[int, int] = {}
    counter = count()

    def handle(index: int, message: Message) -> None:
        thread = get_ident()
        worker = numbers.get(thread)
        if worker is None:
            worker = numbers[thread] = next(counter)
        job.watch.handle(index, worker)

    _submit_all(job, KeyedExecutor(job.workers), handle)


def _run_in_pool(job: Job) -> None:
    handle = partial(timed, job.watch.function)
    executor = KeyedExecutor(job.workers, pool=job.executor)
    job.watch.take_in(_submit_all(job, executor, handle))


def _submit_all(job: Job, executor: KeyedExecutor, handle: Callable[[int, Message], T]) -> list[T]:
    futures: list[Future[T]] = []
    try:
        with interrupt.noticed() as check:
            for index, message in enumerate(job.messages):
                job.watch.put(index)
                if message.shared:
                    view = executor.keyed(*message.keys, shared=message.shared)
                    futures.append(view.submit(handle, index, message))
                else:
                    futures.append(executor.submit_keyed(message.keys, handle, index, message))
                if job.executor is not None:
                    futures[-1].add_done_callback(job.watch.came_back)
            executor.shutdown(wait=False)
            return [_result(future, check) for future in futures]
    except BaseException:
        executor.shutdown(wait=False, cancel_futures=True)
        raise


def _result(future: Future[T], check: Callable[[], None]) -> T:
    # Bounded for the sake of Ctrl-C, as in `run_threads`.
    while not future.done():
        wait([future], timeout=0.2)
        check()
    return future.result()


WAY = Way("executor", "KeyedExecutor", ("thread", "process"), run, one_lane_a_key)
