"""From a put on Redis until another process has the message: ours, by the client, whose call to
lease goes out in one go with the BLPOP before it, and BLPOP alone, by redis-py.

    python -m benchmarks.waiting ours|peer PORT COUNT

is the process that waits. It prints for each message how many ns it took; the next one is put a
moment later, when the process waits again.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Generator
from typing import Any

import redis

import interlock
from benchmarks.interpreters import ROOT, environment
from benchmarks.pipelines import connected
from benchmarks.row import Sample
from benchmarks.servers import LOAD_CORE, kept, prepare

NAME = "waiting"
QUEUE = f"il:{{{NAME}}}"
LIST = "waiting"
PACE = 0.001
"""Seconds until the next put: the one that waits is asleep again."""


def put_to_leased(messages: int) -> Sample:
    """Measure ours: the median, in µs."""
    return _measure("ours", messages)


def put_to_popped(messages: int) -> Sample:
    """Measure LPUSH and BLPOP."""
    return _measure("peer", messages)


def _measure(side: str, messages: int) -> Sample:
    server = kept("redis")
    connection = connected(server)
    connection.delete(LIST)
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.waiting", side, str(server.port), str(messages)],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: prepare(LOAD_CORE),
    ) as waiting:
        assert waiting.stdout is not None
        if waiting.stdout.readline() != "ready\n":
            raise RuntimeError(f"{side} did not start to wait")
        took: list[float] = []
        for _ in range(messages):
            time.sleep(PACE)
            stamp = b"%-100d" % time.monotonic_ns()
            if side == "ours":
                connection.execute_command(
                    "FCALL", "il1_put", 1, QUEUE, "", 0, 0, stamp, 1, 0, 0, "account"
                )
            else:
                connection.execute_command("LPUSH", LIST, stamp)
            line = waiting.stdout.readline()
            if not line:
                raise RuntimeError(f"{side}: {len(took)} of {messages} came")
            took.append(int(line) / 1e3)
    took.sort()
    part = {f"p{part}_us": took[len(took) * part // 100] for part in (90, 99)}
    return Sample(took[len(took) // 2], messages, details=part)


def _main(side: str, port: str, count: str) -> None:
    arrivals = _leased(port) if side == "ours" else _popped(port)
    print("ready", flush=True)
    for _ in range(int(count)):
        print(next(arrivals), flush=True)
    arrivals.close()


def _popped(port: str) -> Generator[int]:
    connection: Any = redis.Redis(port=int(port), protocol=2)
    while True:
        reply = connection.execute_command("BLPOP", LIST, 1)
        if reply is not None:
            yield time.monotonic_ns() - int(reply[1])


def _leased(port: str) -> Generator[int]:
    """Yield the ns of each message by the client.

    Each call settles what the one before leased, as a consumer does.
    """
    with interlock.connect(f"redis://127.0.0.1:{port}") as client:
        queue = client.queue(NAME, bytes)
        settlements: list[Any] = []
        try:
            while True:
                _, leases = queue.exchange(settlements, 1)
                now = time.monotonic_ns()
                settlements = [lease.acking() for lease in leases]
                for lease in leases:
                    yield now - int(lease.payload)
        finally:
            # Or the next run would wait for the key.
            queue.settle(settlements)


if __name__ == "__main__":
    _main(*sys.argv[1:])
