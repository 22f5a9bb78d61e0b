"""Clients that abuse a hub: held halves, announced giants, trickles, noise, TLS on a plain port.

Each ends in an error reply or a close, or continues where it left off; the hub's memory stays under
a bound that grows with what was really sent; others are served meanwhile."""

from __future__ import annotations

import random
import socket
import ssl
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from interlock.hub.resp import command
from tests.hub.faults.measures import MIB, Measured, measured_hub
from tests.hub.faults.witness import Witness

# For what a worker reads into, buffers of replies and what the allocator keeps.
SLACK = 8 * MIB
# A buffer that grows may be twice as long as what is in it.
GROWTH = 2


def run(seed: int, connections: int, folder: Path) -> dict[str, object]:
    del folder
    chance = random.Random(seed)
    figures: dict[str, object] = {"connections of each kind": connections}
    with measured_hub("--workers", "2") as hub, Witness(hub.address) as seen:
        for what in KINDS:
            hub.settle(3)
            before = hub.resident()
            hub.forget_peak()
            bound = what(chance, hub, seen, connections) + SLACK
            seen.progress()
            grown = hub.peak() - before
            assert grown < bound, f"{what.__name__}: {grown} bytes more, and {bound} is the bound"
            name = what.__name__.replace("_", " ")
            figures[f"{name}: peak growth, MiB (bound)"] = f"{grown / MIB:.1f} ({bound / MIB:.1f})"
        figures["rounds of the witness"] = seen.rounds
    return figures


def held_halves(chance: random.Random, hub: Measured, seen: Witness, count: int) -> int:
    """They are not dead connections: each continues when its other half arrives."""
    whole = command("ECHO", b"x" * 10_000)
    with ExitStack() as stack:
        halves = [stack.enter_context(opened(hub)) for _ in range(count)]
        cuts = [chance.randrange(1, len(whole)) for _ in halves]
        for half, cut in zip(halves, cuts, strict=True):
            half.sendall(whole[:cut])
        while hub.figures()["client_query_buffer_bytes"] < sum(cuts):
            seen.progress(1)
        for half, cut in zip(halves, cuts, strict=True):
            half.sendall(whole[cut:])
            assert exactly(half, 10_010) == b"$10000\r\n" + b"x" * 10_000 + b"\r\n"
    return GROWTH * sum(cuts)


def bulk_of_600_mb(_chance: random.Random, hub: Measured, _seen: Witness, count: int) -> int:
    for _ in range(count):
        with opened(hub) as greedy:
            greedy.sendall(b"*2\r\n$4\r\nECHO\r\n$%d\r\n" % (600 * MIB))
            assert to_the_end(greedy) == b"-ERR Protocol error: invalid bulk length\r\n"
    return 0


