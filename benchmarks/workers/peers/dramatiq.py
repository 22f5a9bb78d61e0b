"""dramatiq: one process with its 8 threads."""

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.workers.handled import BROKER, note

dramatiq.set_broker(RedisBroker(url=BROKER))


@dramatiq.actor
def noop(number: int) -> None:
    note(number)


def enqueue(numbers: range) -> None:
    for number in numbers:
        noop.send(number)


WORKER = ("dramatiq", f"{__package__}.dramatiq", "--processes", "1", "--threads", "8")
