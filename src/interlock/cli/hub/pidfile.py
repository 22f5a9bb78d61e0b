"""A file with the process's number, which also keeps a second hub from starting on it."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from types import TracebackType
from typing import Self


class Taken(Exception):
    """A live hub has the file; the text names it."""


class PidFile:
    """Holds the file inside `with`, and removes it at the end.

    A lock shows that its process lives, and the kernel releases the lock with the process: a number
    alone may be another process's by now. The file is put in place whole, by link and rename, so a
    reader never finds half a number.
    """

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)
        self._file = -1

    def __enter__(self) -> Self:
        """Take it. Raises Taken if a live hub has it, OSError if it cannot be written."""
        import tempfile  # imported here, because it takes megabytes

        folder, name = os.path.split(self._path)
        file, temporary = tempfile.mkstemp(prefix=f"{name}.", dir=folder)
        try:
            os.fchmod(file, 0o644)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(file, f"{os.getpid()}\n".encode())
            while not self._placed(temporary):
                pass
        except BaseException:
            os.close(file)
            raise
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
        self._file = file
        return self

    def _placed(self, temporary: str) -> bool:
        """Put the new file in its place.

        Return False if another process was quicker, and a retry is needed.
        """
        try:
            os.link(temporary, self._path)
            return True
        except FileExistsError:
            pass
        try:
            old = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return False
        try:
            self._locked(old)
            # Of two processes that find a stale file, the second has locked a removed one.
            if not self._is_at_path(old):
                return False
            os.rename(temporary, self._path)
            return True
        finally:
            os.close(old)

    def _locked(self, old: int) -> None:
        """Lock the existing file. Raises Taken if a live process has it."""
        try:
            fcntl.flock(old, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            number = os.pread(old, LONGEST_NUMBER, 0).decode(errors="replace").strip()
            raise Taken(f"{self._path}: a hub is already running, process {number}") from None

    def _is_at_path(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), os.stat(self._path))
        except FileNotFoundError:
            return False

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        # Removed while it is locked, and only if it is still this one.
        if self._is_at_path(self._file):
            with suppress(OSError):
                os.unlink(self._path)
        os.close(self._file)


LONGEST_NUMBER = 32
