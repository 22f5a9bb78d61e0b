"""Databases that follow a log: what a node has applied is written to them, and what only they have
comes from them.

Each write is conditional on the mark that the database had before, so any number of nodes may write
to one: the others pause, and check whether the winner continues.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

import msgspec

from interlock import _core
from interlock.cluster.database.protocol import Database, DatabaseUnavailable, LogMark, SavedRow
from interlock.errors import InterlockError, SchemaMismatch

logger = logging.getLogger("interlock.cluster")
BATCH = 5_000
PAUSE = 0.05
"""Seconds for which changes are waited for, to be written together."""
WAIT = 0.25
"""Seconds for which the node is asked for a change."""
RESTED = 1.0
"""Seconds between two looks at a database that another node writes."""
_FIRST, _LONGEST = 0.1, 5.0
"""Seconds of the first and the longest wait after a failure."""
_MARK = 5.0
"""Seconds between two marks when no row changes."""
_FORGET = 60.0
_FORGOTTEN = 5_000
_AT_ONCE = 3
"""Entries with rows of a database that are appended before the first is applied."""
_DAY_MS = 86_400_000

Row = tuple[bytes, bytes, int]


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of the databases behind a table."""

    url: str
    waiting: int
    """Rows that are not written yet."""
    delay_ms: float
    """Milliseconds for which the oldest of them has waited."""
    written: int
    """Rows written since the start."""
    error: str
    """The reason why nothing can be written just now; empty if it can."""


class ForeignDatabase(InterlockError):
    """A database has rows that are in no history of the log, and too old to be joined."""


class WriteBehind:
    """Writes the rows of one node to its databases. Without any it does nothing.

    Args:
        databases: with several of them a row is in that of its key's hash, for ever.
        age_ms: for how long nodes remember a deleted row. Rows of another history that are older
            than half of it are not taken.
        takes_all: take them whatever their age.
        released: called once, when no database has rows that the node lacks.
        refused: called with the reason when one has rows that are too old.
    """

    def __init__(
        self,
        databases: Sequence[Database],
        *,
        age_ms: int,
        takes_all: bool,
        released: Callable[[], None],
        refused: Callable[[str], None],
    ) -> None:
        self._released = released
        self._lock = threading.Lock()
        self._missing = len(databases)
        self._writers = [
            _Writer(one, n, len(databases), age_ms, takes_all, self._caught_up, refused)
            for n, one in enumerate(databases)
        ]

    def start(self, node: _core.LogNode) -> None:
        """Begin."""
        for writer in self._writers:
            writer.start(node)

    def figures(self) -> list[Figures]:
        """Return the figures of each database."""
        return [writer.figures() for writer in self._writers]

    def flush(self, timeout: float) -> bool:
        """Wait until everything applied is written; return False if `seconds` pass first."""
        since = time.monotonic()
        done = [writer.flush(since, since + timeout) for writer in self._writers]
        return all(done)

    def close(self, timeout: float = 5.0) -> None:
        """End; the node must be there until then."""
        for writer in self._writers:
            writer.end()
        for writer in self._writers:
            writer.join(timeout)

    def _caught_up(self) -> None:
        with self._lock:
            self._missing -= 1
            if self._missing:
                return
        self._released()


def migrated(database: Database) -> None:
    """Bring a database to the row's class, and log what changes in it.

    Raises:
        SchemaMismatch: it cannot be brought there.
        DatabaseUnavailable: it cannot be reached, or refuses.
    """
    for line in database.migrations():
        logger.info("%s: %s", database.url, line)
    database.migrate()


def part_of(key: bytes, count: int) -> int:
    """Return which of `count` databases has a key's row, from 0."""
    return zlib.crc32(key) % count


