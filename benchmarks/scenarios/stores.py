"""Stores of the hub: a file store beside Redis with its append-only file and beside rsyslog, an
agent that sends to a server, and a spool that is sent when its server comes back.

Each figure is the time of one message, from the first byte that is sent until the last message is
where it belongs: counted by the receiver, and the lines of the files compared with what was sent.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import redis as redis_py

from benchmarks.row import Pair, Row, Sample, alternating
from benchmarks.servers import Server, folder, free_port, hub, redis, rsyslog

TABLE = "Stores"

MESSAGES = 300_000
SPOOLED = 1_000_000
PAYLOAD = 100
PIECE = 10_000
"""Messages that are sent before answers are read."""

LONGEST = 60.0
KIDS = 2_900
"""Messages a second that kids' agent forwards to its server."""

TOPIC = b"load"


def payloads(count: int) -> Iterator[bytes]:
    """Yield this number of payloads of 100 bytes, each with its number."""
    for number in range(count):
        yield b"%-100d" % number


def publish(port: int, command: tuple[bytes, ...], count: int) -> None:
    """Send `command` with each payload behind it, in pieces, and see that none was refused."""
    head = b"*%d\r\n" % (len(command) + 1)
    head += b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in command)
    head += b"$%d\r\n" % PAYLOAD
    given = payloads(count)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for first in range(0, count, PIECE):
            number = min(PIECE, count - first)
            piece = b"".join(head + next(given) + b"\r\n" for _ in range(number))
            connection.sendall(piece + b"*1\r\n$4\r\nPING\r\n")
            answers = bytearray()
            while not answers.endswith(b"+PONG\r\n"):
                if not (more := connection.recv(1 << 20)):
                    raise ConnectionError("the server closed the connection")
                answers += more
            if answers.startswith(b"-") or b"\n-" in answers:
                raise RuntimeError(f"a message was refused: {bytes(answers[:200])!r}")


def waited(server: Server, count: int) -> int:
    """Wait until the server's store has this number of messages, and return how many it has."""
    end = time.monotonic() + LONGEST
    with redis_py.Redis(port=server.port) as client:
        while (found := int(client.execute_command("XLEN", TOPIC))) < count:
            if time.monotonic() > end:
                break
            time.sleep(0.002)
    return found


def faults(path: Path, count: int) -> tuple[int, int]:
    """Return how many messages a file lacks or has too many, and how many are out of order."""
    found = [int(line) for line in path.read_bytes().splitlines()]
    misordered = sum(after < before for before, after in pairwise(found))
    return abs(count - len(found)) + count - len(set(found)), misordered


def configuration(place: Path, sync: str, ack: str) -> Path:
    """Write the configuration of a hub that keeps all topics in files."""
    path = place / "hub.toml"
    path.write_text(
        f'[[store]]\nname = "kept"\nkind = "file"\ntopics = ["*"]\nsync = "{sync}"\nack = "{ack}"\n'
        f'path = "{place}/kept/[topic].log"\n'
    )
    return path


def kept_by_hub() -> Sample:
    """Measure a file store, synced each second."""
    with folder() as place:
        options = ("--config", str(configuration(place, "everysec", "none")))
        with hub(arguments=options) as server:
            began = time.perf_counter()
            publish(server.port, (b"PUBLISH", TOPIC), MESSAGES)
            waited(server, MESSAGES)
            took = time.perf_counter() - began
        lost, misordered = faults(place / "kept" / "load.log", MESSAGES)
    return Sample.each(took, MESSAGES, lost=lost, misordered=misordered)


def kept_by_redis() -> Sample:
    """Measure a stream of a Redis with its append-only file, synced each second."""
    with redis(sync="everysec") as server:
        began = time.perf_counter()
        publish(server.port, (b"XADD", TOPIC, b"*", b"payload"), MESSAGES)
        found = waited(server, MESSAGES)
        took = time.perf_counter() - began
    return Sample.each(took, MESSAGES, lost=MESSAGES - found)


def kept_by_rsyslog() -> Sample:
    """Measure rsyslog: lines over TCP, which it acknowledges not, into a file."""
    with folder() as place, rsyslog(place) as (port, path):
        lines = b"".join(b"<13>%b\n" % payload for payload in payloads(MESSAGES))
        size = MESSAGES * (PAYLOAD + 1)
        began = time.perf_counter()
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(lines)
        end = time.monotonic() + LONGEST
        while (not path.exists() or path.stat().st_size < size) and time.monotonic() < end:
            time.sleep(0.002)
        took = time.perf_counter() - began
        lost, misordered = faults(path, MESSAGES)
    return Sample.each(took, MESSAGES, lost=lost, misordered=misordered)


@contextmanager
def agent(place: Path, upstream: int) -> Iterator[Server]:
    """Run an agent of the hub at this port, with its spool in `place`."""
    path = place / "agent.toml"
    path.write_text(
        f'[[store]]\nname = "up"\nkind = "network"\ntopics = ["*"]\nack = "disk"\n'
        f'upstream = "127.0.0.1:{upstream}"\nspool = "{place}/spool"\n'
    )
    with hub(core=None, arguments=("--config", str(path))) as server:
        yield server


def forwarded(count: int) -> Sample:
    """Measure an agent that spools on its disk, and a server that keeps on its own."""
    with folder() as place:
        options = ("--config", str(configuration(place, "always", "disk")))
        with hub(core=None, arguments=options) as server, agent(place, server.port) as sender:
            began = time.perf_counter()
            publish(sender.port, (b"PUBLISH", TOPIC), count)
            published = time.perf_counter() - began
            waited(server, count)
            took = time.perf_counter() - began
        lost, misordered = faults(place / "kept" / "load.log", count)
    details = {"published_ns": published / count * 1e9}
    return Sample(took / count * 1e9, count, lost, misordered, details)


def replayed(count: int) -> Sample:
    """Measure a spool that is full of what was published while the server was away."""
    with folder() as place:
        port = free_port()
        options = ("--config", str(configuration(place, "always", "disk")), "--port", str(port))
        with agent(place, port) as sender:
            publish(sender.port, (b"PUBLISH", TOPIC), count)
            with hub(core=None, arguments=options) as server:
                began = time.perf_counter()
                waited(server, count)
                took = time.perf_counter() - began
        lost, misordered = faults(place / "kept" / "load.log", count)
    return Sample.each(took, count, lost=lost, misordered=misordered)


ROWS = (
    Row(
        name="stores/file-redis",
        title="publish to a file store, synced each second",
        table=TABLE,
        peer="XADD, Redis with appendonly everysec",
        bar=1,
        judged="times",
        unseen=False,
        pair=alternating(kept_by_hub, kept_by_redis),
    ),
    Row(
        name="stores/file-rsyslog",
        title="publish to a file store, synced each second",
        table=TABLE,
        peer="rsyslog, TCP to a file, no sync, no answers",
        bar=1,
        judged="times",
        unseen=False,
        pair=alternating(kept_by_hub, kept_by_rsyslog),
    ),
    Row(
        name="stores/forward",
        title="agent to server, both synced before they answer",
        table=TABLE,
        peer="",
        bar=1e9 / (100 * KIDS),
        judged="value",
        unseen=False,
        pairs=3,
        pair=lambda _: Pair(forwarded(MESSAGES)),
    ),
    Row(
        name="stores/replay",
        title="a spool of a million messages is sent",
        table=TABLE,
        peer="",
        bar=None,
        judged="value",
        unseen=False,
        pairs=3,
        pair=lambda _: Pair(replayed(SPOOLED)),
    ),
)
