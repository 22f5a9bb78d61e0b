"""`KeyedQueue` and N threads, or N coroutines on its asyncio face."""

from __future__ import annotations

import asyncio
from functools import partial

from interlock.errors import ShutDown
from interlock.queue import KeyedQueue
from interlock.replay.ways.base import Job, Way, one_lane_a_key, run_threads


def run(job: Job) -> None:
    """Handle every message that a worker leases."""
    if job.pool == "asyncio":
        asyncio.run(_run_on_loop(job))
        return
    queue = _queue(job)

    def work(worker: int) -> None:
        get, handle = queue.get, job.handle
        while True:
            try:
                lease = get()
            except ShutDown:
                return
            # Settled in any case: a message that breaks a run must not be redelivered to the next
            # thread.
            try:
                handle(lease.payload, worker)
            finally:
                lease.ack()

    def feed() -> None:
        note, put = job.watch.put, queue.put
        for index, message in enumerate(job.messages):
            note(index)
            put(
                index,
                keys=message.keys,
                shared=message.shared,
                limit=job.names(index),
                group=job.group(index),
            )
        queue.shutdown()

    def stop() -> None:
        queue.shutdown(immediate=True)

    run_threads([partial(work, worker) for worker in range(job.workers)], feed, stop)


async def _run_on_loop(job: Job) -> None:
    queue = _queue(job)

    async def work(worker: int) -> None:
        while True:
            try:
                lease = await queue.aio.get()
            except ShutDown:
                return
            try:
                await job.watch.handle_on_loop(lease.payload, worker)
            finally:
                await lease.ack()

    async with asyncio.TaskGroup() as group:
        for worker in range(job.workers):
            group.create_task(work(worker))
        for index, message in enumerate(job.messages):
            job.watch.put(index)
            await queue.aio.put(
                index,
                keys=message.keys,
                shared=message.shared,
                limit=job.names(index),
                group=job.group(index),
            )
            if index % FED_AT_ONCE == FED_AT_ONCE - 1:
                await asyncio.sleep(0)
        queue.shutdown()


def _queue(job: Job) -> KeyedQueue[int]:
    # A whole trace is put in one go: deep queues and waiting messages are expected here.
    return KeyedQueue(warn_depth=0, warn_lane_depth=0, slow_wait=0, limits=job.limits or {})


WAY = Way("queue", "KeyedQueue", ("thread", "process", "asyncio"), run, one_lane_a_key)

# A loop has one thread: handlers run after every batch of this many puts.
FED_AT_ONCE = 64
