"""The thread that appends a primary's entries to its data centre's stream, in their order."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable

from interlock.cluster.streams import ChangeStream, StreamUnavailable

logger = logging.getLogger("interlock.cluster")
MOST = 64
"""Entries that are appended in one go."""
PAUSE = 0.05


class Appender:
    """Appends what it is given; between two appends it has more gathered by `flush`."""

    def __init__(
        self,
        stream: Callable[[], ChangeStream],
        lock: threading.RLock,
        flush: Callable[[], None],
    ) -> None:
        self.error = ""
        """The reason why nothing can be appended just now; empty: it can."""
        self.entries = 0
        self._open = stream
        self._flush = flush
        # The node's own: who gathers writes must see whether they would be appended at once.
        self._arrived = threading.Condition(lock)
        self._waiting: list[bytes] = []
        self._busy = False
        self._ends = False
        self._stream: ChangeStream | None = None
        self._thread = threading.Thread(target=self._run, name="node-appender", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End; what is not appended is forgotten."""
        with self._arrived:
            self._ends = True
            self._arrived.notify()
        if self._stream is not None:
            self._stream.interrupt()
        self._thread.join()

    @property
    def is_idle(self) -> bool:
        """True if an entry that is given now is appended at once."""
        return not self._busy and not self._waiting

    def append(self, entry: bytes) -> None:
        """Append an entry, behind those before it."""
        with self._arrived:
            self._waiting.append(entry)
            self._arrived.notify()

    def drop(self) -> None:
        """Forget what is not appended, or may not be."""
        with self._arrived:
            self._waiting.clear()

    def _run(self) -> None:
        while True:
            with self._arrived:
                self._busy = False
                while not self._waiting and not self._ends:
                    self._arrived.wait()
                if self._ends:
                    break
                self._busy = True
                taken = self._waiting[:MOST]
            self._append(taken)
            with self._arrived:
                # What was dropped meanwhile is not there any more.
                if self._waiting[: len(taken)] == taken:
                    del self._waiting[: len(taken)]
                if not self._waiting:
                    self._flush()
        if self._stream is not None:
            with contextlib.suppress(OSError):
                self._stream.close()

    def _append(self, entries: list[bytes]) -> None:
        while not self._ends:
            try:
                if self._stream is None:
                    self._stream = self._open()
                self._stream.append(entries)
                self.entries += len(entries)
                self.error = ""
                return
            except (StreamUnavailable, OSError) as error:
                if not self.error:
                    logger.warning("the stream takes nothing: %s", error)
                self.error = str(error)
            with self._arrived:
                if self._waiting[: len(entries)] != entries:
                    return
                self._arrived.wait(PAUSE)
