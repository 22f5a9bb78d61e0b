"""No descriptor is left: the hub serves those it has, waits without spinning, and takes the rest
once there is room."""

from __future__ import annotations

import random
import resource
import socket
import time
from contextlib import ExitStack
from pathlib import Path

from interlock.hub.resp import command
from tests.hub.faults.measures import measured_hub
from tests.hub.faults.witness import Witness

ROOM = 10
# CPU limit of the accepting thread. A spinning one takes all free time of a processor, a look
# each 20 ms takes next to nothing; the kernel counts in steps of 10 ms.
MOST_SHARE = 0.05
LOOKS = 50
ROUNDS = 300


def run(seed: int, connections: int, folder: Path) -> dict[str, object]:
    """`connections` more than there is room for, some over TCP and some over a unix socket."""
    chance = random.Random(seed)
    path = folder / "s"
    with (
        measured_hub("--workers", "2", "--unix", str(path)) as hub,
        Witness(hub.address) as seen,
        ExitStack() as stack,
    ):
        hub.settle(3)
        before = resource.prlimit(hub.pid, resource.RLIMIT_NOFILE)
        limit = hub.descriptors() + ROOM
        resource.prlimit(hub.pid, resource.RLIMIT_NOFILE, (limit, before[1]))
        waiting = []
        for _ in range(ROOM + connections):
            connection: socket.socket
            if chance.random() < 0.5:
                connection = socket.create_connection(("127.0.0.1", hub.port), 60)
            else:
                connection = socket.socket(socket.AF_UNIX)
                connection.settimeout(60)
                connection.connect(str(path))
            stack.enter_context(connection)
            # It waits in the kernel, and so does what it says.
            connection.sendall(command("PING"))
            waiting.append(connection)
        while hub.figures()["accept_errors"] == 0:
            pass
        assert hub.figures()["connected_clients"] <= 3 + ROOM
        seen.progress()
        looks, used = hub.figures()["accept_errors"], hub.processor_seconds("hub-accept")
        start, rounds = time.monotonic(), seen.rounds
        while hub.figures()["accept_errors"] - looks < LOOKS or seen.rounds - rounds < ROUNDS:
            seen.progress(1)
        used = hub.processor_seconds("hub-accept") - used
        share = used / (time.monotonic() - start)
        assert share < MOST_SHARE, f"{share:.0%} of a processor is spent on looking"
        served = 0
        while waiting:
            # A served connection makes room for another, in any order.
            for connection in list(waiting):
                connection.setblocking(False)
                try:
                    answer = connection.recv(100)
                except BlockingIOError:
                    continue
                assert answer == b"+PONG\r\n"
                connection.close()
                waiting.remove(connection)
                served += 1
            seen.progress(1)
        resource.prlimit(hub.pid, resource.RLIMIT_NOFILE, before)
        figures = hub.settle(3)
        return {
            "room for": ROOM,
            "served at the end": served,
            "accepts without a descriptor": figures["accept_errors"],
            "processor time for these accepts": f"{share:.1%}",
            "rounds of the witness": seen.rounds,
        }
