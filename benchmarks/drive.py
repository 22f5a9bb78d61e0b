"""Tools of both sides of a row: the clock, the threads, the bursts, and the count of faults."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

from benchmarks.row import Sample


class Clock:
    """Seconds since it was made."""

    __slots__ = ("_start",)

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def seconds(self) -> float:
        return time.perf_counter() - self._start


@contextmanager
def pinned() -> Iterator[None]:
    """Keep this thread, and those it starts inside, on one core, as far as the system can.

    On one core a hand-off costs its steps, not the distance between two cores of the machine.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    # The last: interrupts tend to be served by the first.
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def on_one_core(side: Callable[[], Sample]) -> Callable[[], Sample]:
    """Return that side, pinned."""

    def run() -> Sample:
        with pinned():
            return side()

    return run


def faults(log: Sequence[int], expected: int, key_of: Callable[[int], object]) -> tuple[int, int]:
    """Count the numbers 0..expected-1 that are not once in `log`, and those that are out of order.

    The first count is of those that are missing or there more than once, the second of those that
    stand after a larger one of their key.
    """
    seen = [0] * expected
    last: dict[object, int] = {}
    misordered = 0
    for number in log:
        seen[number] += 1
        key = key_of(number)
        if last.get(key, -1) > number:
            misordered += 1
        else:
            last[key] = number
    return sum(count != 1 for count in seen), misordered


def together(loops: Sequence[Callable[[], None]]) -> float:
    """Run each loop on a thread of its own, and return how many seconds they took.

    The time is from when all threads are there to the end of the last one.

    What a loop raises is raised here.
    """
    ready = threading.Barrier(len(loops) + 1)
    raised: list[BaseException] = []

    def run(loop: Callable[[], None]) -> None:
        ready.wait()
        try:
            loop()
        except BaseException as error:
            raised.append(error)

    running = [threading.Thread(target=run, args=(loop,), daemon=True) for loop in loops]
    for thread in running:
        thread.start()
    ready.wait()
    clock = Clock()
    for thread in running:
        thread.join()
    seconds = clock.seconds()
    if raised:
        raise raised[0]
    return seconds


def interleaved(messages: int, producers: int) -> list[range]:
    """Return the numbers 0..messages-1, dealt to producers.

    With a number of lanes that `producers` divides, number % lanes is a key that only one producer
    puts, so that its order is defined.
    """
    return [range(first, messages, producers) for first in range(producers)]


async def streamed(
    count: int,
    put: Callable[[int], object],
    receive: Callable[[], Awaitable[int]],
) -> Sample:
    """Put `count` numbers from a thread, and receive them on this event loop meanwhile.

    The thread neither waits for the loop nor yields; the interpreter switches between the two. A
    `time.sleep(0)` takes about as long as a queue takes for a hundred messages, and would be most
    of the figure.

    `receive` settles what it answers.
    """

    def produce() -> None:
        for number in range(count):
            put(number)

    producer = threading.Thread(target=produce, daemon=True)
    lost = 0
    clock = Clock()
    producer.start()
    for number in range(count):
        if await receive() != number:
            lost += 1
    seconds = clock.seconds()
    producer.join()
    return Sample.each(seconds, count, lost=lost)
