"""Ours: jobs of one name with a rate of BENCH_RATE a second, the burst left as it is.

BENCH_TIMES is the file to which the handler adds a line: when it began, and the job's number.
"""

import os
import time

from benchmarks.workers.handled import BROKER
from interlock import Rate
from interlock.app import App

PAUSE = float(os.environ.get("BENCH_PAUSE", "0"))

RATE = Rate(int(os.environ["BENCH_RATE"]), burst=int(os.environ["BENCH_BURST"]))

app = App(BROKER, queues={"default": {"limits": {"api": RATE}}})
times = os.open(os.environ.get("BENCH_TIMES", os.devnull), os.O_WRONLY | os.O_CREAT | os.O_APPEND)


@app.task(name="noop", limit="api")
def noop(number: int) -> None:
    os.write(times, f"{time.monotonic_ns()} {number} .\n".encode())


def enqueue(numbers: range) -> None:
    first, *others = numbers
    noop.send(first)
    time.sleep(PAUSE)
    for number in others:
        noop.send(number)


WORKER = ("interlock", "worker", f"{__package__}.rated:app", "--concurrency", "8",
          "--ready-file", os.environ.get("BENCH_READY", ""), "--log-level", "error")  # fmt: skip
