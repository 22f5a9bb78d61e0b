"""A hub started upon its journal, beside Redis upon an append-only file of the same messages.

Both are filled, killed, and started again: the figure is the time from the start of the process to
the first answer with the number of messages."""

from __future__ import annotations

import os
import socket
import time
from functools import partial
from typing import Any

import redis

from benchmarks.row import Row, Sample, alternating
from benchmarks.scenarios.queues import DURABLE
from benchmarks.servers import Kind, Server, folder, started

MESSAGES = int(os.environ.get("INTERLOCK_RESTART_MESSAGES", "300000"))
"""Messages pending; each takes some 200 bytes of either file, so that 5,000,000 are a GB."""
KEYS = 100_000
PIECE = 1_000
"""Messages that are put in one write."""


def restarted(kind: Kind, messages: int) -> Sample:
    """Measure the seconds of a start with this number of messages pending."""
    with folder() as place:
        with started(kind, sync="everysec", place=place) as server:
            fill(kind, server, messages)
            if kind == "redis":
                written_anew(server)
        size = sum(path.stat().st_blocks * 512 for path in place.rglob("*") if path.is_file())
        began = time.perf_counter()
        with started(kind, sync="everysec", place=place) as server:
            found = pending(kind, server)
            took = time.perf_counter() - began
    return Sample(took, messages, lost=messages - found, details={"bytes": size})


def fill(kind: Kind, server: Server, messages: int) -> None:
    """Put this number of messages, of 100 bytes and one key each, and check that none was
    refused."""
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        words: tuple[bytes, ...]
        if kind == "redis":
            words = (b"XADD", b"load", b"*", b"payload", b"%100b", b"key", b"key:%05d")
        else:
            words = (b"FCALL", b"il1_put", b"1", b"il:{load}", b"", b"0", b"0", b"%100b")
            words += (b"1", b"0", b"0", b"key:%05d")
        # The inserted values have these lengths.
        parts = [b"$%d\r\n%s\r\n" % (LENGTHS.get(word, len(word)), word) for word in words]
        form = b"*%d\r\n" % len(words) + b"".join(parts)
        for first in range(0, messages, PIECE):
            numbers = range(first, min(first + PIECE, messages))
            # Noise: Redis packs what it rewrites, and zeroes would be nothing.
            piece = b"".join(
                form % (os.urandom(50).hex().encode(), number % KEYS) for number in numbers
            )
            connection.sendall(piece + b"PING\r\n")
            answers = b""
            while not answers.endswith(b"+PONG\r\n"):
                if not (more := connection.recv(1 << 20)):
                    raise ConnectionError("the server closed the connection")
                answers += more
            if answers.startswith(b"-") or b"\n-" in answers:
                raise RuntimeError(f"a message was refused: {answers[:200]!r}")


LENGTHS = {b"%100b": 100, b"key:%05d": 9}


def written_anew(server: Server) -> None:
    """Wait until a rewrite of the file in progress, if any, is done.

    It makes the start quicker.
    """
    with connected(server) as client:
        while client.info("persistence")["aof_rewrite_in_progress"]:
            time.sleep(0.1)


def pending(kind: Kind, server: Server) -> int:
    """Return the number of messages that the server has."""
    with connected(server) as client:
        if kind == "redis":
            return int(client.execute_command("XLEN", "load"))
        stats = client.execute_command("FCALL", "il1_stats", 1, "il:{load}")
        return int(stats[stats.index(b"unsettled") + 1])


def connected(server: Server) -> Any:
    """Return a connection without the library, which neither needs here.

    Not typed: as in `pipelines`.
    """
    return redis.Redis(port=server.port, protocol=2)


ROWS = (
    Row(
        name="journal/restart",
        title=f"started with {MESSAGES:,} messages pending, until it answers",
        table=DURABLE,
        peer="Redis, append-only file",
        bar=1,
        unit="s",
        pairs=3,
        unseen=False,
        longest=150 + MESSAGES / 10_000,
        pair=alternating(
            partial(restarted, "hub", MESSAGES), partial(restarted, "redis", MESSAGES)
        ),
    ),
)
