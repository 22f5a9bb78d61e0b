"""A worker on an event loop: two tasks that share a client, each with lines of its own."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any

import interlock
from interlock import EngineUnavailable, LeaseLost
from interlock.client.faces.aio_lease import AsyncRemoteLease
from tests.engine.faults.bank import Bank, Stale, operation
from tests.engine.faults.job import Job
from tests.engine.faults.lines import Log, begun

TASKS = 2


def looped(job: Job, who: str, life: int) -> None:
    """Until the queue is sealed and drained."""
    asyncio.run(_tasks(job, who, life))


async def _tasks(job: Job, who: str, life: int) -> None:
    queue = job.queue().aio
    await asyncio.gather(
        *(_Task(job, f"{who}-task-{number}", life, queue).run() for number in range(TASKS))
    )


class _Task:
    def __init__(self, job: Job, who: str, life: int, queue: Any) -> None:
        self.job = job
        self.log = Log(job.folder, who)
        self.chance = random.Random(f"{job.seed} {who} {life}")
        self.queue = queue
        self.bank = Bank(job.bank)
        self.life = life

    async def run(self) -> None:
        self.log.say("life", number=self.life)
        number = 0
        with suppress(interlock.ShutDown):
            while True:
                number += 1
                self.log.say("get", number=number, limit=1)
                try:
                    lease = await self.queue.get(timeout=1)
                except interlock.Empty:
                    self.log.say("got", number=number, count=0)
                    continue
                except EngineUnavailable as error:
                    self.log.say("unknown", number=number, error=str(error))
                    continue
                self.log.say("got", number=number, count=1)
                self.log.say("begin", get=number, **begun(lease))
                await self.handle(lease)
        self.log.say("done")

    async def handle(self, lease: AsyncRemoteLease[dict[str, Any]]) -> None:
        # How long the handler takes.
        await asyncio.sleep(self.chance.expovariate(200))
        try:
            # It blocks the loop, as a careless handler does: nothing is renewed meanwhile.
            done = self.bank.apply(operation(lease.payload), lease.id, lease.token, lambda: None)
        except Stale:
            done = "stale"
        self.log.say("end", id=lease.id, token=lease.token, done=done)
        for _ in range(3):
            self.log.say("settling", id=lease.id, token=lease.token, how="ack")
            try:
                await lease.ack()
            except LeaseLost:
                answer = "lost"
            except EngineUnavailable:
                self.log.say("unsettled", id=lease.id, token=lease.token)
                continue
            else:
                answer = "acked"
            self.log.say("settled", id=lease.id, token=lease.token, answer=answer)
            return
