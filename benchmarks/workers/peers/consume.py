"""Ours without tasks: `consume()` on a queue of an engine, a key for each message."""

import threading

import interlock
from benchmarks.workers.handled import BROKER, note


def enqueue(numbers: range) -> None:
    with interlock.connect(BROKER) as client:
        queue = client.queue("load", int)
        for number in numbers:
            queue.put(number, keys=f"account:{number}")


def work() -> None:
    with interlock.connect(BROKER) as client, client.queue("load", int).consume(note):
        threading.Event().wait()


WORKER = ("python", "-m", __name__)

if __name__ == "__main__":
    work()
