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
from typing import TYPE_CHECKING, Any

from interlock.client.requests.thread_calls import drive
from interlock.client.wire import messages as wire
from interlock.errors import EngineUnavailable, Full, PayloadError, ShutDown
from interlock.outbox.postgres.rights import with_grants
from interlock.outbox.postgres.schema import WrongVersion
from interlock.outbox.report import Report
from interlock.outbox.rows import StoredRow
from interlock.runtime.limits import MAX_BATCH, MAX_CALL

if TYPE_CHECKING:
    from interlock.client.session import Session
    from interlock.client.wire.messages import Message

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
LONGEST_PAUSE = 5.0
LONGEST_TURN = 60.0
"""Seconds without a report after which the relay hangs."""
FULL_WINDOW = "the window is full"


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
        last: dict[str, Message] = {}
        checked = time.monotonic()
        while True:
            rows = position.read(READ)
            for name, messages in self._messages(rows, prefix).items():
                queue = queues.get(name)
                if queue is None:
                    options = self._outbox.app.queues.get(name, {})
                    queue = queues[name] = self._client.queue(name, bytes, **options)
                for some in _calls(messages):
                    self._put(queue, some, session, last.get(name))
                    last[name] = some[-1]
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
                for name, message in last.items():
                    self._check(queues[name], message, session)
                checked = time.monotonic()
            assert self._wake is not None
            connection.wait(self._wake[0], FULL if position.is_full else poll)

    def _messages(self, rows: Sequence[StoredRow], prefix: str) -> dict[str, list[Message]]:
        found: dict[str, list[Message]] = {}
        for row in rows:
            try:
                found.setdefault(row.queue, []).append(row.message(prefix))
            except (PayloadError, ValueError, TypeError) as error:
                _log.error("row %d of the outbox cannot be put: %s", row.id, error)
        return found

    def _put(
        self,
        queue: Any,
        messages: Sequence[Message],
        session: Session[Any],
        last: Message | None,
    ) -> None:
        """Put messages in their order behind the last one; wait while the queue is full or
        sealed."""
        told = False
        while True:
            first = messages[0] if last is None else wire.follow(messages[0], wire.dedup(last))
            sent = [first, *messages[1:]]
            try:
                # A session of one connection: without a wait, and without a second attempt.
                drive(queue._handle._put(session, sent, time.monotonic()), session)
                self._failures = 0
                return
            except (Full, ShutDown) as error:
                if len(messages) > 1 and isinstance(error, Full):
                    middle = len(messages) // 2
                    self._put(queue, messages[:middle], session, last)
                    last, messages = messages[middle - 1], messages[middle:]
                    continue
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


def _calls(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """Split messages by what one call of the engine takes."""
    start = size = 0
    for at, message in enumerate(messages):
        length = len(message.payload)
        if at > start and (at - start == MAX_BATCH or size + length > MAX_CALL):
            yield messages[start:at]
            start, size = at, 0
        size += length
    yield messages[start:]
