"""taskiq: a list of Redis, one process, up to 100 tasks at a time."""

from taskiq_redis import ListQueueBroker

from benchmarks.workers.handled import BROKER, note

broker = ListQueueBroker(BROKER)


@broker.task(task_name="noop")
async def noop(number: int) -> None:
    note(number)


async def enqueue(numbers: range) -> None:
    await broker.startup()
    for number in numbers:
        await noop.kiq(number)
    await broker.shutdown()


WORKER = ("taskiq", "worker", f"{__package__}.taskiq:broker", "--workers", "1",
          "--max-async-tasks", "100", "--log-level", "ERROR")  # fmt: skip
