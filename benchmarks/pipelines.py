"""Queues on Redis as a program in Python has them: ours, and streams, each in one pipeline a batch.

A turn puts a batch, settles the one that was leased before, and leases the next. The client is only
redis-py with hiredis on both sides: what a client of ours adds is not in it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import redis

from benchmarks.drive import Clock
from benchmarks.row import Sample
from benchmarks.servers import Server, cpu_seconds, kept, started
from interlock.client.lua.library import load as install

KEYS = 10_000
"""Different ones; a batch has none twice."""

PENDING = 50_000
"""Messages whose memory is measured."""

FOREVER = 10**10
"""µs of a lease: longer than any run."""

Turn = Callable[[int], list[bytes]]
"""From a first number: one turn, and the payloads it leased."""


def connected(server: Server) -> Any:
    """Return a connection to Redis, with the library.

    Not typed: redis-py has no types for commands given as words.
    """
    connection: Any = redis.Redis(port=server.port, protocol=2)
    install(connection)
    return connection


def cycle(keys: int, batch: int, turns: int) -> Sample:
    """Measure ours, with this number of keys per message. `cpu_ns` is what the server used for
    one."""
    server = kept("redis")
    connection = connected(server)
    return _measure(server, _ours(connection, keys, batch), batch, turns)


def stream_cycle(batch: int, turns: int) -> Sample:
    """Measure XADD, XACK, XDEL and XREADGROUP."""
    server = kept("redis")
    connection = connected(server)
    # As it comes: neither side pays for a parser of replies in Python.
    connection.set_response_callback("XREADGROUP", lambda reply, **_: reply)
    connection.delete("load")
    connection.xgroup_create("load", "all", mkstream=True)
    return _measure(server, _streams(connection, batch), batch, turns)


def memory(keys: int) -> Sample:
    """Measure ours: bytes of a pending message of 100 bytes whose keys no other has."""
    with _growing() as (connection, grown):
        for first in range(0, PENDING, 500):
            words = [
                word
                for number in range(first, first + 500)
                for word in _message(number, [b"%d:%d" % (place, number) for place in range(keys)])
            ]
            connection.execute_command("FCALL", "il1_put", 1, "il:{load}", "", 0, 0, *words)
        return Sample(grown(), PENDING)


def stream_memory() -> Sample:
    """Measure the bytes of an entry of 100 bytes."""
    with _growing() as (connection, grown):
        for first in range(0, PENDING, 500):
            pipeline = connection.pipeline(transaction=False)
            for number in range(first, first + 500):
                pipeline.xadd("load", {b"d": payload(number)})
            pipeline.execute()
        return Sample(grown(), PENDING)


def payload(number: int) -> bytes:
    """Return 100 bytes that name the number."""
    return b"%-100d" % number


def _measure(server: Server, turn: Turn, batch: int, turns: int) -> Sample:
    lost = 0
    for first in range(0, batch * 20, batch):
        turn(first)
    start = batch * 20
    before = cpu_seconds(server)
    clock = Clock()
    for first in range(start, start + turns * batch, batch):
        # As many are leased as were put, and no one else leases any: it is the batch itself.
        if turn(first) != [payload(number) for number in range(first, first + batch)]:
            lost += batch
    seconds = clock.seconds()
    used = cpu_seconds(server) - before
    messages = turns * batch
    details = {"cpu_ns": used / messages * 1e9, "server_busy": used / seconds}
    return Sample(seconds / messages * 1e9, messages, lost, details=details)


def _ours(connection: Any, keys: int, batch: int) -> Turn:
    queue = f"il:{{load-{next(_queues)}}}"
    settlements: list[bytes] = []
    calls = itertools.count(1)
    width = 6 + keys
    names = [b"account:%d" % number for number in range(KEYS)]

    def turn(first: int) -> list[bytes]:
        words = []
        # Numbered, so that the server keeps the replies of this producer and this consumer.
        call = next(calls)
        for number in range(first, first + batch):
            base = number * keys
            words += _message(number, [names[(base + place) % KEYS] for place in range(keys)])
        pipeline = connection.pipeline(transaction=False)
        pipeline.execute_command("FCALL", "il1_put", 1, queue, "producer", call, 0, *words)
        pipeline.execute_command(
            "FCALL", "il1_next", 1, queue, "consumer", call, 0, batch, FOREVER, "any", *settlements
        )
        reply = pipeline.execute()[1]
        settled = int(reply[0])
        if reply[1 : settled + 1] != [b"ACKED"] * settled:
            raise RuntimeError(f"settlements were answered {reply[1 : settled + 1]}")
        token, leased = reply[settled + 1], reply[settled + 5 :]
        settlements.clear()
        for place in range(0, len(leased), width):
            settlements.extend((b"ACK", token, leased[place]))
        payloads: list[bytes] = leased[3::width]
        return payloads

    return turn


def _message(number: int, keys: list[bytes]) -> list[Any]:
    return [payload(number), len(keys), 0, 0, *keys]


def _streams(connection: Any, batch: int) -> Turn:
    settled: list[bytes] = []

    def turn(first: int) -> list[bytes]:
        pipeline = connection.pipeline(transaction=False)
        for number in range(first, first + batch):
            pipeline.execute_command("XADD", "load", "*", "d", payload(number))
        if settled:
            pipeline.execute_command("XACK", "load", "all", *settled)
            pipeline.execute_command("XDEL", "load", *settled)
        # As text, so that neither side pays for a parser of replies in Python.
        pipeline.execute_command(
            "XREADGROUP", "GROUP", "all", "one", "COUNT", batch, "STREAMS", "load", ">"
        )
        reply = pipeline.execute()[-1]
        entries = reply[0][1]
        settled[:] = [entry for entry, _ in entries]
        return [fields[1] for _, fields in entries]

    return turn


@contextmanager
def _growing() -> Iterator[tuple[Any, Callable[[], float]]]:
    """Yield a connection to a server of its own, and a function that returns how much it has grown.

    The function returns the bytes by which each of PENDING messages has made the server larger.
    """
    with started("redis") as server:
        connection = connected(server)
        before: int = connection.info("memory")["used_memory"]

        def grown() -> float:
            after: int = connection.info("memory")["used_memory"]
            return (after - before) / PENDING

        yield connection, grown


_queues = itertools.count(1)
"""A new one for each sample: numbers of calls begin anew."""