class _Writer:
    """The thread of one database."""

    def __init__(
        self,
        database: Database,
        number: int,
        count: int,
        age_ms: int,
        takes_all: bool,
        caught_up: Callable[[], None],
        refused: Callable[[str], None],
    ) -> None:
        self._database = database
        self._number, self._count = number, count
        self._age_ms, self._takes_all = age_ms, takes_all
        self._caught_up, self._refused = caught_up, refused
        self._thread = threading.Thread(
            target=self._run, name=f"node-database-{number}", daemon=True
        )
        self._node: _core.LogNode | None = None
        self._ends = threading.Event()
        self._hurry = threading.Event()
        self._has_caught_up = self._is_migrated = self._is_found = False
        self._rests = False
        self._mark: LogMark | None = None
        self._joined: tuple[LogMark, int] | None = None
        """The mark with which all rows there were joined, and how often the node had gone back."""
        # Read by other threads. Each changes on its own, independent of the others.
        self._waiting = self._written = 0
        self._since: float | None = None
        self._all_written_at = 0.0
        self._error = ""
        self._marked_at = self._forgot_at = 0.0

    # -- For other threads --------------------------------------------------------------------

    def start(self, node: _core.LogNode) -> None:
        self._node = node
        self._thread.start()

    def figures(self) -> Figures:
        since = self._since
        delay = 0.0 if since is None else (time.monotonic() - since) * 1000
        url = self._database.url
        return Figures(url, self._waiting, round(delay, 1), self._written, self._error)

    def flush(self, since: float, until: float) -> bool:
        self._hurry.set()
        while self._all_written_at < since:
            if time.monotonic() >= until or not self._thread.is_alive():
                return False
            self._ends.wait(0.01)
        return True

    def end(self) -> None:
        self._ends.set()
        self._hurry.set()

    def join(self, timeout: float) -> None:
        if self._thread.ident is not None:
            self._thread.join(timeout)
        # One that is in the middle of a call to a silent database is left there.
        if not self._thread.is_alive():
            self._database.close()

    # -- The thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        failures = 0
        while not self._ends.is_set():
            try:
                proves = self._step()
            except (ForeignDatabase, SchemaMismatch) as error:
                self._error = str(error)
                self._refused(self._error)
                return
            except Exception as error:
                known = isinstance(error, DatabaseUnavailable)
                if not self._error:
                    logger.warning(
                        "cannot write to the database, rows are waiting: %s",
                        error,
                        exc_info=not known,
                    )
                failures += 1
                longest = min(_FIRST * 2 ** min(failures, 10), _LONGEST)
                self._error = str(error) or type(error).__name__
                # It may be done, or not.
                self._mark = None
                self._go_without()
                self._ends.wait(random.uniform(longest / 2, longest))
            else:
                # One that can be read may still be full.
                if proves:
                    failures, self._error = 0, ""

    def _step(self) -> bool:
        """Do what is next; return whether it shows that nothing hinders writing."""
        if not self._is_migrated:
            migrated(self._database)
            self._is_migrated = True
        if self._mark is None or self._rests:
            self._look()
            # While this node rests, another one writes.
            return self._rests
        assert self._node is not None
        asked_at, mark = time.monotonic(), self._mark
        found = self._node.changed(mark.since, BATCH, WAIT)
        if found is None:
            self._ends.wait(PAUSE)
            return False
        place, last, kind, rows, image = found
        stand = _mark(mark.epoch, place)
        self._waiting = last - mark.number
        if self._waiting and self._since is None:
            self._since = asked_at
        if kind != "rows":
            assert image is not None
            self._compare(mark, stand, kind, image)
            return True
        self._served()
        now = time.monotonic()
        if not rows:
            self._all_written_at, self._since = asked_at, None
            if stand.position != mark.position and now - self._marked_at >= _MARK:
                self._save([], stand, mark)
            self._forget(stand.time)
            return True
        if self._save(self._own(rows), stand, mark) and len(rows) < BATCH:
            self._hurry.wait(PAUSE)
            self._hurry.clear()
        return True

    def _look(self) -> None:
        """Read the mark; while another node writes, wait."""
        if not self._rests:
            self._mark = self._database.mark()
            self._is_found = True
            return
        if self._hurry.wait(RESTED):
            self._hurry.clear()
        found = self._database.mark()
        if found == self._mark or self._ends.is_set():
            self._rests = False
        self._mark, self._since = found, None
        self._asks_only()

    def _asks_only(self) -> None:
        """Note how much the other has not written yet."""
        assert self._node is not None and self._mark is not None
        asked_at = time.monotonic()
        found = self._node.changed(self._mark.since, 1, 0.0)
        if found is None or found[2] == "other":
            return
        self._served()
        self._waiting = found[1] - self._mark.number
        if not self._waiting:
            self._all_written_at = asked_at

    def _go_without(self) -> None:
        """Let the node serve though the database was never there, if the log has rows."""
        assert self._node is not None
        if not self._has_caught_up and not self._is_found:
            found = self._node.changed((0, 0, 0), 1, 0.0)
            if found is not None and found[1]:
                self._served()

    def _served(self) -> None:
        if not self._has_caught_up:
            self._has_caught_up = True
            self._caught_up()

    def _save(self, rows: Sequence[SavedRow], mark: LogMark, before: LogMark) -> bool:
        if not self._database.save(rows, mark, before):
            self._mark, self._rests = self._database.mark(), True
            return False
        self._mark, self._marked_at = mark, time.monotonic()
        self._written += len(rows)
        self._waiting = max(0, self._waiting - len(rows))
        # The rest has waited since then at most.
        self._since = self._marked_at if self._waiting else None
        return True

    def _own(self, rows: Iterable[Row]) -> list[SavedRow]:
        if self._count == 1:
            return [SavedRow(*row) for row in rows]
        return [SavedRow(*row) for row in rows if part_of(row[0], self._count) == self._number]

    # -- Another history ----------------------------------------------------------------------

    def _compare(self, mark: LogMark, stand: LogMark, kind: str, image: _core.RowsImage) -> None:
        if kind == "behind":
            for rows in _batches(image.since(mark.number)):
                later = msgspec.structs.replace(stand, number=rows[-1][2])
                if not self._save(self._own(rows), later, mark):
                    return
                mark = later
            return
        if self._joined is not None:
            # Figures may be older than the image by some milliseconds.
            self._ends.wait(PAUSE)
        went_back = self._went_back()
        # Rows from there have changed rows here: a second comparison shows the changes since.
        is_joined = self._joined == (mark, went_back)
        takes = kind == "other" and not is_joined
        # From here on, what this history has replaces what is there.
        claimed = msgspec.structs.replace(mark, epoch=mark.epoch + 1)
        if not self._save([], claimed, mark):
            return
        brought = 0
        with closing(self._database.rows()) as batches, ThreadPoolExecutor(_AT_ONCE) as pool:
            under_way: deque[Future[bool]] = deque()
            for batch in batches:
                compare = image.compare_copied if isinstance(batch, bytes) else image.compare
                brings, lacks, unknown = compare(batch, is_joined)  # type: ignore[arg-type]
                if brings and takes:
                    self._check_age(mark, stand)
                    for part in brings:
                        brought += len(part)
                        under_way.append(pool.submit(self._bring, part))
                        if len(under_way) > _AT_ONCE and not under_way.popleft().result():
                            return
                found = self._own(lacks)
                if kind == "all":
                    found += [SavedRow(key, None, 0) for key in unknown]
                if found and not self._save(found, claimed, claimed):
                    return
            if not all(one.result() for one in under_way):
                return
        self._served()
        if brought:
            logger.info("loaded %d rows from %s", brought, self._database.url)
            self._joined = claimed, went_back
            return
        for rows in _batches(image.rest()):
            if not self._save(self._own(rows), claimed, claimed):
                return
        self._save([], msgspec.structs.replace(stand, epoch=claimed.epoch), claimed)

    def _went_back(self) -> int:
        assert self._node is not None
        figures = self._node.figures()
        return int(figures["went_back"]) + int(figures["resyncs"])

    def _check_age(self, mark: LogMark, stand: LogMark) -> None:
        age = stand.time - mark.time
        if self._takes_all or not stand.number or age <= self._age_ms // 2:
            return
        raise ForeignDatabase(
            f"{self._database.url} has rows of another history than the log's, last written "
            f"{age / _DAY_MS:.1f} days ago: rows that were deleted since would come back. Give "
            "the node an empty database, or take them anyway: --from-database"
        )

    def _bring(self, rows: _core.BroughtRows) -> bool:
        """Have all nodes join rows; False if this writer ends first."""
        assert self._node is not None
        while not self._node.append_states(rows, 5.0):
            if self._ends.wait(PAUSE):
                return False
        return True

    def _forget(self, now_ms: int) -> None:
        now = time.monotonic()
        if now - self._forgot_at >= _FORGET:
            found = self._database.forget(now_ms, _FORGOTTEN)
            if found < _FORGOTTEN:
                self._forgot_at = now


def parts(rows: Sequence[tuple[bytes, bytes]], most: int) -> Iterator[list[tuple[bytes, bytes]]]:
    """Divide rows into lists of limited size."""
    part: list[tuple[bytes, bytes]] = []
    size = 0
    for row in rows:
        if part and size >= most:
            yield part
            part, size = [], 0
        part.append(row)
        size += len(row[0]) + len(row[1])
    if part:
        yield part


def _batches(rows: _core.RowsIterator) -> Iterator[list[Row]]:
    while found := rows.take(BATCH):
        yield found


def _mark(epoch: int, place: tuple[int, int, int, int, int]) -> LogMark:
    position, checksum, lineage, log_time, number = place
    return LogMark(epoch, position, checksum, lineage, number, log_time)
