"""Links: the primary brings changes of other data centres into its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from interlock.cluster.entry import BARRIER, Origin, UnreadableEntry, decode
from interlock.cluster.fence import Fence, Mark, Verdict
from interlock.cluster.machine import Machine
from interlock.cluster.streams import ChangeStream, PositionLost, StreamUnavailable
from interlock.cluster.transfer import ScanLost, ScanMark, scan
from interlock.hub.url import Address

logger = logging.getLogger("interlock.cluster")
MOST = 500
"""Entries that are read at once."""
WAIT = 1.0
AHEAD = 20_000
"""Changes under way in the own stream beyond which a link waits."""
PAUSE = 0.5


@dataclass(slots=True)
class LinkState:
    """Figures of one link."""

    dc: str
    state: str = "idle"
    """``idle``: this is not the primary; ``ok``, ``copying`` or ``cut``."""
    error: str = ""
    position: str = ""
    heard: float = field(default=float("-inf"))
    """The moment of the last entry, by the monotonic clock."""
    lag_ms: float = 0.0
    changes: int = 0


class Link:
    """A thread that reads another data centre's stream while this node is the primary."""

    def __init__(
        self,
        dc: str,
        machine: Machine,
        lock: threading.RLock,
        wake: Callable[[], None],
        stream: Callable[[], ChangeStream],
        nodes: Callable[[], list[Address]],
        monotonic: Callable[[], float],
        now_ms: Callable[[], int],
    ) -> None:
        self.dc = dc
        self.figures = LinkState(dc)
        self._machine = machine
        self._lock = lock
        self._wake = wake
        self._open = stream
        self._nodes = nodes
        self._monotonic = monotonic
        self._now_ms = now_ms
        self._filled = False
        self._ends = threading.Event()
        self._stream: ChangeStream | None = None
        self._thread = threading.Thread(target=self._run, name=f"node-link-{dc}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End; what was brought is in the own stream, with its place."""
        self._ends.set()
        stream = self._stream
        if stream is not None:
            stream.interrupt()
        self._thread.join()

    def _run(self) -> None:
        while not self._ends.is_set():
            if not self._machine.is_primary:
                self.figures.state = "idle"
                self._ends.wait(0.1)
                continue
            try:
                stream = self._stream = self._open()
                try:
                    self._follow(stream)
                finally:
                    stream.close()
            except (StreamUnavailable, OSError) as error:
                self._failed(error)
            except Exception as error:
                logger.exception("the link to data centre %s", self.dc)
                self._failed(error)

    def _failed(self, error: Exception) -> None:
        if self._ends.is_set():
            return
        if self.figures.state != "cut":
            logger.warning("the link to data centre %s is cut: %s", self.dc, error)
        self.figures.state, self.figures.error = "cut", str(error)
        self._ends.wait(PAUSE)

    def _follow(self, stream: ChangeStream) -> None:
        with self._lock:
            known = self._machine.links.get(self.dc)
            term = self._machine.primary
        mark = Mark() if known is None else Mark(
            known.token, known.number, known.seq, known.lineage, known.position
        )  # fmt: skip
        fence = Fence(mark)
        if self._machine.lacks_rows and not self._filled:
            # Where none of its nodes can be reached, its stream is read all the same.
            self._filled = self._copied(fence)
        while not self._ends.is_set() and self._machine.primary is term and term is not None:
            if not self._waited(term.token):
                return
            try:
                entries = stream.read(fence.mark.position, MOST, WAIT)
            except PositionLost as lost:
                logger.warning("the link to data centre %s: %s", self.dc, lost)
                if not self._copied(fence):
                    self._ends.wait(PAUSE)
                continue
            self.figures.state, self.figures.error = "ok", ""
            for position, data in entries:
                if not self._bring(fence, position, data):
                    return
            self._wake()

    def _waited(self, token: int) -> bool:
        """Wait until the own stream is not too far behind; False: this is not the primary."""
        while not self._ends.is_set():
            primary = self._machine.primary
            if primary is None or primary.token != token:
                return False
            if primary.seq - self._machine.fence.mark.seq < AHEAD:
                return True
            self._ends.wait(0.01)
        return False

    def _bring(self, fence: Fence, position: str, data: bytes) -> bool:
        try:
            entry = decode(data)
        except UnreadableEntry as error:
            logger.error("the link to data centre %s, %s: %s", self.dc, position, error)
            fence.passed(position)
            return True
        verdict = fence.judge(entry)
        if verdict is Verdict.GAP:
            return self._copied(fence)
        if verdict in (Verdict.FENCED, Verdict.KNOWN):
            fence.passed(position)
            return True
        fence.accept(entry, data, position)
        self.figures.position, self.figures.heard = position, self._monotonic()
        self.figures.lag_ms = max(0.0, self._now_ms() - entry.time)
        own = entry.kind != BARRIER and entry.origin is None and entry.changes
        if not own and entry.number % 1000:
            # Its place is told with the next changes.
            return True
        mark = fence.mark
        origin = Origin(
            self.dc, mark.token, mark.number, mark.seq, mark.lineage, position, entry.clock
        )
        self.figures.changes += len(entry.changes) if own else 0
        with self._lock:
            return self._machine.came(self.dc, entry.clock, origin, entry.changes if own else [])

    def _copied(self, fence: Fence) -> bool:
        """Take all rows of a node there, for the stream lacks some; return whether it is done."""
        self.figures.state = "copying"
        for address in self._nodes():
            try:
                mark = self._copy(address)
            except (OSError, ScanLost, EOFError) as error:
                logger.warning("a copy of data centre %s at %s: %s", self.dc, address, error)
                continue
            if mark is None:
                return False
            fence.mark = mark.mark
            return True
        self.figures.state = "cut"
        self.figures.error = "its stream lacks changes, and none of its nodes can be reached"
        return False

    def _copy(self, address: Address) -> ScanMark | None:
        mark: ScanMark | None = None
        with self._lock:
            unseen = dict.fromkeys(self._machine.replica.states)
        for mark, rows in scan(address):
            for key, _ in rows:
                unseen.pop(key, None)
            here = Origin(self.dc, 0, 0, 0, 0, "")
            with self._lock:
                primary = self._machine.primary
                if primary is None or not self._machine.came(self.dc, mark.clock, here, rows):
                    return None
            self._wake()
            self._waited(primary.token)
        if mark is not None:
            with self._lock:
                known = next((o.clock for o in mark.links if o.dc == self._machine.dc), 0)
                self._machine.drop(unseen, known)
                there = Origin(
                    self.dc, mark.token, mark.number, mark.seq, mark.lineage, mark.position,
                    mark.clock,
                )  # fmt: skip
                self._machine.came(self.dc, 0, there, [])
        return mark
