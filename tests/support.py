"""Helpers of the queue's tests: calls that run beside the test, and how they are met."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, TypeVar

from interlock import KeyedQueue

T = TypeVar("T")

PATIENCE = 20.0
"""Real seconds until what should have happened counts as lost."""


class Running(Generic[T]):
    """A call on a thread of its own."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._outcome: Callable[[], T] | None = None
        # A daemon, so that a call which never wakes fails the test and not the interpreter's exit.
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def result(self) -> T:
        """Returns or raises what the call did; AssertionError if it is stuck."""
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive(), "a call that should have ended is still blocked"
        assert self._outcome is not None
        return self._outcome()

    def _run(self) -> None:
        try:
            value = self._call()
        except BaseException as error:
            raised = error

            def throw() -> T:
                raise raised

            self._outcome = throw
        else:
            self._outcome = lambda: value


def blocked(queue: KeyedQueue[Any], call: Callable[[], T], *, beside: int = 0) -> Running[T]:
    """A call that runs on a thread, and sleeps in the queue when this returns.

    ``beside``: how many other calls sleep there already.
    """
    running = Running(call)
    until(lambda: queue._parked() > beside or not running.thread.is_alive())
    assert running.thread.is_alive(), f"it did not block: {running.result()!r}"
    return running


def until(holds: Callable[[], object]) -> None:
    """Lets others run until something holds, however long that takes them."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "what was waited for did not happen"
        time.sleep(0.001)


def collect() -> None:
    """Has everything that is garbage collected, and what that made garbage."""
    for _ in range(3):
        gc.collect()


def python(program: str, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Runs a program in an interpreter of its own, with the package that is tested."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=environment(),
    )


def environment() -> dict[str, str]:
    import interlock

    package = str(Path(interlock.__file__).parent.parent)
    paths = [package, str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def put_together(queue: Any, face: str, count: int) -> list[int]:
    """Return the ids of 0, 1, ..., put into an engine's queue at the same time: by as many
    ``threads``, or by as many ``tasks`` of a loop."""
    if face == "threads":
        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(queue.put, range(count)))

    async def main() -> list[int]:
        found: list[int] = await asyncio.gather(*(queue.aio.put(n) for n in range(count)))
        return found

    return asyncio.run(main())
