"""Random talks with the hub and with Redis: the same bytes come back, and no other client is
affected."""

from __future__ import annotations

import random
import re
import socket
from collections.abc import Sequence
from pathlib import Path

from tests.hub.faults.churn import reset
from tests.hub.faults.measures import MIB, measured_hub
from tests.hub.faults.talks import Talk, talk
from tests.hub.faults.witness import Witness
from tests.hub.protocol.wire import MASKS, masked
from tests.hub.servers import redis_server

AT_ONCE = 16
REQUESTS = 60
LONGEST_HIDDEN = 40
UNKNOWN = re.compile(rb"unknown command '(\w+)'")
# The names, a byte or two shorter.
REDIS_ALONE = {b"SET", b"GET"}
ALL_TOPICS = b"pmessage\r\n$1\r\n*\r\n"
MASKED = ("version", "id")
assert MASKS.keys() >= set(MASKED)


def run(seed: int, requests: int, folder: Path) -> dict[str, object]:
    chance = random.Random(seed)
    counts = dict.fromkeys(
        [
            "talks",
            "requests",
            "mutated",
            "cut short",
            "not compared",
            "in another order",
            "dropped",
        ],
        0,
    )
    with (
        redis_server(folder) as (_, redis),
        measured_hub("--workers", "2") as hub,
        Witness(hub.address) as seen,
    ):
        while counts["requests"] < requests:
            # A changed byte in a name must not make it that of another.
            names = [f"{chance.getrandbits(64):x}" for _ in range(AT_ONCE)]
            talks = [talk(chance, name, REQUESTS) for name in names]
            counts["talks"] += len(talks)
            counts["requests"] += sum(one.requests for one in talks)
            counts["mutated"] += sum(one.mutated for one in talks)
            compare(chance, redis, hub.port, talks, counts)
            drop(chance, hub.port, talks)
            counts["dropped"] += len(talks)
        assert counts["not compared"] + counts["in another order"] <= counts["talks"] // 10
        figures = hub.settle(3)
        seen.progress()
        assert figures["protocol_errors"] > 0
        resident = round(hub.resident() / MIB, 1)
        return {**counts, "rounds of the witness": seen.rounds, "resident after, MiB": resident}


def compare(
    chance: random.Random, redis: int, hub: int, talks: Sequence[Talk], counts: dict[str, int]
) -> None:
    """Say the same to both, and hear the same."""
    expected = [heard for heard, _ in all_heard(redis, [[one.data] for one in talks])]
    found = all_heard(hub, [pieces(chance, one.data) for one in talks])
    alone = [
        one
        for one, wanted, (given, _) in zip(talks, expected, found, strict=True)
        if ALL_TOPICS not in wanted and ALL_TOPICS not in given
    ]
    if len(alone) < len(talks):
        # By a broken name some subscribed to what all the others publish: how many receive that is
        # a matter of who came first. The others are compared without them.
        counts["not compared"] += len(talks) - len(alone)
        if alone:
            compare(chance, redis, hub, alone, counts)
        return
    for one, wanted, (given, whole) in zip(talks, expected, found, strict=True):
        if not whole:
            # A client that still sends while the server closes may lose the last reply. In one
            # piece the server has read all of it by then.
            if not one.mutated:
                # Hidden text may be cut in the middle, at the very end.
                beginning = hidden(given)[:-LONGEST_HIDDEN]
                assert hidden(wanted).startswith(beginning), difference(one, wanted, given)
            counts["cut short"] += 1
            ((given, whole),) = all_heard(hub, [[one.data]])
            assert whole
        if hidden(given) != hidden(wanted) and one.mutated and lines(given) == lines(wanted):
            # By a broken name it had two subscriptions of a kind, which Redis serves and ends in
            # the order of a table that changes with its start.
            counts["in another order"] += 1
            continue
        if one.mutated and any(name.upper() in REDIS_ALONE for name in UNKNOWN.findall(given)):
            # RESET without its beginning is a command, of which Redis knows and the hub does not.
            counts["not compared"] += 1
            continue
        assert hidden(given) == hidden(wanted), difference(one, hidden(wanted), hidden(given))


def difference(said: Talk, redis: bytes, hub: bytes) -> str:
    pairs = enumerate(zip(redis, hub, strict=False))
    same = next((at for at, (one, two) in pairs if one != two), min(len(redis), len(hub)))
    shown = slice(max(same - 100, 0), same + 200)
    return f"sent {said.data!r}\nat {same}\nredis {redis[shown]!r}\nhub   {hub[shown]!r}"


def all_heard(port: int, said: Sequence[Sequence[bytes]]) -> list[tuple[bytes, bool]]:
    """Return what each of some connections hears to its end, and whether nothing of that was lost.

    They speak in turn, a piece each."""
    connections = [connected(port) for _ in said]
    whole = [True] * len(said)
    for turn in range(max(len(parts) for parts in said)):
        for at, (connection, parts) in enumerate(zip(connections, said, strict=True)):
            try:
                if turn < len(parts):
                    connection.sendall(parts[turn])
                if turn == len(parts) - 1:
                    connection.shutdown(socket.SHUT_WR)
            except OSError:
                whole[at] = False
    heard = []
    for at, connection in enumerate(connections):
        found = b""
        with connection:
            try:
                while data := connection.recv(1 << 16):
                    found += data
            except ConnectionResetError:
                whole[at] = False
        heard.append((found, whole[at]))
    return heard


def drop(chance: random.Random, port: int, talks: Sequence[Talk]) -> None:
    """The same to the hub, without a look at what it answers, and gone in the middle."""
    connections = [connected(port) for _ in talks]
    for connection, one in zip(connections, talks, strict=True):
        with connection:
            try:
                connection.sendall(one.data[: chance.randrange(len(one.data)) + 1])
                if chance.random() < 0.5:
                    connection.setblocking(False)
                    connection.recv(chance.randrange(1, 200))
            except OSError:
                pass
            if chance.random() < 0.5:
                reset(connection)


def connected(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), 30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def pieces(chance: random.Random, data: bytes) -> list[bytes]:
    """The same, cut at a few random points, some of them side by side."""
    cuts = sorted(chance.randrange(len(data)) for _ in range(chance.randrange(6)))
    cuts = sorted({*cuts, *(cut + 1 for cut in cuts[:2])})
    parts = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    return [part for part in parts if part]


def lines(data: bytes) -> list[bytes]:
    return sorted(hidden(data).split(b"\r\n"))


def hidden(data: bytes) -> bytes:
    """Without what each server has of its own."""
    ((_, found),) = masked([("", data)], MASKED)
    return found
