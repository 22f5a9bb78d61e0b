"""The peers' side of every row: what a program would use today instead.

Each function is as plain as the peer allows, with its methods looked up once, as ours are. The
check that every payload comes back costs both sides the same comparison or the same append.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from benchmarks.drive import Clock, faults, interleaved, streamed, together
from benchmarks.row import Sample


def queue_cycle(messages: int) -> Sample:
    """Measure queue.Queue: put, get, task_done, one message at a time in one thread."""
    waiting: queue.Queue[int] = queue.Queue()
    put, get, done = waiting.put, waiting.get, waiting.task_done
    lost = 0
    clock = Clock()
    for item in range(messages):
        put(item)
        if get() is not item:
            lost += 1
        done()
    return Sample.each(clock.seconds(), messages, lost=lost)


def queue_batches(messages: int, batch: int) -> Sample:
    """Measure queue.Queue: `batch` puts, as many gets, as many task_done. It has no batch calls."""
    waiting: queue.Queue[int] = queue.Queue()
    put, get, done = waiting.put, waiting.get, waiting.task_done
    lost = 0
    clock = Clock()
    for start in range(0, messages, batch):
        items = range(start, start + batch)
        for item in items:
            put(item)
        for item, got in zip(items, [get() for _ in items], strict=True):
            if got != item:
                lost += 1
        for _ in items:
            done()
    return Sample.each(clock.seconds(), messages, lost=lost)


def simple_queue_cycle(messages: int) -> Sample:
    """Measure queue.SimpleQueue: put, get. It has no task_done."""
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    put, get = waiting.put, waiting.get
    lost = 0
    clock = Clock()
    for item in range(messages):
        put(item)
        if get() is not item:
            lost += 1
    return Sample.each(clock.seconds(), messages, lost=lost)


def queue_threads(messages: int, capacity: int, lanes: int) -> Sample:
    """Measure queue.Queue with two producers and two consumers.

    It knows no keys, so its misorder is not a fault.
    """
    waiting: queue.Queue[int] = queue.Queue(capacity)
    log: list[int] = []

    def producer(mine: range) -> Callable[[], None]:
        def loop() -> None:
            put = waiting.put
            for number in mine:
                put(number)

        return loop

    def consume() -> None:
        get, done, note = waiting.get, waiting.task_done, log.append
        for _ in range(messages // 2):
            note(get())
            done()

    seconds = together([*map(producer, interleaved(messages, 2)), consume, consume])
    lost, misordered = faults(log, messages, lambda number: number % lanes)
    return Sample.each(seconds, messages, lost=lost, misordered=misordered)


def queue_hand_off(rounds: int) -> Sample:
    """Measure queue.Queue: a message to another thread and back, two hand-offs a round."""
    there: queue.Queue[int] = queue.Queue()
    back: queue.Queue[int] = queue.Queue()

    def answer() -> None:
        for _ in range(rounds):
            back.put(there.get())
            there.task_done()

    other = threading.Thread(target=answer, daemon=True)
    other.start()
    lost = 0
    clock = Clock()
    for item in range(rounds):
        there.put(item)
        if back.get() is not item:
            lost += 1
        back.task_done()
    seconds = clock.seconds()
    other.join()
    return Sample.each(seconds, rounds * 2, lost=lost)


def pool_waves(waves: int, wave: int, lanes: int) -> Sample:
    """Measure ThreadPoolExecutor with two workers: submit a wave, then take each result."""
    log: list[int] = []

    def handle(number: int) -> int:
        log.append(number)
        return number

    lost = 0
    with ThreadPoolExecutor(2) as pool:
        pool.submit(int).result()
        clock = Clock()
        for start in range(0, waves * wave, wave):
            numbers = range(start, start + wave)
            futures: list[Future[int]] = [pool.submit(handle, number) for number in numbers]
            for number, future in zip(numbers, futures, strict=True):
                if future.result() != number:
                    lost += 1
        seconds = clock.seconds()
    gone, misordered = faults(log, waves * wave, lambda number: number % lanes)
    return Sample.each(seconds, waves * wave, lost=lost + gone, misordered=misordered)


def pool_round_trips(messages: int) -> Sample:
    """Measure ThreadPoolExecutor with two workers: submit one, wait for its result."""

    def handle(number: int) -> int:
        return number

    lost = 0
    with ThreadPoolExecutor(2) as pool:
        pool.submit(int).result()
        submit = pool.submit
        clock = Clock()
        for number in range(messages):
            if submit(handle, number).result() is not number:
                lost += 1
        seconds = clock.seconds()
    return Sample.each(seconds, messages, lost=lost)


def asyncio_cycle(messages: int) -> Sample:
    """Measure asyncio.Queue: put, get, task_done in one task."""

    async def cycle() -> Sample:
        waiting: asyncio.Queue[int] = asyncio.Queue()
        put, get, done = waiting.put, waiting.get, waiting.task_done
        lost = 0
        clock = Clock()
        for item in range(messages):
            await put(item)
            if await get() is not item:
                lost += 1
            done()
        return Sample.each(clock.seconds(), messages, lost=lost)

    return asyncio.run(cycle())


def culsans_stream(count: int) -> Sample:
    """Measure culsans: one queue with a face for threads and one for asyncio."""
    import culsans

    async def receive_all() -> Sample:
        waiting: culsans.Queue[int] = culsans.Queue()
        get, done = waiting.async_q.get, waiting.async_q.task_done

        async def receive() -> int:
            number: int = await get()
            done()
            return number

        sample = await streamed(count, waiting.sync_q.put, receive)
        waiting.shutdown()
        return sample

    return asyncio.run(receive_all())
