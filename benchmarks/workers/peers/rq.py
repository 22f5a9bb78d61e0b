"""rq: a SimpleWorker, for the ordinary one forks for each task and is many times slower."""

from redis import Redis
from rq import Queue

from benchmarks.workers.handled import BROKER, note


def noop(number: int) -> None:
    note(number)


def enqueue(numbers: range) -> None:
    queue = Queue(connection=Redis.from_url(BROKER))
    for number in numbers:
        queue.enqueue(f"{__package__}.rq.noop", number, result_ttl=0)


WORKER = ("rq", "worker", "--url", BROKER, "--worker-class", "rq.SimpleWorker", "--quiet")
