"""The kernel's figures of a hub that runs as a process: memory, descriptors, threads, CPU time."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from interlock.hub.client import Client
from tests.hub.servers import HubProcess, hub_process

MIB = 1 << 20


class Measured:
    """A hub as a process, with a connection to ask it by."""

    def __init__(self, hub: HubProcess) -> None:
        self.hub = hub
        self.pid = hub.process.pid
        self.port = hub.port
        self.address = f"127.0.0.1:{hub.port}"
        self.control = Client(self.address, timeout=30, name="control")

    def figures(self) -> dict[str, int]:
        """INFO, as far as it is numbers."""
        info = self.control.call("INFO")
        assert isinstance(info, bytes)
        found = re.findall(rb"^(\w+):(\d+)\r$", info, re.MULTILINE)
        return {name.decode(): int(value) for name, value in found}

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def threads(self) -> int:
        """A worker that ends by a fault takes its thread with it."""
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def resident(self) -> int:
        return self._status("VmRSS")

    def peak(self) -> int:
        """The most that was resident since `forget_peak`."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def processor_seconds(self, thread: str) -> float:
        """The processor time that the threads of this name have used."""
        return processor_seconds(self.pid, thread)

    def settle(self, clients: int) -> dict[str, int]:
        """Ask until this number of connections is left, up to the watchdog; answer INFO then."""
        while True:
            figures = self.figures()
            if figures["connected_clients"] == clients:
                return figures

    def _status(self, name: str) -> int:
        text = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE)
        assert found is not None
        return int(found[1]) << 10


def processor_seconds(pid: int, thread: str) -> float:
    """The processor time that a process's threads of this name have used."""
    ticks = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        text = (task / "stat").read_text()
        name, _, fields = text.partition("(")[2].rpartition(")")
        if name == thread:
            ticks += sum(int(field) for field in fields.split()[11:13])
    return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def measured_hub(*flags: str, **settings: object) -> Iterator[Measured]:
    """A hub on a free port, with settings as the environment names them (`limits__pubsub__hard`).

    At the end it must still be there with all its threads, and stop as it should.
    """
    environment = {
        f"INTERLOCK_HUB_{name.replace('__', '_').upper()}": str(value)
        for name, value in settings.items()
    }
    with hub_process("--port", "0", *flags, environment=environment) as process:
        hub = Measured(process)
        with closing(hub.control):
            threads = hub.threads()
            yield hub
            assert hub.control.call("PING") == "PONG"
            assert hub.threads() == threads, "a thread of the hub has ended"
        code, _, errors = process.end()
        # Beside the lines of the log, which begin with their time.
        said = [line for line in errors.splitlines() if not line[:4].isdigit()]
        assert (code, said) == (0, ["interlock hub: stopping"])
