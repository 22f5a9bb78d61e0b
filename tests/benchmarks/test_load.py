"""The load on a server: what it counts, and that it notices what is wrong."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator

import pytest

from benchmarks import load
from benchmarks.interpreters import NotPrepared, load_program
from benchmarks.servers import Server, hub
from tests.hub.servers import missing, needs_hub

SHORT = {"seconds": 0.05, "warm": 0.01}


# The first test waits for the program to be built.
pytestmark = pytest.mark.watchdog(300)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    needs_hub()
    if shutil.which("cargo") is None:
        missing("no cargo, which builds the load")
    try:
        load_program()
    except NotPrepared as error:
        missing(str(error))
    with hub(core=None) as running:
        yield running


@pytest.mark.parametrize(
    "options",
    [
        {"publishers": 3, "pipeline": 4},
        {"publishers": 2, "pipeline": 8, "subscribers": 3},
        {"subscribers": 2, "window": 16},
        {"patterns": 10, "pipeline": 4},
        {"patterns": 10, "ends": 1, "pipeline": 4},
    ],
    ids=["nobody", "fan-out", "window", "patterns", "patterns' ends"],
)
def test_a_closed_load_receives_each_delivery_once_and_in_order(
    server: Server, options: dict[str, float]
) -> None:
    receivers = options.get("subscribers", 1 if "patterns" in options else 0)
    figures = load.run("closed", server, SHORT | options, None)
    seconds = SHORT["seconds"]
    # On a busy machine nothing may come in so short a time.
    while not figures.get("delivered" if receivers else "published"):
        seconds *= 4
        figures = load.run("closed", server, SHORT | options | {"seconds": seconds}, None)
    sample = load.throughput(figures)
    assert (sample.lost, sample.misordered) == (0, 0)
    assert sample.messages > 0 and sample.details["cpu_ns"] > 0
    assert (figures["delivered"] > 0) == (receivers > 0)


def test_a_load_at_a_rate_publishes_at_that_rate(server: Server) -> None:
    options = SHORT | {"rate": 1000, "subscribers": 2, "spin": 0, "seconds": 0.2}
    sample = load.latency(load.run("rate", server, options, None))
    assert sample.messages == pytest.approx(0.2 * 1000 * 2, abs=4)
    assert 0 < sample.value <= sample.details["p99_us"] <= sample.details["longest_us"]


def test_idle_connections_and_a_paused_subscriber_cost_memory(server: Server) -> None:
    idle = load.idle(load.run("idle", server, {"connections": 100}, None))
    assert idle.messages == 100
    paused = load.paused(load.run("paused", server, {"owed": 50_000}, None))
    assert (paused.lost, paused.misordered) == (0, 0)
    assert paused.details["resident"] > 1


@pytest.mark.parametrize(
    ("answers", "complaint"),
    [
        (b":1\r\n", "instead of"),
        (b"-ERR no\r\n", "ERR no"),
        (b"", "closed"),
    ],
    ids=["another count", "an error", "nothing"],
)
def test_a_wrong_answer_of_a_server_fails_the_run(
    server: Server, answers: bytes, complaint: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answers)

        thread = threading.Thread(target=serve)
        thread.start()
        wrong = Server(server.pid, listener.getsockname()[1])
        with pytest.raises(RuntimeError, match=complaint):
            load.run("closed", wrong, SHORT, None)
        thread.join()
