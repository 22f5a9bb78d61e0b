"""The asyncio face: within one loop, and from a thread into a loop."""

from __future__ import annotations

import asyncio
from itertools import cycle

from benchmarks import peers
from benchmarks.drive import Clock, on_one_core, streamed
from benchmarks.row import Row, Sample, alternating
from interlock import KeyedQueue

LANES = 1_000
KEYS = [f"account:{number}" for number in range(LANES)]
OURS = 200_000
PEER = 150_000
STREAM = 100_000


def one_loop() -> Sample:
    """Measure put, get and ack in one task, one of 1,000 keys each."""

    async def run() -> Sample:
        queue: KeyedQueue[int] = KeyedQueue()
        put, get = queue.aio.put, queue.aio.get
        lost = 0
        clock = Clock()
        for item, key in zip(range(OURS), cycle(KEYS), strict=False):
            await put(item, keys=key)
            lease = await get()
            if lease.payload is not item:
                lost += 1
            await lease.ack()
        return Sample.each(clock.seconds(), OURS, lost=lost)

    return asyncio.run(run())


def into_a_loop() -> Sample:
    """Measure puts from a thread, all with one key; the loop acks each before it takes the next."""

    async def run() -> Sample:
        queue: KeyedQueue[int] = KeyedQueue()
        get = queue.aio.get

        async def receive() -> int:
            lease = await get()
            await lease.ack()
            number: int = lease.payload
            return number

        def put(number: int) -> None:
            queue.put(number, keys="room")

        return await streamed(STREAM, put, receive)

    return asyncio.run(run())


ROWS = (
    Row(
        name="asyncio/one-loop",
        title="asyncio, one loop, 1 key",
        peer="asyncio.Queue (no keys)",
        bar=0.6,
        prototype=0.47,
        pair=alternating(one_loop, lambda: peers.asyncio_cycle(PEER)),
    ),
    Row(
        name="asyncio/thread-to-loop",
        title="thread to loop, the thread never yields, pinned",
        peer="culsans",
        bar=0.3,
        prototype=0.25,
        pair=alternating(
            on_one_core(into_a_loop), on_one_core(lambda: peers.culsans_stream(STREAM))
        ),
    ),
)
