"""The common parts of all ways of running a trace.

Each way gets the messages in the same manner: its workers are started, then one thread puts the
whole trace as fast as it can while they work. The clock runs from the first put to the end of
the last handler.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Literal
from zlib import crc32

from interlock import interrupt
from interlock.replay.trace import Message
from interlock.replay.watch import Watch

Pool = Literal["thread", "process", "asyncio"]


@dataclass(frozen=True, slots=True)
class Shape:
    """The threads, lanes and processes that a way puts to use on a given trace."""

    threads: int
    """Threads that run or wait for handlers."""

    lanes: int
    """Rows that messages can stand in: two messages on one lane never run together."""

    processes: int = 0
    """Processes that run handlers for those threads."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run to be made."""

    messages: Sequence[Message]
    workers: int
    watch: Watch
    pool: Pool = "thread"
    executor: Executor | None = None
    """The process pool's executor, its processes already up, when `pool` is "process"."""

    def handle(self, index: int, worker: int) -> None:
        """Handle a message while this thread waits: on it, or in a process of the pool."""
        if self.executor is None:
            self.watch.handle(index, worker)
        else:
            self.watch.handle_in_pool(index, worker, self.executor)


@dataclass(frozen=True, slots=True)
class Way:
    """One way of running a trace."""

    name: str
    """As `--way` and the output name it."""

    title: str
    """In words."""

    pools: tuple[Pool, ...]
    """The pools that its handlers can run on; the first is the usual one."""

    run: Callable[[Job], None]
    """Handle every message of the job once; returns when the last has been handled."""

    shape: Callable[[Sequence[Message], int, Pool], Shape]
    """Tell how much it puts to use on these messages with so many workers."""


def run_threads(
    loops: Iterable[Callable[[], None]], feed: Callable[[], None], stop: Callable[[], None]
) -> None:
    """Run each loop on a thread of its own, feed them, wait until all have returned.

    Whatever is raised on any side, Ctrl-C included, calls `stop`, which has to make the loops
    return, and is raised here.
    """
    raised: list[BaseException] = []

    def guarded(loop: Callable[[], None]) -> None:
        try:
            loop()
        except BaseException as error:
            raised.append(error)
            stop()

    # Daemons: a handler that never returns must not hold up an exit by Ctrl-C.
    threads = [
        threading.Thread(target=partial(guarded, loop), name=f"replay-{number}", daemon=True)
        for number, loop in enumerate(loops)
    ]
    try:
        with interrupt.noticed() as check:
            for thread in threads:
                thread.start()
            feed()
            for thread in threads:
                # A Ctrl-C that comes in the moment before a wait is seen only when that wait ends.
                while thread.is_alive():
                    thread.join(0.2)
                    check()
    except BaseException:
        stop()
        raise
    if raised:
        raise raised[0]


def lane_of(key: str, lanes: int) -> int:
    """Return the lane a key is hashed to; the same in every process and every run."""
    return crc32(key.encode()) % lanes


def one_lane_a_key(messages: Sequence[Message], workers: int, pool: Pool) -> Shape:
    """Return the shape of the ways that know each key by itself."""
    keys = {key for message in messages for key in (*message.keys, *message.shared)}
    if pool == "asyncio":
        return Shape(1, len(keys))
    return Shape(workers, len(keys), workers if pool == "process" else 0)


def with_processes(threads: int, lanes: int, workers: int, pool: Pool) -> Shape:
    """Return the shape of a way with a fixed number of lanes."""
    return Shape(threads, lanes, workers if pool == "process" else 0)
