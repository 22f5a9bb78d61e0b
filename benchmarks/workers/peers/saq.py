"""saq: one process, up to 10 tasks at a time, which is its default."""

from typing import Any

from saq import Queue

from benchmarks.workers.handled import BROKER, note

queue = Queue.from_url(BROKER)


async def noop(context: Any, *, number: int) -> None:
    note(number)


async def enqueue(numbers: range) -> None:
    await queue.connect()
    for number in numbers:
        await queue.enqueue("noop", number=number, ttl=-1)
    await queue.disconnect()


settings = {"queue": queue, "functions": [noop], "concurrency": 10}
WORKER = ("saq", f"{__package__}.saq.settings", "--quiet")
