"""redis-py: a consumer group of a stream, 16 entries a read, acknowledged and deleted together in
one pipeline with the next read. It knows no keys, and no tasks."""

import redis

from benchmarks.workers.handled import BROKER, note

STREAM, GROUP = "load", "workers"


def prepare() -> None:
    redis.Redis.from_url(BROKER).xgroup_create(STREAM, GROUP, mkstream=True)


def enqueue(numbers: range) -> None:
    broker = redis.Redis.from_url(BROKER)
    for number in numbers:
        broker.xadd(STREAM, {"number": number})


def work() -> None:
    broker = redis.Redis.from_url(BROKER)
    done: list[bytes] = []
    while True:
        pipeline = broker.pipeline(transaction=False)
        if done:
            pipeline.xack(STREAM, GROUP, *done)
            pipeline.xdel(STREAM, *done)
        pipeline.xreadgroup(GROUP, "one", {STREAM: ">"}, count=16, block=1_000)
        read = pipeline.execute()[-1]
        entries = read[0][1] if read else []
        for _, fields in entries:
            note(int(fields[b"number"]))
        done = [entry for entry, _ in entries]


WORKER = ("python", "-m", __name__)

if __name__ == "__main__":
    work()
