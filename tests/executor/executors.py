"""Helpers for the tests of the executor, and functions that pools of processes can call."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Any, ParamSpec, TypeVar

from interlock import KeyedExecutor, current_lease

P = ParamSpec("P")
R = TypeVar("R")

LONG = 30.0
"""Seconds that a wait which must succeed may take; far above what any machine needs."""


class Gate:
    """A call that says when it runs and ends when it is let."""

    def __init__(self, result: Any = None) -> None:
        self.running = threading.Event()
        self.open = threading.Event()
        self.result = result

    def __call__(self, *_: Any) -> Any:
        self.running.set()
        assert self.open.wait(LONG)
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


@contextlib.contextmanager
def busy(executor: KeyedExecutor, *keys: str, calls: int = 1) -> Iterator[list[Gate]]:
    """Within it, this number of calls runs (on these keys, if any are named); they end with it."""
    gates = [Gate() for _ in range(calls)]
    calls_made = [executor.submit_keyed(keys, gate) for gate in gates]
    for gate in gates:
        assert gate.running.wait(LONG)
    try:
        yield gates
    finally:
        for gate in gates:
            gate.open.set()
    for call in calls_made:
        call.result(LONG)


class AtOnce(futures.Executor):
    """Runs each call where it is submitted."""

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> futures.Future[R]:
        future: futures.Future[R] = futures.Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


class ByHand(futures.Executor):
    """Runs nothing: the test ends each call."""

    def __init__(self) -> None:
        self.calls: list[futures.Future[Any]] = []
        self.submitted = threading.Semaphore(0)

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> futures.Future[R]:
        future: futures.Future[R] = futures.Future()
        self.calls.append(future)
        self.submitted.release()
        return future


def processes(workers: int) -> futures.ProcessPoolExecutor:
    """A pool whose workers are not forked: the test's own process has threads."""
    return futures.ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))


def script(text: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a script to its end in an interpreter of its own."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
        **options,
    )


def started(text: str, arguments: Sequence[str] = (), **options: Any) -> subprocess.Popen[str]:
    """Starts a script; the test speaks with it."""
    return subprocess.Popen(
        [sys.executable, "-u", "-W", "error", "-c", textwrap.dedent(text), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def threads_of(executor: KeyedExecutor) -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith(executor.queue.name + "_")]


# -- Calls of pools -------------------------------------------------------------------------------


def stamped(tag: Any) -> tuple[Any, int, float, float]:
    """(tag, process, begin, end) of a call that takes a moment of work."""
    begin = time.monotonic()
    sum(range(20_000))
    return tag, os.getpid(), begin, time.monotonic()


def die(*_: Any) -> None:
    os._exit(1)


def my_lease(*_: Any) -> tuple[Any, ...]:
    lease = current_lease()
    return lease.queue, lease.id, lease.keys, lease.shared, lease.attempt, lease.token


def fail(text: str) -> None:
    raise ValueError(text)


def fails_on_five(number: int) -> int:
    if number == 5:
        raise ValueError("five")
    return number


def fails_at_first(attempts: str) -> int:
    """Fails until its file has two lines."""
    with open(attempts, "a+") as file:
        file.write("attempt\n")
        file.seek(0)
        count = len(file.readlines())
    if count < 3:
        raise ValueError(f"attempt {count}")
    return count
