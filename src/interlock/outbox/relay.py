"""The relay: puts the rows of an outbox into the app's engine, in the order of their commits.

One relay works at a time, of all workers: it holds an advisory lock for the life of its session.

What it has put it knows only for the life of one connection to the engine, which is never remade:
an engine that ended may have lost everything, and a put into one that has just started must not
overtake the rows before it. A connection may outlive what the engine knew: FLUSHALL, or a proxy
that changes its servers. So each put names the last row before it (``AFTER``), and an engine that
does not know that row refuses the put. After any failure the relay starts at the oldest row that is
left, and the dedup strings skip the rows that the engine still knows.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from interlock.client.requests.thread_calls import drive
from interlock.client.wire import messages as wire
from interlock.client.wire.messages import Message
from interlock.errors import (
    EngineUnavailable,
    Full,
    InterlockError,
    OptionsMismatch,
    PayloadError,
    ShutDown,
)
from interlock.failure import text_of
from interlock.outbox.postgres.rights import with_grants
from interlock.outbox.report import Report
from interlock.outbox.rows import StoredRow
from interlock.outbox.versions import WrongVersion
from interlock.runtime.limits import MAX_BATCH, MAX_BATCH_KEYS, MAX_CALL
from interlock.worker.message.tasks import NotHere

if TYPE_CHECKING:
    from interlock.client.session import Session

__all__ = ["Relay"]

_log = logging.getLogger("interlock.outbox")

READ = 500
"""Maximum rows of one read."""
LOCK_PAUSE = 1.0
"""Seconds after which it tries to get the lock again."""
CHECK = 1.0
"""Seconds after which an engine is asked, while nothing is to be put, whether it knows the rows."""
FULL = 0.05
"""Seconds after which a full window is counted again."""
SWEEP, SWEEP_PAUSE = 1_000, 10.0
"""Results that one sweep deletes once they have expired, and seconds until the next sweep."""
LONGEST_PAUSE = 5.0
LONGEST_TURN = 60.0
"""Seconds without a report after which the relay hangs."""
FULL_WINDOW = "the window is full"
UNKNOWN = "UNKNOWN"
"""The code with which an engine refuses a put behind a row that it does not know."""


class Stopped(Exception):
    """The worker ends."""


class Relay:
    """A worker's part in the relay: from ``start`` until ``stop``."""

    def __init__(self, outbox: Any, client: Callable[[], Any]) -> None:
        self._outbox = outbox
        self._make_client = client
        self._client: Any = None
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._wake: tuple[int, int] | None = None
        self._last: dict[str, Pending] = {}
        """By queue, the row that this session of the engine was given last."""
        self._next_sweep = 0.0
        self._failures = 0
        """Sessions of the engine, in a row, that took nothing."""
        self._report: Report | None = None
        """While this relay has the lock."""

    @property
    def activity(self) -> str:
        """See ``BesideRelay``."""
        report = self._report
        return "" if report is None else f"outbox {self._outbox.schema}: {report}"

    @property
    def hangs(self) -> bool:
        """This relay has the lock, and its loop has not turned for a minute."""
        report = self._report
        return report is not None and time.monotonic() - report.turned > LONGEST_TURN

    def start(self) -> None:
        """Begin. Raises ValueError if no database is named, ImportError without psycopg."""
        self._outbox.database.check()
        self._client = self._make_client()
        if self._client._engine.target.kind == "cluster":
            raise ValueError(
                f"the app's engine is {self._client.url}; allowed with an outbox: a hub, a single "
                "Redis, or memory"
            )
        self._wake = os.pipe()
        self._thread = threading.Thread(target=self._run, name="interlock-relay", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Put nothing further."""
        self._stopped.set()
        if self._wake is not None:
            os.write(self._wake[1], b"x")

    def join(self, timeout: float) -> None:
        """Wait up to ``timeout`` seconds until the call that has begun is done."""
        if self._thread is not None:
            self._thread.join(timeout)
            if not self._thread.is_alive() and self._wake is not None:
                for end in self._wake:
                    os.close(end)
                self._wake = None
        if self._client is not None:
            self._client.close()
        self._outbox.transactions.close()

    def _run(self) -> None:
        database = self._outbox.database
        failures = 0
        while not self._stopped.is_set():
            began = time.monotonic()
            try:
                with contextlib.closing(database.relay_connection()) as connection:
                    self._serve(connection)
            except Stopped:
                return
            except (*database.errors, WrongVersion, OSError) as error:
                # The pause does not grow with losses that are far apart.
                failures = 1 if time.monotonic() - began > LONGEST_PAUSE else failures + 1
                pause = min(0.1 * 2 ** min(failures, 10), LONGEST_PAUSE)
                text = with_grants(error, "relay", self._outbox.schema)
                _log.warning("the relay has no database: %s; trying again in %.3g s", text, pause)
            except Exception:
                _log.exception("the relay failed; trying again in %.3g s", LONGEST_PAUSE)
                pause = LONGEST_PAUSE
            else:
                failures, pause = 0, 0.0
            self._stopped.wait(pause)

    def _serve(self, connection: Any) -> None:
        """Relay while this session of the database lasts, once it has the lock."""
        name = self._outbox.schema
        prefix = connection.prefix()
        while not connection.lock():
            # Not by a statement that waits: its snapshot would stop every vacuum.
            self._pause(LOCK_PAUSE)
        _log.info("the relay of the outbox %r begins", name)
        self._report = Report(connection)
        try:
            self._relay_to_engines(connection, self._report, prefix)
        finally:
            self._report = None

    def _relay_to_engines(self, connection: Any, report: Report, prefix: str) -> None:
        self._failures = 0
        while True:
            try:
                with self._engine_session() as session:
                    self._relay(connection, session, report, prefix)
            except EngineUnavailable as error:
                last = [each.id for each in self._last.values()]
                if UNKNOWN in str(error) and not all(map(connection.is_left, last)):
                    _log.info("the engine no longer knows a row that was handled; the relay starts "
                              "again at the oldest row")  # fmt: skip
                    continue
                self._failures += 1
                pause = min(0.05 * 2 ** min(self._failures, 10), LONGEST_PAUSE)
                report.write(f"the engine does not answer: {error}")
                _log.warning(
                    "the relay lost its engine: %s; it starts again at the oldest row in %.3g s",
                    error, pause,
                )  # fmt: skip
                self._pause(pause)

    @contextlib.contextmanager
    def _engine_session(self) -> Iterator[Session[Any]]:
        session = self._client._sessions.once()
        try:
            yield session
        finally:
            session.close()

    def _relay(self, connection: Any, session: Session[Any], report: Report, prefix: str) -> None:
        """Put what is there, then what comes, until this session of the engine ends."""
        # Connected before the first read: what is read later is put into this engine, or nowhere.
        drive(self._client._engine.greet(), session)
        position = connection.position(self._outbox.window)
        poll = self._outbox.database.poll
        report.position = position
        queues: dict[str, Any] = {}
        last = self._last = {}
        checked = time.monotonic()
        while True:
            rows = position.read(READ)
            for name, pending in self._pending(connection, rows, queues, prefix).items():
                for some in _calls(pending):
                    put = self._put(connection, queues[name], some, session, last.get(name))
                    if put is not None:
                        last[name] = put
            report.write(FULL_WINDOW if position.is_full else None)
            if self._stopped.is_set():
                raise Stopped
            if rows:
                continue
            if time.monotonic() - checked >= CHECK:
                # Finds an engine that was lost while nothing is to be put.
                drive(self._client._engine.greet(), session)
                if position.find_oldest() is None:
                    # The next row follows none, and those before may have been forgotten by now.
                    last.clear()
                for name, row in last.items():
                    self._check(queues[name], row.message, session)
                checked = time.monotonic()
            if time.monotonic() >= self._next_sweep:
                is_whole = connection.delete_expired(SWEEP) < SWEEP
                self._next_sweep = time.monotonic() + (SWEEP_PAUSE if is_whole else 0.0)
            assert self._wake is not None
            connection.wait(self._wake[0], FULL if position.is_full else poll)

    def _pending(
        self, connection: Any, rows: Sequence[StoredRow], queues: dict[str, Any], prefix: str
    ) -> dict[str, list[Pending]]:
        """Return the messages of rows for each queue, which is added if it is new."""
        found: dict[str, list[Pending]] = {}
        for row in rows:
            name = row.queue
            try:
                message = row.message(prefix)
                if name not in queues:
                    options = self._outbox.app.queues.get(name, {})
                    queues[name] = self._client.queue(name, bytes, **options)
            except Exception as error:
                if isinstance(error, NotHere | InterlockError) and type(error) is not PayloadError:
                    # Not the row's fault; a newer worker may relay what this one cannot read.
                    raise
                self._bury(connection, row.id, error)
            else:
                found.setdefault(name, []).append(Pending(row.id, message))
        return found

    def _bury(self, connection: Any, id: int, error: Exception) -> None:
        """Make a row dead that no engine takes; the rows after it are put."""
        text = f"it cannot be put into the engine: {text_of(error)}"
        _log.error("row %d of the outbox is dead: %s", id, text)
        connection.set_dead(id, text)

    def _put(
        self,
        connection: Any,
        queue: Any,
        pending: Sequence[Pending],
        session: Session[Any],
        last: Pending | None,
    ) -> Pending | None:
        """Put rows in their order behind the last one; wait while the queue is full or sealed.
        Return the new last one."""
        told = False
        while True:
            first = pending[0].message
            if last is not None:
                first = wire.follow(first, wire.dedup(last.message))
            sent = [first, *(each.message for each in pending[1:])]
            try:
                # A session of one connection: without a wait, and without a second attempt.
                drive(queue._handle._put(session, sent, time.monotonic()), session)
                self._failures = 0
                return pending[-1]
            except OptionsMismatch:
                raise
            except (Full, ShutDown, ValueError) as error:
                # A call that is refused has put nothing.
                if len(pending) > 1 and not isinstance(error, ShutDown):
                    middle = len(pending) // 2
                    last = self._put(connection, queue, pending[:middle], session, last)
                    pending = pending[middle:]
                    continue
                if isinstance(error, ValueError):
                    if last is not None:
                        # An engine that does not know AFTER refuses this too: it raises.
                        self._check(queue, last.message, session)
                    self._bury(connection, pending[0].id, error)
                    return last
                if not told:
                    _log.warning("the relay waits: %s", error)
                    told = True
                if self._report is not None:
                    self._report.write(str(error))
                self._pause(FULL)

    def _check(self, queue: Any, last: Message, session: Session[Any]) -> None:
        """Raise EngineUnavailable if a queue does not know the last row that it was given."""
        dedup = wire.dedup(last)
        known = wire.follow(wire.Message(b"", options=("DEDUP", dedup)), dedup)
        with contextlib.suppress(Full, ShutDown):
            drive(queue._handle._put(session, [known], time.monotonic()), session)

    def _pause(self, seconds: float) -> None:
        if self._stopped.wait(seconds):
            raise Stopped


class Pending(NamedTuple):
    """A row that is to be put."""

    id: int
    message: Message


def _calls(pending: Sequence[Pending]) -> Iterator[Sequence[Pending]]:
    """Split rows by what one call of the engine takes."""
    start = size = keys = 0
    for at, (_, message) in enumerate(pending):
        length, count = len(message.payload), len(message.keys) + len(message.shared)
        if at > start and (
            at - start == MAX_BATCH or size + length > MAX_CALL or keys + count > MAX_BATCH_KEYS
        ):
            yield pending[start:at]
            start, size, keys = at, 0, 0
        size += length
        keys += count
    yield pending[start:]
