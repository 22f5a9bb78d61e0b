"""All of it on one machine: a hub in this process, and gateways as processes of their own."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from interlock import Hub
from state import Gateway, State

PROGRAM = Path(__file__).with_name("gateway.py")


class Service:
    """A hub, two tables, an inbox, and the gateways that were started."""

    def __init__(self, folder: Path) -> None:
        self.name = f"push-{uuid.uuid4().hex[:8]}"
        self.state = State.open(self.name)
        self.gateways: dict[str, subprocess.Popen[bytes]] = {}
        self._inbox = folder / "inbox.db"
        # With a journal, events outlast the hub too.
        self._hub = Hub(port=0, queues={"journal": str(folder / "journal")})

    def start(self, kind: str, port: int = 0) -> Gateway:
        """Start a gateway, under a name that none had before; return its row, once it is there."""
        name = f"{kind}-{uuid.uuid4().hex[:4]}"
        self.gateways[name] = process = subprocess.Popen(
            [
                *(sys.executable, PROGRAM, "--name", name, "--hub", self._hub.addresses[0]),
                *("--service", self.name, "--inbox", self._inbox, "--port", str(port)),
            ]
        )
        while name not in self.state.gateways:
            if process.poll() is not None:
                raise RuntimeError(f"gateway {name} ended in {process.returncode}")
            time.sleep(0.02)
        row: Gateway = self.state.gateways[name]
        return row

    def kill(self, name: str) -> None:
        """Kill a gateway as ``kill -9`` does."""
        process = self.gateways.pop(name)
        process.kill()
        process.wait()

    def __enter__(self) -> Self:
        try:
            self._hub.start()
        except BaseException:
            State.remove(self.name)
            raise
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        for process in self.gateways.values():
            process.terminate()
        for process in self.gateways.values():
            process.wait()
        self._hub.stop()
        State.remove(self.name)
