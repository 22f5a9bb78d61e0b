"""A file in which the auditors of several processes tell each other what they saw, in one order."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from interlock.worker.runtime_folder import runtime_folder

__all__ = ["AuditJournal"]


class AuditJournal:
    """One queue's file; without a path nobody is told and nobody is heard."""

    def __init__(self, path: Path | None) -> None:
        self._descriptor = -1
        self._read = 0
        if path is not None:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(path, flags, 0o600)
            # What was before is of messages that this worker's cannot meet any more, or of
            # workers that are gone: it would cost memory and find nothing.
            self._read = os.fstat(self._descriptor).st_size

    @classmethod
    def of(cls, url: str, queue: str) -> AuditJournal:
        """Return that of a queue, in the folder that is this user's while the machine runs.
        An engine in memory is one process's own."""
        if url.startswith("memory:"):
            return cls(None)
        folder = Path(os.environ.get("INTERLOCK_AUDIT_DIR") or runtime_folder() / "audit")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = hashlib.sha256(f"{url}\n{queue}".encode()).hexdigest()[:24]
        return cls(folder / f"{name}.jsonl")

    @contextlib.contextmanager
    def exchange(self, line: bytes) -> Iterator[list[bytes]]:
        """Under the file's lock: gives the lines of others since the last time, and adds one. Two
        system calls and the lines themselves are what it costs."""
        if self._descriptor < 0:
            yield []
            return
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            size = os.fstat(self._descriptor).st_size
            if size < self._read:
                self._read = 0  # another has emptied it
            others = os.pread(self._descriptor, size - self._read, self._read)
            if size > LONGEST:
                # Who has not read it yet forgets: an order not checked, never a false alarm.
                os.ftruncate(self._descriptor, 0)
                size = 0
            # A line that a killed process left unfinished must not swallow this one.
            self._read = size + os.write(self._descriptor, b"\n" + line)
            yield others.split()
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file, which stays."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


LONGEST = 64 * 1024 * 1024
