"""The load on a queue: what it counts on each side, and that it notices what is wrong."""

from __future__ import annotations

import shutil
import socket
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from benchmarks import load
from benchmarks.interpreters import NotPrepared, load_program
from benchmarks.pipelines import connected
from benchmarks.servers import Server, hub, redis
from tests.hub.servers import missing, needs_hub

SHORT = {"seconds": 0.05, "warm": 0.01, "spin": 0}
SIDES = ("hub", "interlock", "streams", "lists")


# The first test waits for the program to be built.
pytestmark = pytest.mark.watchdog(300)


@pytest.fixture(scope="module")
def a_hub() -> Iterator[Server]:
    needs_hub()
    with hub(core=None) as running:
        yield running


@pytest.fixture
def side(request: pytest.FixtureRequest, server: Server, a_hub: Server) -> Side:
    """A queue of the load, and the server that has it."""
    if request.param == "hub":
        return Side("interlock", a_hub)
    return Side(request.param, server)


@dataclass(frozen=True)
class Side:
    name: str
    server: Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    for program in ("redis-server", "cargo"):
        if shutil.which(program) is None:
            missing(f"no {program}")
    try:
        load_program()
    except NotPrepared as error:
        missing(str(error))
    with redis(core=None) as running:
        connected(running).close()
        yield running


@pytest.mark.parametrize("side", SIDES, indirect=True)
@pytest.mark.parametrize(
    "options",
    [
        {"clients": 3, "batch": 4, "keys": 1_000},
        {"clients": 4, "batch": 8, "keys": 5, "each": 3, "wait": 1_000},
        {"clients": 2, "keys": 1, "each": 1, "backlog": 100, "payload": 16},
    ],
    ids=["many keys", "few keys", "one key"],
)
@pytest.mark.share(2)
def test_a_closed_load_receives_each_message_once_and_in_order(
    side: Side, options: dict[str, float]
) -> None:
    if side.name == "lists":
        # A batch of those that wait would wait one after the other.
        options = options | {"wait": 0}
    sample = load.throughput(load.run(f"queue-{side.name}", side.server, SHORT | options, None))
    assert (sample.lost, sample.misordered) == (0, 0)
    assert sample.messages > 0 and sample.details["cpu_ns"] > 0


@pytest.mark.parametrize("side", SIDES, indirect=True)
def test_a_load_at_a_rate_puts_at_that_rate(side: Side) -> None:
    options = SHORT | {"rate": 1_000, "clients": 2, "seconds": 0.2, "wait": 20_000}
    sample = load.latency(load.run(f"handled-{side.name}", side.server, options, None))
    assert sample.messages == pytest.approx(200, abs=2)
    assert (sample.lost, sample.misordered) == (0, 0)
    assert 0 < sample.value <= sample.details["p99_us"] <= sample.details["longest_us"]


def test_each_level_of_pending_messages_has_its_figures(server: Server) -> None:
    options = SHORT | {"backlog": 2_000, "batch": 4, "each": 1}
    figures = load.run("levels-interlock", server, options, None)
    for pending in (1_000, 2_000):
        sample = load.level(pending, figures)
        assert sample.value > 0 and (sample.lost, sample.misordered) == (0, 0)
    assert figures["delivered"] >= 2_000


@pytest.mark.parametrize(
    ("fault", "lost", "misordered"),
    [("none", 0, 0), ("lost", 1, 0), ("refused", 2, 0), ("twice", 0, 1), ("swapped", 0, 1),
     ("beside", 0, 1)],
)  # fmt: skip
def test_violations_of_a_server_are_counted(
    server: Server, fault: str, lost: int, misordered: int
) -> None:
    with wrong_server(fault) as port:
        options = SHORT | {"clients": 1, "keys": 1, "each": 1, "backlog": 2}
        wrong = Server(server.pid, port)
        sample = load.throughput(load.run("queue-interlock", wrong, options, None))
    assert sample.messages > 0
    assert sample.lost == lost
    assert (sample.misordered > 0) == (misordered > 0)


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [("payload", "a payload"), ("key", "other keys"), ("attempt", "attempt"), ("error", "OOM")],
)
def test_an_unknown_message_fails_the_run(server: Server, fault: str, complaint: str) -> None:
    options = SHORT | {"clients": 1, "keys": 1, "each": 1}
    with wrong_server(fault) as port, pytest.raises(RuntimeError, match=complaint):
        load.run("queue-interlock", Server(server.pid, port), options, None)


@contextmanager
def wrong_server(fault: str) -> Iterator[int]:
    """Puts and leases of one connection, one fault in the fifth lease. Its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, fault), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
    thread.join()


def _serve(listener: socket.socket, fault: str) -> None:
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    pending: deque[list[bytes]] = deque()
    calls, last = 0, 10**15
    with connection, connection.makefile("rb") as commands:
        while command := _read(commands):
            name = command[1]
            if name == b"il1_version":
                answer = [b"1", b"hash"]
            elif name == b"il1_put":
                answer = []
                for place in range(7, len(command), 5):
                    last += 1
                    pending.append([b"%d" % last, command[place], command[place + 4]])
                    answer += [b"%d" % last, b"0"]
            else:
                calls += 1
                settlements = (len(command) - 10) // 3
                leases = _lease(pending, fault if calls == 5 else "none")
                answers = [b"ACKED"] * settlements
                if calls == 5 and fault == "refused":
                    answers = [b"LEASELOST"] * settlements
                answer = [b"%d" % settlements, *answers]
                answer += [b"1", b"1", b"", b"%d" % len(leases)]
                for message, payload, key in leases:
                    attempt = b"2" if calls == 5 and fault == "attempt" else b"1"
                    answer += [message, b"", attempt, payload, b"1", b"0", key]
            if calls == 5 and fault == "error":
                connection.sendall(b"-OOM no\r\n")
                return
            words = [b"$%d\r\n%s\r\n" % (len(word), word) for word in answer]
            connection.sendall(b"*%d\r\n%s" % (len(words), b"".join(words)))


def _lease(pending: deque[list[bytes]], fault: str) -> list[list[bytes]]:
    if not pending:
        return []
    if fault == "lost":
        pending.popleft()
    if fault == "swapped":
        pending.rotate(-1)
    first = pending.popleft()
    if fault == "swapped":
        pending.rotate(1)
    if fault == "twice":
        pending.append(first)
    if fault == "payload":
        first = [first[0], first[1][:-1] + b"y", first[2]]
    if fault == "key":
        first = [*first[:2], b"k0000001"]
    return [first, pending.popleft()] if fault == "beside" else [first]


def _read(commands: Any) -> list[bytes]:
    """A command; none where the connection ends."""
    count = commands.readline()
    if not count:
        return []
    words = []
    for _ in range(int(count[1:])):
        length = int(commands.readline()[1:])
        words.append(commands.read(length + 2)[:-2])
    return words
