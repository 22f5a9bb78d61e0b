"""Settings of all processes of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import interlock
from interlock import Retry
from interlock.client.faces.queue import RemoteQueue

QUEUE = "transfers"
RETRY = Retry(attempts=None, first=0.02, factor=1.5, longest=0.2)


@dataclass(frozen=True)
class Job:
    """Settings of all processes of a run."""

    url: str
    folder: Path
    seed: int
    lease: float
    """Seconds."""
    timeout: float
    """Timeout of a client's calls, seconds: a server stopped for longer counts as gone."""
    maxsize: int
    messages: int
    """Number of messages of each producer."""
    bell: int
    """A pipe: a byte for each put that was answered."""
    mutant: str = ""
    """A fault that the checks must find: early-ack, unfenced, or one of the server's."""

    @property
    def bank(self) -> Path:
        return self.folder / "bank.sqlite"

    def queue(self) -> RemoteQueue[dict[str, Any]]:
        client = interlock.connect(f"{self.url}?timeout={self.timeout}")
        return client.queue(
            QUEUE, dict[str, Any], lease=self.lease, retry=RETRY, maxsize=self.maxsize
        )
