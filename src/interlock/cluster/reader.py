"""The thread that reads the data centre's stream, and gets a snapshot when it lacks something."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from interlock.cluster.machine import Machine
from interlock.cluster.peers import Peers
from interlock.cluster.streams import ChangeStream, PositionLost, StreamUnavailable
from interlock.cluster.transfer import ScanLost, scan
from interlock.engine.announcements import Announcement

logger = logging.getLogger("interlock.cluster")
MOST = 256
FEW = 64
FEW_BYTES = 1 << 20
WAIT = 0.5
PAUSE = 0.2


class Reader:
    """Reads from where the machine stands, for as long as the node lives."""

    def __init__(
        self,
        machine: Machine,
        lock: threading.RLock,
        stream: Callable[[], ChangeStream],
        others: Callable[[], list[Announcement]],
        fresh: Callable[[], None],
        peers: Peers,
        patience: float,
    ) -> None:
        self.error = ""
        self.resyncs = 0
        self._machine = machine
        self._lock = lock
        self._open = stream
        self._others = others
        self._fresh = fresh
        self._peers = peers
        self._patience = patience
        self._why = ""
        self._ends = threading.Event()
        self._stream: ChangeStream | None = None
        self._target: str | None = None
        self._thread = threading.Thread(target=self._run, name="node-reader", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._ends.set()
        stream = self._stream
        if stream is not None:
            stream.interrupt()
        self._thread.join()

    def resync(self, why: str) -> None:
        """Get a snapshot before anything more is read."""
        self._why = why

    def _run(self) -> None:
        while not self._ends.is_set():
            try:
                stream = self._stream = self._open()
                self._target = None
                try:
                    self._follow(stream)
                finally:
                    stream.close()
            except (StreamUnavailable, OSError) as error:
                if not self.error and not self._ends.is_set():
                    logger.warning("the stream cannot be read: %s", error)
                self.error = str(error)
            except Exception as error:
                logger.exception("the stream cannot be read")
                self.error = str(error)
            self._ends.wait(PAUSE)

    def _follow(self, stream: ChangeStream) -> None:
        machine = self._machine
        while not self._ends.is_set():
            if self._why:
                self._resync()
                self._target = None
                continue
            if machine.joining and self._target is None:
                self._target = stream.last()
            position = machine.fence.mark.position
            try:
                entries = stream.read(position, MOST, WAIT)
            except PositionLost as lost:
                with self._lock:
                    machine.position_lost(lost.first, lost.last)
                self._target = None
                continue
            self.error = ""
            # While others write there is always more: what was last when it began is enough.
            at_end = not entries or self._target in (position, *(at for at, _ in entries))
            with self._lock:
                machine.read(entries, caught_up=at_end)
            # A read that brought little brought all there was.
            size = sum(len(data) for _, data in entries)
            if entries and not machine.joining and len(entries) < FEW and size < FEW_BYTES:
                self._fresh()

    def _resync(self) -> None:
        logger.warning("%s: a snapshot is taken", self._why)
        began = time.monotonic()
        while not self._ends.is_set():
            others = self._others()
            for other in sorted(others, key=lambda o: (o.role != "primary", -o.seq)):
                if other.role != "joining" and self._taken(other):
                    self._why, self._target = "", None
                    return
            alone = not any(other.role != "joining" for other in others)
            if alone and time.monotonic() - began > self._patience:
                # All lack something: what any of them has is put together.
                for other in others:
                    self._taken(other, partial=True)
                with self._lock:
                    self._machine.adopt()
                self._why, self._target = "", None
                return
            self._ends.wait(PAUSE)

    def _taken(self, other: Announcement, *, partial: bool = False) -> bool:
        machine, count = self._machine, 0
        with self._lock:
            wanted = machine.missing
            machine.copies()
        try:
            for mark, rows in scan(self._peers.address(other.address), partial=partial):
                if not partial and mark.seq < wanted and other.role != "primary":
                    return False
                with self._lock:
                    machine.copied(mark.clock, rows)
                count += len(rows)
                if self._ends.is_set():
                    return False
        except (OSError, ScanLost, EOFError) as error:
            logger.warning("a snapshot of %s: %s", other.id, error)
            return False
        if partial:
            return True
        with self._lock:
            machine.installed(mark.mark, {origin.dc: origin for origin in mark.links})
        self.resyncs += 1
        logger.info("%d rows came from %s, up to change %d", count, other.id, mark.seq)
        return True
