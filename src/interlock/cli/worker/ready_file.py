"""A file that exists while a worker is ready."""

from __future__ import annotations

import os
from pathlib import Path


class ReadyFile:
    """A context manager that removes the file at its end; without a path it does nothing."""

    def __init__(self, path: str | None) -> None:
        self._path = Path(path) if path else None

    def write(self) -> None:
        """Write the file. Raises OSError if it cannot be written."""
        if self._path is not None:
            # A process that waits for the file never reads half of it.
            half = self._path.with_name(f".{self._path.name}.{os.getpid()}")
            half.write_text(f"{os.getpid()}\n")
            half.replace(self._path)

    def __enter__(self) -> ReadyFile:
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)
