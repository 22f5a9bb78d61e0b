"""`interlock queue` on a terminal of its own."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Terminal:
    """The command on a terminal of its own: all that it shows, and what is typed."""

    def __init__(self, *words: str) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "interlock", "queue", *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm"},
            start_new_session=True,
        )
        os.close(slave)
        self.shown = ""

    def until(self, text: str) -> None:
        """Reads until this was shown."""
        end = time.monotonic() + PATIENCE
        while text not in self.shown:
            assert self._read(end), self.shown

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def rest(self) -> int:
        """Reads to the end, and gives the exit code."""
        end = time.monotonic() + PATIENCE
        while self._read(end):
            pass
        return self.process.wait(PATIENCE)

    def _read(self, end: float) -> bool:
        """Reads some; False at the end."""
        ready, _, _ = select.select([self._master], [], [], max(end - time.monotonic(), 0))
        assert ready, f"nothing more came in {PATIENCE} s: {self.shown}"
        try:
            some = os.read(self._master, 4096)
        except OSError:  # Linux reports this when the last one has closed it
            return False
        self.shown += some.decode()
        return bool(some)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


@contextmanager
def terminal(*words: str) -> Iterator[Terminal]:
    opened = Terminal(*words)
    try:
        yield opened
    finally:
        opened.close()


PATIENCE = 20
