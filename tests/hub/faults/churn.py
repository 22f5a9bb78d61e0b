"""Connections that come and go in every unclean way leave nothing behind."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Callable
from pathlib import Path

from interlock.hub.resp import command
from tests.hub.faults.measures import MIB, measured_hub
from tests.hub.faults.witness import Witness

AT_ONCE = 50
# Memory that the allocator keeps for later connections; a connection that leaked takes 1 kB at
# least.
SLACK = 4 * MIB


def run(seed: int, count: int, folder: Path) -> dict[str, object]:
    chance = random.Random(seed)
    path = folder / "s"
    with measured_hub("--workers", "2", "--unix", str(path)) as hub, Witness(hub.address) as seen:
        hub.settle(3)
        descriptors = hub.descriptors()
        drop_all(chance, hub.port, path, max(count // 5, 1000))
        before = hub.settle(3)
        resident = hub.resident()
        drop_all(chance, hub.port, path, count)
        figures = hub.settle(3)
        seen.progress()
        taken = figures["total_connections_received"] - before["total_connections_received"]
        assert taken == count
        # It is forgotten a moment before its descriptor is closed.
        while hub.descriptors() != descriptors:
            assert hub.control.call("PING") == "PONG"
        assert (figures["pubsub_channels"], figures["pubsub_patterns"]) == (1, 0)
        assert figures["pubsub_clients"] == 1
        assert figures["client_query_buffer_bytes"] == 0
        grown = hub.resident() - resident
        assert grown < SLACK, f"{grown} bytes more than before {count} connections"
        return {
            "connections": count,
            "descriptors before and after": descriptors,
            "resident before, MiB": round(resident / MIB, 1),
            "resident after, MiB": round((resident + grown) / MIB, 1),
            "rounds of the witness": seen.rounds,
        }


def drop_all(chance: random.Random, port: int, path: Path, count: int) -> None:
    """Open and drop this number, some of them at the same time."""
    left = count
    while left:
        group = [opened(chance, port, path) for _ in range(min(left, AT_ONCE))]
        left -= len(group)
        chance.shuffle(group)
        for connection in group:
            with connection:
                chance.choice(WAYS)(chance, connection)


def opened(chance: random.Random, port: int, path: Path) -> socket.socket:
    if chance.random() < 0.7:
        return socket.create_connection(("127.0.0.1", port), 30)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(30)
    connection.connect(str(path))
    return connection


def nothing(chance: random.Random, connection: socket.socket) -> None:
    if chance.random() < 0.5:
        reset(connection)


def half_a_request(chance: random.Random, connection: socket.socket) -> None:
    whole = command("PUBLISH", "a", b"x" * chance.choice([1, 100, 20_000]))
    connection.sendall(whole[: chance.randrange(1, len(whole))])
    if chance.random() < 0.5:
        reset(connection)


def subscribed(chance: random.Random, connection: socket.socket) -> None:
    topics = [f"t{chance.randrange(1000)}" for _ in range(chance.choice([1, 3, 40]))]
    connection.sendall(command(chance.choice(["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"]), *topics))
    if chance.random() < 0.7:
        assert connection.recv(100)
    if chance.random() < 0.5:
        reset(connection)


def unread_answers(chance: random.Random, connection: socket.socket) -> None:
    requests = [command("ECHO", b"x" * chance.randrange(300)) for _ in range(50)]
    requests.insert(chance.randrange(50), command("SUBSCRIBE", "a"))
    requests.append(command("PUBLISH", "a", "x"))
    connection.sendall(b"".join(requests))
    if chance.random() < 0.5:
        reset(connection)


def farewell(_chance: random.Random, connection: socket.socket) -> None:
    connection.sendall(command("QUIT"))
    assert connection.recv(100) == b"+OK\r\n"


def shut(_chance: random.Random, connection: socket.socket) -> None:
    connection.sendall(command("PING") + b"*1\r\n$4\r\nPI")
    connection.shutdown(socket.SHUT_WR)
    assert connection.recv(100) == b"+PONG\r\n"
    assert connection.recv(100) == b""


def reset(connection: socket.socket) -> None:
    """The close that follows is an error at the other end."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


WAYS: list[Callable[[random.Random, socket.socket], None]] = [
    nothing,
    half_a_request,
    subscribed,
    unread_answers,
    farewell,
    shut,
]
