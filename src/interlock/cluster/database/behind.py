"""Rows written behind: offered by a primary, and written in batches by threads of their own."""

from __future__ import annotations

import logging
import random
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from interlock.cluster.database.pending import MOST_BYTES, Change, Pending, StateOf
from interlock.cluster.database.protocol import (
    Database,
    DatabaseUnavailable,
    Fenced,
    SavedMark,
    SavedRow,
)

Missing = Callable[[SavedMark], Iterable[bytes]]
BATCH = 5_000
PAUSE = 0.05
"""Seconds for which rows are waited for, to be written together."""
_FIRST, _LONGEST = 0.1, 5.0
"""Seconds of the first and the longest wait after a failure."""
_MARK = 5.0
"""Seconds between two marks when no row changes."""
_FORGET = 60.0
_FORGOTTEN = 5_000
logger = logging.getLogger("interlock.cluster")


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of the databases behind a table."""

    url: str
    waiting: int
    """Rows that are not written yet."""
    delay_ms: float
    """For how long the oldest of them has waited."""
    written: int
    """Rows written since the start."""
    error: str
    """The reason why nothing can be written just now; empty: it can."""


class WriteBehind:
    """Writes the rows of one table to its databases, as long as this node is the primary.

    Any thread may call. ``offer`` never waits for a database.

    Args:
        databases: migrated; with several of them a row is in that of its key's hash, for ever.
        state_of: returns a row's state, for those that waited as keys alone. Called on our threads.
        missing: returns the keys of all rows that changed since a mark, or of all rows. Called on
            our threads, once for each database and term.
    """

    def __init__(
        self,
        databases: Sequence[Database],
        state_of: StateOf,
        missing: Missing,
        *,
        batch: int = BATCH,
        pause: float = PAUSE,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._writers = [
            _Writer(one, n, len(databases), state_of, missing, batch, pause, most_bytes)
            for n, one in enumerate(databases)
        ]

    def start(self) -> None:
        """Begin; nothing is written before ``lead``."""
        for writer in self._writers:
            writer.thread.start()

    def lead(self, token: int) -> None:
        """Become the one who writes, from what is offered next on, and what was missed before."""
        for writer in self._writers:
            writer.lead(token)

    def rest(self) -> None:
        """Forget what waits, and write no more: another is the primary."""
        for writer in self._writers:
            writer.lead(None)

    def offer(self, rows: Sequence[Change], mark: SavedMark) -> None:
        """Have rows written, some time; with them all changes up to the mark were offered."""
        count = len(self._writers)
        if count == 1:
            self._writers[0].offer(rows, mark)
            return
        parts: list[list[Change]] = [[] for _ in self._writers]
        for row in rows:
            parts[part_of(row[0], count)].append(row)
        for writer, part in zip(self._writers, parts, strict=True):
            writer.offer(part, mark)

    def figures(self) -> list[Figures]:
        """Return the figures of each database."""
        return [writer.figures() for writer in self._writers]

    def flush(self, timeout: float) -> bool:
        """Wait until nothing waits any more, at most so many seconds; return whether it is so."""
        until = time.monotonic() + timeout
        done = [writer.flush(until) for writer in self._writers]
        return all(done)

    def close(self, timeout: float = 5.0) -> bool:
        """Write what waits, for so many seconds at most, and end; return whether all is written."""
        done = self.flush(timeout)
        for writer in self._writers:
            writer.end()
        for writer in self._writers:
            if writer.thread.is_alive():
                writer.thread.join(timeout)
            # One that is in the middle of a call to a silent database is left there.
            if not writer.thread.is_alive():
                writer.database.close()
        return done


def part_of(key: bytes, count: int) -> int:
    """Return the number of the database, of so many, that a key's row is in."""
    return zlib.crc32(key) % count


