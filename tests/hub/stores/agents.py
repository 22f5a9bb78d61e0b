"""Hubs that send on what is published to them, and the servers they send to, for the tests."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from interlock.hub import introspection
from interlock.hub.client import Client
from tests.hub.servers import HubProcess, hub_process


class Place:
    """A folder with the configuration, the log and the spools of an agent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "agent.log"
        self.config = folder / "agent.toml"

    def write(self, *stores: str, head: str = "drain = 0.2") -> None:
        text = "".join(f"[[store]]\n{store}\n" for store in stores)
        self.config.write_text(f'port = 0\n{head}\n[log]\nfile = "{self.log}"\n{text}')

    def agent(self, *stores: str, head: str = "drain = 0.2") -> tuple[str, str]:
        """Write the configuration; the flags of a hub that has it."""
        self.write(*stores, head=head)
        return "--config", str(self.config)

    def network(self, port: int, name: str = "up", **more: str) -> str:
        """The table of a store that sends to a port of this machine."""
        keys = {
            "name": f'"{name}"',
            "kind": '"network"',
            "upstream": f'"127.0.0.1:{port}"',
            **more,
        }
        return table(keys)

    def spooled(self, port: int, name: str = "up", **more: str) -> str:
        """The same, with a spool in this folder, and answers once a message is in that."""
        more = {
            "ack": '"disk"',
            "spool_bytes": '"16MB"',
            "spool": f'"{self.folder}/spool-{name}"',
            **more,
        }
        return self.network(port, name, **more)

    def logged(self, text: str, begin: int = 0) -> list[str]:
        """The lines of the log with this text."""
        logged = self.log.read_text()[begin:] if self.log.exists() else ""
        return [line for line in logged.splitlines(keepends=True) if text in line and "\n" in line]

    def wait_for_log(self, hub: HubProcess, text: str, begin: int = 0) -> str:
        """Wait until the log has a line with this text, after this number of characters."""
        while not (found := self.logged(text, begin)):
            assert hub.process.poll() is None, "the hub has ended"
        return found[0]


def table(keys: dict[str, str]) -> str:
    return "\n".join(f"{key} = {value}" for key, value in keys.items())


@contextmanager
def upstream(folder: Path, port: int = 0) -> Iterator[tuple[HubProcess, Path]]:
    """A hub that keeps each topic in a file, once it is on disk; and the folder of these."""
    out = folder / "out"
    config = folder / "upstream.toml"
    config.write_text(
        f'port = {port}\n[log]\nfile = "{folder}/upstream.log"\n[[store]]\nname = "kept"\n'
        f'ack = "disk"\npath = "{out}/[topic].log"\n'
    )
    with hub_process("--config", str(config)) as hub:
        yield hub, out


def client_of(hub: HubProcess) -> Client:
    return Client(f"127.0.0.1:{hub.port}", timeout=60)


def publish(hub: HubProcess, topic: str, messages: Iterable[object]) -> None:
    """Publish messages, each once the one before is answered."""
    with client_of(hub) as client:
        for message in messages:
            client.call("PUBLISH", topic, str(message))


def figures(hub: HubProcess, name: str = "up") -> dict[str, int]:
    with client_of(hub) as client:
        return introspection.stores(introspection.info(client))[name]


def wait_until_delivered(hub: HubProcess, name: str = "up", replayed: int = 0) -> dict[str, int]:
    """Wait until nothing is in flight or spooled, and this number was delivered."""
    while True:
        found = figures(hub, name)
        waiting = found["in_flight"] or found["spooled"]
        if not waiting and found["replayed"] >= replayed:
            return found


def kept(out: Path, topic: str) -> list[int]:
    """The numbers that an upstream has of a topic."""
    path = out / f"{topic}.log"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


class Silent:
    """A server that takes connections and bytes, and never answers."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._taken: list[socket.socket] = []
        self.met = threading.Event()
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def _take(self) -> None:
        while True:
            try:
                taken, _ = self._listener.accept()
            except OSError:
                return
            self._taken.append(taken)
            self.met.set()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for taken in self._taken:
            taken.close()
