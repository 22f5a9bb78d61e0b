"""From a put on Redis until another process has the message: ours, which is told by BLPOP that it
is worth asking and then leases, and BLPOP alone.

    python -m benchmarks.waiting ours|peer PORT COUNT

is the process that waits. It prints for each message how many ns it took; the next one is put a
moment later, when the process waits again.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import redis

from benchmarks.interpreters import ROOT, environment
from benchmarks.pipelines import FOREVER, connected
from benchmarks.row import Sample
from benchmarks.servers import LOAD_CORE, kept, prepare

QUEUE = "il:{waiting}"
LIST = "waiting"
WAIT = 1_000_000
"""µs."""

PACE = 0.001
"""Seconds until the next put: the one that waits is asleep again."""


def put_to_leased(messages: int) -> Sample:
    """Ours: the median, in µs."""
    return _measure("ours", messages)


def put_to_popped(messages: int) -> Sample:
    """LPUSH and BLPOP."""
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
    connection: Any = redis.Redis(port=int(port), protocol=2)
    arrivals = _leased(connection) if side == "ours" else _popped(connection)
    print("ready", flush=True)
    for _ in range(int(count)):
        print(next(arrivals), flush=True)


def _popped(connection: Any) -> Iterator[int]:
    while True:
        reply = connection.execute_command("BLPOP", LIST, WAIT / 1e6)
        if reply is not None:
            yield time.monotonic_ns() - int(reply[1])


def _leased(connection: Any) -> Iterator[int]:
    """Each call settles what the one before leased."""
    consumer = f"consumer-{time.monotonic_ns()}"
    settlement: list[bytes] = []
    call = 0
    while True:
        call += 1
        reply = connection.execute_command(
            "FCALL", "il1_next", 1, QUEUE, consumer, call, WAIT, 1, FOREVER, "any", *settlement
        )
        now = time.monotonic_ns()
        token, _, due, count, *leased = reply[1 + int(reply[0]) :]
        settlement = []
        if int(count):
            settlement = [b"ACK", token, leased[0]]
            yield now - int(leased[3])
        elif due != b"0":
            # Until something falls due, or the wait is over: then it asks again in any case.
            wait = min(int(due), WAIT) if due else WAIT
            connection.execute_command("BLPOP", f"{QUEUE}:wake:any", wait / 1e6)


if __name__ == "__main__":
    _main(*sys.argv[1:])
