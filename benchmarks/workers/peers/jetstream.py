"""NATS JetStream by nats-py: a durable pull consumer of a work queue in memory, 16 a fetch, each
acknowledged. It knows no keys, and no tasks."""

import asyncio

import nats
from nats.errors import TimeoutError as NothingThere
from nats.js.api import RetentionPolicy, StorageType

from benchmarks.workers.handled import BROKER, note

STREAM, SUBJECT = "load", "load.numbers"


async def enqueue(numbers: range) -> None:
    connection = await nats.connect(BROKER)
    stream = connection.jetstream()
    await stream.add_stream(
        name=STREAM,
        subjects=[SUBJECT],
        retention=RetentionPolicy.WORK_QUEUE,
        storage=StorageType.MEMORY,
    )
    for number in numbers:
        await stream.publish(SUBJECT, b"%d" % number)
    await connection.close()


async def work() -> None:
    connection = await nats.connect(BROKER)
    consumer = await connection.jetstream().pull_subscribe(SUBJECT, durable="workers")
    while True:
        try:
            messages = await consumer.fetch(16, timeout=1)
        except NothingThere:
            continue
        for message in messages:
            note(int(message.data))
            await message.ack()


WORKER = ("python", "-m", __name__)

if __name__ == "__main__":
    asyncio.run(work())
