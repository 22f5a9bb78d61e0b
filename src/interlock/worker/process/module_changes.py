"""Notices that a module of the program has changed, for ``interlock worker --watch``."""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from collections.abc import Callable

import interlock

__all__ = ["Changes", "sources"]


def sources() -> set[str]:
    """Return the files of all imported modules, except Python's own and installed ones."""
    installed = {
        sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")
    }
    own = os.path.dirname(os.path.abspath(interlock.__file__))
    found = set()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not file or not file.endswith(".py"):
            continue
        path = os.path.abspath(file)
        if not any(path.startswith(folder + os.sep) for folder in (*installed, own)):
            found.add(path)
    return found


class Changes:
    """Polls files; calls back once, on its own thread, when one is changed, new or deleted."""

    def __init__(self, changed: Callable[[str], None], more: set[str] | None = None) -> None:
        self._changed = changed
        self._more = more or set()
        self._seen: dict[str, int] = {}
        self._stop = threading.Event()
        self._look()
        self._thread = threading.Thread(target=self._run, name="interlock-watch-files", daemon=True)

    def start(self) -> None:
        """Start polling: the files that existed at construction, and those imported since."""
        self._thread.start()

    def stop(self) -> None:
        """Stop polling."""
        self._stop.set()

    def _run(self) -> None:
        while (path := self._look()) is None:
            if self._stop.wait(EVERY):
                return
        self._changed(path)

    def _look(self) -> str | None:
        """Return the first file that differs from when it was first seen."""
        for path in sorted(sources() | self._more):
            try:
                stamp = os.stat(path).st_mtime_ns
            except OSError:
                stamp = -1
            if self._seen.setdefault(path, stamp) != stamp:
                return path
        return None


EVERY = 0.3
