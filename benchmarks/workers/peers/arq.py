"""arq: one process, up to 100 tasks at a time; it looks for more as often as it can, not only twice
a second as it would unasked."""

from typing import Any

from arq import create_pool
from arq.connections import RedisSettings

from benchmarks.workers.handled import BROKER, note

redis = RedisSettings.from_dsn(BROKER)


async def noop(context: Any, number: int) -> None:
    note(number)


async def enqueue(numbers: range) -> None:
    pool = await create_pool(redis)
    for number in numbers:
        await pool.enqueue_job("noop", number)
    await pool.aclose()


class Settings:
    """The settings of the worker."""

    functions = (noop,)
    redis_settings = redis
    max_jobs = 100
    poll_delay = 0.001
    keep_result = 0


WORKER = ("arq", f"{__package__}.arq.Settings")
