"""The common parts of all ways of running a trace.

Each way gets the messages in the same manner: its workers are started, then one thread puts the
whole trace as fast as it can while they work. The clock runs from the first put to the end of the
last handler.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Literal
from zlib import crc32

from interlock.replay.trace import Message
from interlock.replay.watch import Watch
from interlock.runtime import interrupt
from interlock.runtime.concurrency import Limits

Pool = Literal["thread", "process", "asyncio"]


@dataclass(frozen=True, slots=True)
class Shape:
    """The threads, lanes and processes that a way uses on a given trace."""

    threads: int
    """Threads that run or wait for handlers."""

    lanes: int
    """Lanes: two messages on one lane never run concurrently."""

    processes: int = 0
    """Processes that run handlers for those threads."""


@dataclass(frozen=True, slots=True)
class Job:
    """A run to make."""

    messages: Sequence[Message]
    workers: int
    watch: Watch
    pool: Pool = "thread"
    executor: Executor | None = None
    """The process pool's executor, with its processes started, when `pool` is "process"."""
    limits: Limits | None = None
    """Limits of the queue; None: it has none, and the names of messages do not count."""

    grouped: bool = False
    """Messages have their groups; otherwise none has one."""

    def group(self, index: int) -> str | None:
        """Return the group of a message."""
        return self.messages[index].group if self.grouped else None

    def names(self, index: int) -> tuple[str, ...] | None:
        """Return the limit names of a message."""
        return None if self.limits is None else self.messages[index].limit

    def handle(self, index: int, worker: int) -> None:
        """Handle a message while this thread waits: here, or in a process of the pool."""
        if self.executor is None:
            self.watch.handle(index, worker)
        else:
            self.watch.handle_in_pool(index, worker, self.executor)


@dataclass(frozen=True, slots=True)
class Way:
    """One way of running a trace."""

    name: str
    """Name in `--way` and in the output."""

    title: str
    """In words."""

    pools: tuple[Pool, ...]
    """Pools that its handlers can run on; the first is the default."""

    run: Callable[[Job], None]
    """Handle every message of the job once; returns when the last has been handled."""

    shape: Callable[[Sequence[Message], int, Pool], Shape]
    """Return the threads, lanes and processes for these messages with this many workers."""


def run_threads(
    loops: Iterable[Callable[[], None]], feed: Callable[[], None], stop: Callable[[], None]
) -> None:
    """Run each loop on a thread of its own, feed them, and wait until all have returned.

    Any exception on either side, Ctrl-C included, calls `stop`, which must make the loops return,
    and is raised here.
    """
    raised: list[BaseException] = []

    def guarded(loop: Callable[[], None]) -> None:
        try:
            loop()
        except BaseException as error:
            raised.append(error)
            stop()

    # Daemons: a handler that never returns must not delay an exit by Ctrl-C.
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
                # A Ctrl-C that comes just before a wait is only noticed when that wait ends.
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
    """Return the shape of the ways that handle each key separately."""
    keys = {key for message in messages for key in (*message.keys, *message.shared)}
    if pool == "asyncio":
        return Shape(1, len(keys))
    return Shape(workers, len(keys), workers if pool == "process" else 0)


def with_processes(threads: int, lanes: int, workers: int, pool: Pool) -> Shape:
    """Return the shape of a way with a fixed number of lanes."""
    return Shape(threads, lanes, workers if pool == "process" else 0)
