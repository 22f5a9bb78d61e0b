"""Killed under load and started again at once, on the same port and the same unix path."""

from __future__ import annotations

import random
import threading
from contextlib import ExitStack
from pathlib import Path

from interlock.hub.client import Client
from tests.hub.servers import HubProcess, free_port, hub_process

CLIENTS = 4


class Busy(threading.Thread):
    """Publishes and receives, and connects again whenever the hub is gone; counts its messages."""

    def __init__(self, address: str) -> None:
        super().__init__(name="busy")
        self.address = address
        self.stop = threading.Event()
        self.changed = threading.Condition()
        self.exchanged = 0
        self.lives = 0
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                try:
                    with Client(self.address, timeout=60) as client:
                        client.subscribe(f"t{self.ident}")
                        self.lives += 1
                        self.exchange(client)
                except (ConnectionError, FileNotFoundError):
                    continue
        except BaseException as error:
            self.error = error

    def exchange(self, client: Client) -> None:
        while not self.stop.is_set():
            text = str(self.exchanged)
            assert client.publish(f"t{self.ident}", text) == 1
            found = client.message(60)
            assert found is not None
            assert found.payload == text.encode()
            with self.changed:
                self.exchanged += 1
                self.changed.notify_all()

    def progress(self, more: int) -> None:
        with self.changed:
            wanted = self.exchanged + more
            served = self.changed.wait_for(lambda: self.error or self.exchanged >= wanted, 60)
        assert served, "not served again"
        assert self.error is None, self.error


def run(seed: int, times: int, folder: Path) -> dict[str, object]:
    chance = random.Random(seed)
    path = folder / "s"
    port = free_port()
    flags = ("--port", str(port), "--unix", str(path), "--workers", "2")
    with ExitStack() as stack:
        hub = stack.enter_context(hub_process(*flags))
        busy = [Busy([f"127.0.0.1:{port}", f"unix:{path}"][n % 2]) for n in range(CLIENTS)]
        stack.callback(end, busy)
        for _ in range(times):
            for one in busy:
                one.progress(chance.randrange(1, 50))
            hub.process.kill()
            hub.process.wait()
            hub = stack.enter_context(hub_process(*flags))
        for one in busy:
            one.progress(10)
        end(busy)
        check(hub)
    assert all(one.error is None for one in busy)
    assert all(one.lives == times + 1 for one in busy)
    return {
        "kills and starts": times,
        "clients": CLIENTS,
        "messages exchanged": sum(one.exchanged for one in busy),
    }


def end(busy: list[Busy]) -> None:
    for one in busy:
        one.stop.set()
    for one in busy:
        one.join()


def check(hub: HubProcess) -> None:
    code, _, errors = hub.end()
    assert (code, errors) == (0, "interlock hub: stopping\n")
