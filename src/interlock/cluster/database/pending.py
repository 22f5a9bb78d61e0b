"""The rows that wait to be written to one database, by key, and the marks between them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from interlock.cluster.database.protocol import SavedMark, SavedRow

MOST_BYTES = 64 << 20
_MOST_MARKS = 4096
StateOf = Callable[[bytes], bytes | None]
Change = tuple[bytes, bytes]


@dataclass(slots=True)
class _Waiting:
    offer: int
    """Number of the offer by which it first waited."""
    state: bytes | None
    """None: it is asked for when it is written."""
    seq: int


class Pending:
    """Rows in the order in which they first waited; of each its last state.

    Beyond `most_bytes` of states only keys are kept, and what they are is asked for later.
    """

    def __init__(self, mark: SavedMark, *, most_bytes: int = MOST_BYTES) -> None:
        self._rows: dict[bytes, _Waiting] = {}
        self._out: dict[bytes, _Waiting] = {}
        self._bytes = 0
        self._most_bytes = most_bytes
        self._offers = 0
        # A mark says that all offers up to its number are written.
        self._marks: deque[tuple[int, SavedMark, float]] = deque([(0, mark, time.monotonic())])

    def __len__(self) -> int:
        return len(self._rows) + len(self._out)

    @property
    def mark(self) -> SavedMark:
        """The mark up to which all is written when what is out is."""
        if not self._rows:
            return self._marks[-1][1]
        first = next(iter(self._rows.values())).offer
        # What the database lacked at first is of no offer.
        before = self._marks[0]
        for one in self._marks:
            if one[0] >= first:
                break
            before = one
        return before[1]

    @property
    def since(self) -> float | None:
        """The time at which the oldest row began to wait, by time.monotonic(); None: none does."""
        rows = self._out or self._rows
        if not rows:
            return None
        first = next(iter(rows.values())).offer
        return next((at for number, _, at in self._marks if number >= first), self._marks[-1][2])

    def offer(self, rows: Iterable[Change], mark: SavedMark) -> None:
        """Have rows wait; with them all changes up to the mark are here."""
        self._offers += 1
        self._marks.append((self._offers, mark, time.monotonic()))
        if len(self._marks) > _MOST_MARKS:
            # What a mark between says is said by those beside it. The first is of what is written.
            marks = list(self._marks)
            self._marks = deque([*marks[:-1:2], marks[-1]])
        for key, state in rows:
            self._put(key, state, mark.seq)

    def _put(self, key: bytes, state: bytes | None, seq: int) -> None:
        found = self._rows.get(key)
        if found is None:
            found = self._rows[key] = _Waiting(self._offers, None, seq)
        elif found.state is not None:
            self._bytes -= len(found.state)
        if state is not None and self._bytes + len(state) > self._most_bytes:
            state = None
        if state is not None:
            self._bytes += len(state)
        found.state, found.seq = state, seq

    def based(self, mark: SavedMark) -> None:
        """Note what the database has, before anything was offered."""
        number, _, at = self._marks[0]
        self._marks[0] = (number, mark, at)

    def missing(self, keys: Iterable[bytes]) -> None:
        """Have rows wait that the database lacks, before all that were offered."""
        first = {key: _Waiting(0, None, self._marks[0][1].seq) for key in keys}
        for key, waiting in self._rows.items():
            before = first.get(key)
            if before is None:
                first[key] = waiting
            else:
                before.state, before.seq = waiting.state, waiting.seq
        self._rows = first

    def take(self, most: int, size: int = 16 << 20) -> list[SavedRow]:
        """Take the oldest rows out, until they are `settled` or `returned`.

        Those that waited as keys alone have no state: it is to be asked for.
        """
        taken: list[SavedRow] = []
        for key, waiting in self._rows.items():
            if len(taken) >= most or size <= 0:
                break
            state = waiting.state
            if state is not None:
                self._bytes -= len(state)
                # What comes back is asked for again.
                waiting.state = None
            size -= len(state or b"")
            self._out[key] = waiting
            taken.append(SavedRow(key, state, waiting.seq))
        for row in taken:
            del self._rows[row.key]
        return taken

    def settled(self) -> None:
        """Forget what is out: it is written."""
        self._out = {}
        written = self.mark
        while len(self._marks) > 1 and self._marks[0][1] is not written:
            self._marks.popleft()

    def returned(self) -> None:
        """Have what is out wait again, in its place."""
        for key, waiting in self._rows.items():
            before = self._out.get(key)
            if before is None:
                self._out[key] = waiting
            else:
                before.state, before.seq = waiting.state, waiting.seq
        self._rows, self._out = self._out, {}
