"""huey with a lock of Redis for each key, which is what one does for want of an order: it excludes,
and orders nothing. One thread, which was quickest."""

import redis
from huey import RedisHuey

from benchmarks.workers.handled import BROKER, note

app = RedisHuey("load", url=BROKER, results=False)
broker = redis.Redis.from_url(BROKER)


@app.task()
def noop(number: int) -> None:
    with broker.lock(f"account:{number}", timeout=30):
        note(number)


def enqueue(numbers: range) -> None:
    for number in numbers:
        noop(number)


WORKER = ("huey_consumer", f"{__package__}.locked.app", "-w", "1", "-n", "-q")