class _Writer:
    """The thread that writes to one database."""

    def __init__(
        self,
        database: Database,
        number: int,
        count: int,
        state_of: StateOf,
        missing: Missing,
        batch: int,
        pause: float,
        most_bytes: int,
    ) -> None:
        self.database = database
        self.thread = threading.Thread(
            target=self._run, name=f"node-database-{number}", daemon=True
        )
        self._number, self._count = number, count
        self._state_of, self._missing = state_of, missing
        self._batch, self._pause, self._most_bytes = batch, pause, most_bytes
        self._changed = threading.Condition()
        self._ends = False
        self._token: int | None = None
        self._began = False
        self._pending = Pending(SavedMark())
        self._written = 0
        self._error = ""
        self._marked: SavedMark | None = None
        self._marked_at = self._forgot_at = 0.0

    # -- For other threads --------------------------------------------------------------------

    def lead(self, token: int | None) -> None:
        with self._changed:
            self._token, self._began, self._error = token, False, ""
            self._pending = Pending(SavedMark(), most_bytes=self._most_bytes)
            self._changed.notify_all()

    def offer(self, rows: Sequence[Change], mark: SavedMark) -> None:
        with self._changed:
            if self._token is None:
                return
            idle = not len(self._pending)
            self._pending.offer(rows, mark)
            if rows and (idle or len(self._pending) >= self._batch):
                self._changed.notify_all()

    def figures(self) -> Figures:
        with self._changed:
            since = self._pending.since
            delay = 0.0 if since is None else (time.monotonic() - since) * 1000
            waiting = len(self._pending)
            return Figures(self.database.url, waiting, round(delay, 1), self._written, self._error)

    def flush(self, until: float) -> bool:
        with self._changed:
            while self._token is not None and (len(self._pending) or not self._began):
                left = until - time.monotonic()
                if left <= 0 or not self.thread.is_alive():
                    return False
                self._changed.wait(left)
            return True

    def end(self) -> None:
        with self._changed:
            self._ends = True
            self._changed.notify_all()

    # -- The thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        failures = 0
        while not self._ends:
            try:
                self._step()
            except Fenced as error:
                logger.warning("nothing more is written behind: %s", error)
                self._stop(str(error))
            except Exception as error:
                known = isinstance(error, DatabaseUnavailable)
                if not self._error:
                    logger.warning("rows wait to be written: %s", error, exc_info=not known)
                failures += 1
                longest = min(_FIRST * 2 ** min(failures, 10), _LONGEST)
                with self._changed:
                    self._error = str(error) or type(error).__name__
                    self._pending.returned()
                    self._changed.notify_all()
                self._sleep(random.uniform(longest / 2, longest))
            else:
                failures = 0

    def _step(self) -> None:
        with self._changed:
            token, began, pending = self._token, self._began, self._pending
        if token is None:
            with self._changed:
                self._changed.wait_for(lambda: self._ends or self._token is not None)
            return
        if not began:
            self._begin(token, pending)
            return
        with self._changed:
            if not len(pending):
                self._changed.wait_for(self._has_work, 1.0)
            elif len(pending) < self._batch:
                # More may come, to be written with these.
                self._changed.wait_for(
                    lambda: self._ends or len(pending) >= self._batch, self._pause
                )
            if self._pending is not pending:
                return
        self._write(token, pending)
        self._forget()

    def _has_work(self) -> bool:
        return self._ends or self._token is None or not self._began or bool(len(self._pending))

    def _begin(self, token: int, pending: Pending) -> None:
        mark = self.database.begin(token)
        keys = [key for key in self._missing(mark) if part_of(key, self._count) == self._number]
        with self._changed:
            if self._pending is pending:
                pending.based(mark)
                pending.missing(keys)
                self._marked, self._marked_at = mark, time.monotonic()
                self._began, self._error = True, ""
                self._changed.notify_all()

    def _write(self, token: int, pending: Pending) -> None:
        with self._changed:
            rows = pending.take(self._batch)
            mark = pending.mark
        # Not under the lock: whoever offers may hold the one that this takes.
        rows = [row if row.state is not None else self._asked(row) for row in rows]
        now = time.monotonic()
        if not rows and (mark == self._marked or now - self._marked_at < _MARK):
            return
        self.database.write(rows, mark, token)
        with self._changed:
            pending.settled()
            self._marked, self._marked_at = mark, now
            self._written += len(rows)
            self._error = ""
            self._changed.notify_all()

    def _asked(self, row: SavedRow) -> SavedRow:
        return row._replace(state=self._state_of(row.key))

    def _forget(self) -> None:
        now = time.monotonic()
        if now - self._forgot_at >= _FORGET:
            found = self.database.forget(int(time.time() * 1000), _FORGOTTEN)
            if found < _FORGOTTEN:
                self._forgot_at = now

    def _stop(self, why: str) -> None:
        with self._changed:
            self._token, self._began, self._error = None, False, why
            self._pending = Pending(SavedMark())
            self._changed.notify_all()

    def _sleep(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._ends, seconds)
