"""A file in which the auditors of several processes share their observations, in one order."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from interlock.worker.reports.runtime_folder import runtime_folder

__all__ = ["AuditJournal"]


class AuditJournal:
    """The file of one queue; without a path nothing is shared."""

    def __init__(self, path: Path | None) -> None:
        self._descriptor = -1
        self._read = 0
        if path is not None:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(path, flags, 0o600)
            # Earlier lines are about messages that can no longer conflict with this worker's, or
            # about workers that have ended: reading them would cost memory and find nothing.
            self._read = os.fstat(self._descriptor).st_size

    @classmethod
    def of(cls, url: str, queue: str) -> AuditJournal:
        """Return the journal of a queue, in this user's runtime folder. An engine in memory belongs
        to one process."""
        if url.startswith("memory:"):
            return cls(None)
        folder = Path(os.environ.get("INTERLOCK_AUDIT_DIR") or runtime_folder() / "audit")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = hashlib.sha256(f"{url}\n{queue}".encode()).hexdigest()[:24]
        return cls(folder / f"{name}.jsonl")

    @contextlib.contextmanager
    def exchange(self, line: bytes) -> Iterator[list[bytes]]:
        """Return the lines that others wrote since the last call, and append one, under the file's
        lock. The cost is two system calls and the lines themselves."""
        if self._descriptor < 0:
            yield []
            return
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            size = os.fstat(self._descriptor).st_size
            if size < self._read:
                self._read = 0  # another process has emptied it
            others = os.pread(self._descriptor, size - self._read, self._read)
            if size > LONGEST:
                # A process that has not read it yet loses lines: an unchecked order, never a false
                # alarm.
                os.ftruncate(self._descriptor, 0)
                size = 0
            # An unfinished line of a killed process must not swallow this one.
            self._read = size + os.write(self._descriptor, b"\n" + line)
            yield others.split()
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file, which remains on disk."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


LONGEST = 64 * 1024 * 1024
