"""`KeyedTaskGroup` with at most N concurrent coroutines, all on one thread."""

from __future__ import annotations

import asyncio
import heapq

from interlock.replay.ways.base import Job, Way, one_lane_a_key
from interlock.replay.ways.queue import FED_AT_ONCE
from interlock.taskgroup import KeyedTaskGroup


def run(job: Job) -> None:
    """Create a task with its keys for every message."""
    asyncio.run(_run(job))


async def _run(job: Job) -> None:
    # Tasks have no workers; the lowest number that no running task has serves as one.
    free = list(range(job.workers))

    async def handle(index: int) -> None:
        worker = heapq.heappop(free)
        try:
            await job.watch.handle_on_loop(index, worker)
        finally:
            heapq.heappush(free, worker)

    async with KeyedTaskGroup(max_tasks=job.workers) as group:
        for index, message in enumerate(job.messages):
            job.watch.put(index)
            group.create_task(handle(index), keys=message.keys, shared=message.shared)
            if index % FED_AT_ONCE == FED_AT_ONCE - 1:
                await asyncio.sleep(0)


WAY = Way("taskgroup", "KeyedTaskGroup", ("asyncio",), run, one_lane_a_key)
