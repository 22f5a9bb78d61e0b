"""Small lines that a process writes down before and after each step, and that survive its kill -9.

A line is one `write` to a file opened for appending, so it is there whole or not at all. Its time
is of the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Line:
    """One step of a process."""

    who: str
    at: int
    """ns of the monotonic clock."""
    what: str
    said: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.said[name]

    def get(self, name: str) -> Any:
        """None where the line does not say."""
        return self.said.get(name)

    def __str__(self) -> str:
        words = " ".join(f"{name}={value}" for name, value in self.said.items())
        return f"{self.at / 1e9:.6f} {self.who} {self.what} {words}"


class Log:
    """The lines of one process and of those that take its place."""

    def __init__(self, folder: Path, who: str) -> None:
        self.who = who
        self._file = os.open(
            folder / f"{who}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644
        )

    def say(self, what: str, /, **said: Any) -> None:
        """Write a line."""
        text = json.dumps([time.monotonic_ns(), what, said]) + "\n"
        os.write(self._file, text.encode())

    def close(self) -> None:
        os.close(self._file)


def begun(lease: Any) -> dict[str, Any]:
    """The fields of a line about a lease that was given."""
    return {
        "id": lease.id,
        "token": lease.token,
        "attempt": lease.attempt,
        "sequence": lease.sequence,
        "what": lease.payload,
        "keys": [key.decode() for key in lease.keys],
        "shared": [key.decode() for key in lease.shared],
    }


def read(folder: Path) -> dict[str, list[Line]]:
    """The lines of each process."""
    found: dict[str, list[Line]] = {}
    for path in sorted(folder.glob("*.log")):
        lines = found[path.stem] = []
        for text in path.read_text(encoding="utf-8").splitlines():
            at, what, said = json.loads(text)
            lines.append(Line(path.stem, at, what, said))
    return found
