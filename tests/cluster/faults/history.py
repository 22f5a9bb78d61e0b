"""The history of a run: every operation of its clients, when it began and ended, and its answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

OK, FAILED, UNKNOWN = "ok", "failed", "unknown"
"""Answers: done; surely not done; unknown, because the connection was lost or the time ran out."""

READ = "read"


@dataclass(frozen=True)
class Operation:
    """One operation of a client, as a line of the history."""

    id: str
    """It is written into the row where the command can, so that a reader sees whose write it is."""

    client: str
    node: str
    """The place; a client of the whole cluster is a place by itself."""
    dc: str
    kind: str
    """read, incr, high, flags, set, patch, put, delete, expire, cas, begin."""

    key: str
    start: float
    """Seconds of the machine's monotonic clock, one for all clients."""

    end: float
    answer: str
    value: int = 0
    """The number that it writes or adds."""

    reply: int | None = None
    """The number that an increment was answered with."""

    row: dict[str, int | str] | None = None
    """The row that a read saw; None for no row."""

    error: str = ""

    linear: bool = False
    """A read that is to show all that any node of the data centre had answered before."""

    expected: int = 0
    """The number that a compare-and-set goes by."""

    @property
    def reads(self) -> bool:
        return self.kind == READ

    def __str__(self) -> str:
        return json.dumps({name: value for name, value in asdict(self).items() if value != ""})


class Recorder:
    """Writes operations into a file, from any thread, and keeps them."""

    def __init__(self, path: Path) -> None:
        self.operations: list[Operation] = []
        self._file = path.open("w", encoding="utf-8")
        self._lock = threading.Lock()

    def add(self, operation: Operation) -> None:
        with self._lock:
            self.operations.append(operation)
            self._file.write(f"{operation}\n")

    def note(self, text: str, at: float) -> None:
        """Write down what was done to the cluster; no operation of anybody."""
        with self._lock:
            self._file.write(json.dumps({"note": text, "at": at}) + "\n")

    def close(self) -> None:
        with self._lock:
            self._file.close()


def read(path: Path) -> list[Operation]:
    """The operations of a file."""
    return loaded(path.read_text(encoding="utf-8").splitlines())


def loaded(lines: Iterable[str]) -> list[Operation]:
    found = (json.loads(line) for line in lines)
    return [Operation(**one) for one in found if "note" not in one]
