"""Keyed queues on Redis beside streams, which know no keys: the same payloads, both used cleverly.

A cycle puts a batch, and then settles what it had and takes the next in one round trip: il1_put,
then il1_next; and XADDs in a pipeline, then XACK, XDEL and XREADGROUP in one. Every payload is
compared with what was put.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from benchmarks.row import Row, Sample, alternating
from benchmarks.servers import kept

TABLE = "Keyed queues on Redis"
BYTES = 100
KEYS = 1_000
LEASE = 30_000_000
"""µs."""

CYCLES = {1: 3_000, 16: 1_000, 100: 240}
PENDING = 20_000
PUT = ("il1_put", 1, "il:{bench}", "producer", 0, 0)


def connect() -> Any:
    """A connection to this process's server, which has the library."""
    import redis

    from interlock.engine.library import load

    connection = redis.Redis(port=kept("redis").port)
    load(connection)
    connection.flushdb()
    return connection


def payload(number: int) -> bytes:
    return b"%d" % number + b"." * (BYTES - len(str(number)))


def keys_of(number: int, keys: int) -> list[bytes]:
    return [b"account:%d" % ((number * keys + k) % KEYS) for k in range(keys)]


def keyed(keys: int, batch: int) -> Sample:
    connection = connect()
    call = connection.execute_command
    queue = "il:{bench}"
    calls = 0

    def put(first: int) -> None:
        nonlocal calls
        calls += 1
        arguments: list[bytes | int] = []
        for number in range(first, first + batch):
            arguments += (payload(number), keys, 0, 0, *keys_of(number, keys))
        call("FCALL", "il1_put", 1, queue, "producer", calls, 0, *arguments)

    def take(settlements: list[bytes]) -> tuple[list[bytes], list[bytes]]:
        nonlocal calls
        calls += 1
        reply = call(
            "FCALL", "il1_next", 1, queue, "consumer", calls, 0, batch, LEASE, "any", *settlements
        )
        at = 1 + len(settlements) // 3
        token, count = reply[at], int(reply[at + 3])
        at += 4
        settled: list[bytes] = []
        payloads = []
        for _ in range(count):
            settled += (b"ACK", token, reply[at])
            payloads.append(reply[at + 3])
            at += 6 + int(reply[at + 4]) + int(reply[at + 5])
        return payloads, settled

    return cycles(connection, batch, put, take)


def streams(batch: int) -> Sample:
    connection = connect()
    connection.xgroup_create("stream", "group", "$", mkstream=True)

    def put(first: int) -> None:
        pipeline = connection.pipeline(transaction=False)
        for number in range(first, first + batch):
            pipeline.execute_command("XADD", "stream", "*", "p", payload(number))
        pipeline.execute()

    def take(settled: list[bytes]) -> tuple[list[bytes], list[bytes]]:
        pipeline = connection.pipeline(transaction=False)
        if settled:
            pipeline.execute_command("XACK", "stream", "group", *settled)
            pipeline.execute_command("XDEL", "stream", *settled)
        pipeline.xreadgroup("group", "consumer", {"stream": ">"}, batch)
        reply = pipeline.execute()[-1]
        entries = reply[0][1] if reply else []
        return [fields[b"p"] for _, fields in entries], [id for id, _ in entries]

    return cycles(connection, batch, put, take)


def cycles(
    connection: Any,
    batch: int,
    put: Callable[[int], None],
    take: Callable[[list[bytes]], tuple[list[bytes], list[bytes]]],
) -> Sample:
    lost = 0
    count = CYCLES[batch]
    settled: list[bytes] = []
    before = cpu(connection)
    start = time.perf_counter()
    for cycle in range(count):
        first = cycle * batch
        put(first)
        payloads, settled = take(settled)
        lost += payloads != [payload(number) for number in range(first, first + batch)]
    seconds = time.perf_counter() - start
    used = cpu(connection) - before
    sample = Sample.each(seconds, count * batch, lost=lost)
    connection.close()
    return replace(sample, details={"cpu_ns": used / (count * batch) * 1e9})


def cpu(connection: Any) -> float:
    """Seconds that the server used so far."""
    info = connection.info("cpu")
    return float(info["used_cpu_user"] + info["used_cpu_sys"])


def memory(connection: Any, put: Callable[[int], None]) -> Sample:
    before = connection.info("memory")["used_memory"]
    for first in range(0, PENDING, 100):
        put(first)
    used = connection.info("memory")["used_memory"] - before
    connection.flushdb()
    connection.close()
    return Sample(used / PENDING, PENDING)


def keyed_memory(keys: int) -> Sample:
    connection = connect()

    def put(first: int) -> None:
        arguments: list[bytes | int] = []
        for number in range(first, first + 100):
            named = [b"account:%d" % (number * keys + k) for k in range(keys)]
            arguments += (payload(number), keys, 0, 0, *named)
        connection.execute_command("FCALL", *PUT, *arguments)

    return memory(connection, put)


def stream_memory() -> Sample:
    connection = connect()

    def put(first: int) -> None:
        pipeline = connection.pipeline(transaction=False)
        for number in range(first, first + 100):
            pipeline.execute_command("XADD", "stream", "*", "p", payload(number))
        pipeline.execute()

    return memory(connection, put)


def _cycle(keys: int, batch: int, bar: float, prototype: float, cpu: tuple[float, float] | None
) -> tuple[Row, ...]:  # fmt: skip
    title = f"{keys} key{'s' * (keys > 1)}, batch {batch}"
    row = Row(
        name=f"engine/redis-{keys}-key{'s' * (keys > 1)}-{batch}",
        title=title,
        table=TABLE,
        peer="Redis streams",
        judged="times",
        bar=bar,
        prototype=prototype,
        pair=alternating(partial(keyed, keys, batch), partial(streams, batch)),
    )
    if cpu is None:
        return (row,)
    also = replace(
        row,
        name=f"{row.name}-cpu",
        title="– server's CPU",
        figure="cpu_ns",
        judged="ratio",
        bar=cpu[0],
        prototype=cpu[1],
        shares=row.name,
        pair=None,
    )
    return row, also


def _memory(keys: int, bar: float, prototype: float) -> Row:
    return Row(
        name=f"engine/redis-memory-{keys}",
        title=f"memory of a pending message, {keys} distinct key{'s' * (keys > 1)}",
        table=TABLE,
        peer="a stream's entry",
        unit="B",
        bar=bar,
        prototype=prototype,
        pairs=1,
        unseen=False,
        pair=alternating(partial(keyed_memory, keys), stream_memory),
    )


ROWS: tuple[Row, ...] = (
    *_cycle(1, 1, 0.9, 1.01, None),
    *_cycle(1, 16, 0.8, 0.95, (2.5, 2.1)),
    *_cycle(1, 100, 0.65, 0.74, (3.6, 3.2)),
    *_cycle(4, 16, 0.45, 0.55, None),
    *_cycle(4, 100, 0.3, 0.31, None),
    _memory(1, 2.5, 2.2),
    _memory(4, 4.5, 4.2),
)
