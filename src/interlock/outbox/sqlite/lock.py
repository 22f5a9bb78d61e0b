"""The relay's lock beside an SQLite file: the system releases it, however its process ends."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
from pathlib import Path

__all__ = ["FileLock", "holder"]

_held: set[tuple[int, Path]] = set()
"""Process and path of the locks that are held here: one of the system is not kept from a second
thread of its process, and goes when any descriptor of the file is closed."""
_holding = threading.Lock()


class FileLock:
    """A lock that one holder of all processes and threads has.

    Args:
        path: the database; the lock is on a file beside it, with ``-relay`` added to its name.
    """

    def __init__(self, path: Path) -> None:
        self._path = lock_path(path)
        self._file: int | None = None

    def acquire(self) -> bool:
        """Try to get it. Raises OSError if the file cannot be opened."""
        with _holding:
            mine = os.getpid(), self._path
            if mine in _held:
                return False
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(file)
                return False
            os.ftruncate(file, 0)
            os.pwrite(file, f"{socket.gethostname()} pid {os.getpid()}".encode(), 0)
            self._file = file
            _held.add(mine)
            return True

    def release(self) -> None:
        """Give it back, if it is held."""
        with _holding:
            if self._file is not None:
                os.close(self._file)
                self._file = None
                _held.discard((os.getpid(), self._path))


def holder(path: Path) -> str | None:
    """Return the host and the process that has the lock; None: none has it."""
    found = lock_path(path)
    with _holding:
        if (os.getpid(), found) not in _held:
            try:
                file = os.open(found, os.O_RDWR | os.O_CLOEXEC)
            except OSError:
                return None
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return None
            except OSError:
                pass
            finally:
                os.close(file)
        try:
            return found.read_text(encoding="utf-8") or "unknown"
        except OSError:
            return "unknown"


def lock_path(path: Path) -> Path:
    """Return the path of the lock's file."""
    return path.with_name(f"{path.name}-relay")