def bulk_of_512_mb_trickled(
    _chance: random.Random, hub: Measured, seen: Witness, _count: int
) -> int:
    """Memory for as much as was sent, and up to query_limit only."""
    sent = 4 * MIB
    with opened(hub) as greedy:
        greedy.sendall(b"*2\r\n$4\r\nECHO\r\n$%d\r\n" % (512 * MIB))
        for _ in range(sent // 4096):
            greedy.sendall(b"x" * 4096)
        while hub.figures()["client_query_buffer_bytes"] < sent:
            seen.progress(1)
    return GROWTH * sent


def bulk_of_512_mb_sent(_chance: random.Random, hub: Measured, _seen: Witness, _count: int) -> int:
    """It ends at query_limit, 64 MiB, and what it took is given back."""
    before = hub.figures()["client_query_buffer_limit_disconnections"]
    with opened(hub) as greedy:
        try:
            greedy.sendall(b"*2\r\n$4\r\nECHO\r\n$%d\r\n" % (512 * MIB))
            for _ in range(512):
                greedy.sendall(b"x" * MIB)
            raise AssertionError("512 MB were taken")
        except (BrokenPipeError, ConnectionResetError):
            pass
    assert hub.settle(3)["client_query_buffer_limit_disconnections"] == before + 1
    # Old and new place of a buffer while it moves.
    return (1 + GROWTH) * 64 * MIB


def a_million_elements(_chance: random.Random, hub: Measured, _seen: Witness, _count: int) -> int:
    """Of one request: each element takes six bytes, and its place in the request eight."""
    count = 1_000_000
    request = b"*%d\r\n$4\r\nECHO\r\n" % count + b"$0\r\n\r\n" * (count - 1)
    with opened(hub) as greedy:
        greedy.sendall(request + command("PING"))
        answer = b"-ERR wrong number of arguments for 'echo' command\r\n+PONG\r\n"
        assert exactly(greedy, len(answer)) == answer
    return GROWTH * (len(request) + 8 * count) + len(request)


def elements_without_end(_chance: random.Random, hub: Measured, _seen: Witness, _count: int) -> int:
    before = hub.figures()["client_query_buffer_limit_disconnections"]
    with opened(hub) as greedy:
        try:
            greedy.sendall(b"*2147483647\r\n")
            for _ in range(512):
                greedy.sendall(b"$0\r\n\r\n" * (MIB // 6))
            raise AssertionError("a request of 512 MB was taken")
        except (BrokenPipeError, ConnectionResetError):
            pass
    assert hub.settle(3)["client_query_buffer_limit_disconnections"] == before + 1
    return (1 + GROWTH) * 64 * MIB + GROWTH * 8 * (64 * MIB // 6)


def slow_loris(_chance: random.Random, hub: Measured, seen: Witness, count: int) -> int:
    """One byte of each in turn, and others are served between."""
    request = command("PUBLISH", "nobody", "listens")
    with ExitStack() as stack:
        slow = [stack.enter_context(opened(hub)) for _ in range(count)]
        for at in range(len(request)):
            for one in slow:
                one.sendall(request[at : at + 1])
            if at % 10 == 0:
                seen.progress(1)
        for one in slow:
            assert exactly(one, 4) == b":0\r\n"
    return count * 4096


def noise(chance: random.Random, hub: Measured, _seen: Witness, count: int) -> int:
    """It ends in an error reply, or in a close once the client says it is done."""
    for _ in range(count):
        data = chance.randbytes(chance.randrange(1, 3000))
        with opened(hub) as noisy:
            try:
                noisy.sendall(data)
                if chance.random() < 0.5:
                    # A request that was begun is ended by a line end, and then there is an answer.
                    noisy.sendall(b"\r\n" + command("NOISE"))
                    if data[:1] != b"*":
                        assert noisy.recv(1 << 16)[:1] in (b"-", b"")
                noisy.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            assert to_the_end(noisy)[:1] in (b"-", b"")
    return 0


def tls(_chance: random.Random, hub: Measured, _seen: Witness, count: int) -> int:
    """A client of TLS learns immediately that this port does not speak it."""
    context = ssl.create_default_context()
    for _ in range(count):
        outgoing = ssl.MemoryBIO()
        client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="hub")
        with suppress(ssl.SSLWantReadError):
            client.do_handshake()
        with opened(hub) as greeting:
            greeting.sendall(outgoing.read())
            # Its list of groups has the number 10 before it, which ends a line.
            assert greeting.recv(1) == b"-"
    with opened(hub) as plain:
        try:
            context.wrap_socket(plain, server_hostname="hub")
            raise AssertionError("a hub without TLS shook hands")
        except ssl.SSLError:
            pass
    return 0


def opened(hub: Measured) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", hub.port), 30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        data = connection.recv(count - len(found))
        assert data, f"closed after {found[-100:]!r}"
        found += data
    return found


def to_the_end(connection: socket.socket) -> bytes:
    """All that comes until the hub closes, well or not; its silence fails by the socket's limit."""
    found = b""
    try:
        while data := connection.recv(1 << 16):
            found += data
    except ConnectionResetError:
        pass
    return found


Kind = Callable[[random.Random, Measured, Witness, int], int]
KINDS: list[Kind] = [
    held_halves,
    bulk_of_600_mb,
    bulk_of_512_mb_trickled,
    a_million_elements,
    slow_loris,
    noise,
    tls,
    bulk_of_512_mb_sent,
    elements_without_end,
]
