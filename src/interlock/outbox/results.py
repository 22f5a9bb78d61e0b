"""Results of calls that were sent through an outbox.

They are kept in a table of the database, and written in the transaction that deletes the call's
row. So one statement, which has one snapshot, finds either the row or its result.
"""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import Future
from typing import Any, NamedTuple

from interlock.app.job import JobState
from interlock.runtime import forks

__all__ = ["Outcome", "Results"]

SHORTEST_PAUSE, LONGEST_PAUSE = 0.005, 1.0
"""Seconds between two reads. Between them, a tenth of the time since the youngest wait began."""
IDLE = 10.0
"""Seconds after the last wait until the connection is closed."""
MOST_IDS = 500
"""Maximum rows of one statement."""


class Outcome(NamedTuple):
    """The state of a row, and what came of its call."""

    state: JobState
    """``"waiting"``, ``"held"`` or ``"dead"`` of a row; ``"acked"``, ``"expired"`` or
    ``"cancelled"`` of a kept result; or ``"gone"``: neither is there."""
    error: str = ""
    attempts: int = 0
    options: str = ""
    """The options of a dead row, as JSON."""
    result: bytes = b""

    @property
    def is_final(self) -> bool:
        """The row waits for nothing."""
        return self.state not in ("waiting", "held")

    @property
    def reason(self) -> str:
        """Reason for a missing result; see ``JobFailed``."""
        if self.state != "dead":
            return self.state
        attempts = (json.loads(self.options).get("retry") or [None])[0]
        return "exhausted" if attempts is not None and self.attempts >= attempts else "rejected"


class Results:
    """Reads the outcomes of rows for all who wait in this process, on a connection of its own.

    Args:
        database: see ``postgres.database.Database``.
    """

    def __init__(self, database: Any) -> None:
        self._database = database
        self._forget()

    def _forget(self) -> None:
        self._forks = forks.count
        self._changed = threading.Condition()
        self._waits: list[Wait] = []
        self._thread: threading.Thread | None = None

    def ask(self, identity: tuple[Any, ...], timeout: float | None) -> Future[Outcome]:
        """Return the future outcome of a row: final, or as it is after ``timeout`` seconds.

        Args:
            identity: id of the row, and the time of its send if that is known, in µs.
            timeout: seconds; 0: as it is now; None: without limit.

        The future raises what the database's library raises.
        """
        if self._forks != forks.count:
            # The thread is the parent's.
            self._forget()
        now = time.monotonic()
        wait = Wait(identity, Future(), now, None if timeout is None else now + timeout)
        with self._changed:
            self._waits.append(wait)
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="interlock-results", daemon=True
                )
                self._thread.start()
        return wait.future

    def _run(self) -> None:
        connection: Any = None
        pause, failures = 0.0, 0
        try:
            while waits := self._next(pause):
                try:
                    if connection is not None and not self._database.is_usable(connection):
                        connection.close()
                        connection = None
                    if connection is None:
                        connection = self._database.results_connection()
                    outcomes = self._read(connection, waits)
                except Exception as error:
                    if connection is not None:
                        connection.close()
                    connection = None
                    failures += 1
                    if failures > 1:
                        for wait in waits:
                            _settle(wait.future, error)
                    continue
                failures = 0
                now = time.monotonic()
                for wait, outcome in zip(waits, outcomes, strict=True):
                    if outcome.is_final or (wait.end is not None and now >= wait.end):
                        _settle(wait.future, outcome)
                pause = _pause(waits, now)
        finally:
            if connection is not None:
                connection.close()

    def _next(self, pause: float) -> list[Wait]:
        """Pause, unless somebody begins to wait; return who waits, or nobody if the thread ends."""
        with self._changed:
            self._changed.wait_for(self._has_new, pause)
            self._drop_done()
            if not self._waits:
                self._changed.wait_for(self._has_new, IDLE)
            if not self._waits:
                self._thread = None
            for wait in self._waits:
                wait.was_read = True
            return list(self._waits)

    def _has_new(self) -> bool:
        # New waits are at the end.
        return bool(self._waits) and not self._waits[-1].was_read

    def _drop_done(self) -> None:
        self._waits = [wait for wait in self._waits if not wait.future.done()]

    def _read(self, connection: Any, waits: list[Wait]) -> list[Outcome]:
        database = self._database
        ids = list({wait.identity[0] for wait in waits})
        found: dict[int, list[tuple[tuple[Any, ...], Outcome]]] = {}
        for start in range(0, len(ids), MOST_IDS):
            some = ids[start : start + MOST_IDS]
            values = ", ".join([database.given_id] * len(some))
            text = (
                f"with i (id) as (values {values}) select o.id, {database.sent}, o.state, "
                "coalesce(o.error, ''), o.attempts, "
                "case when o.state = 'dead' then o.options else '' end, "
                "r.id, r.sent, r.state, coalesce(r.error, ''), r.result "
                f"from i left join {database.table} o on o.id = i.id "
                f"left join {database.results} r on r.id = i.id and r.expires > {database.now}"
            )
            for row in connection.execute(text, some).fetchall():
                if row[0] is not None:
                    outcome = Outcome(row[2] or "waiting", *row[3:6])
                    found.setdefault(row[0], []).append((row[:2], outcome))
                if row[6] is not None:
                    outcome = Outcome(row[8], row[9], result=bytes(row[10] or b""))
                    found.setdefault(row[6], []).append((row[6:8], outcome))
        return [_outcome(wait.identity, found.get(wait.identity[0], ())) for wait in waits]


class Wait:
    """Somebody who waits for the outcome of a row."""

    __slots__ = ("began", "end", "future", "identity", "was_read")

    def __init__(
        self, identity: tuple[Any, ...], future: Future[Outcome], began: float, end: float | None
    ) -> None:
        self.identity, self.future, self.began, self.end = identity, future, began, end
        self.was_read = False


def _outcome(identity: tuple[Any, ...], found: Any) -> Outcome:
    for columns, outcome in found:
        if columns[: len(identity)] == identity:
            result: Outcome = outcome
            return result
    return Outcome("gone")


def _pause(waits: list[Wait], now: float) -> float:
    left = [wait for wait in waits if not wait.future.done()]
    if not left:
        return 0.0
    pause = min(max((now - max(wait.began for wait in left)) / 10, SHORTEST_PAUSE), LONGEST_PAUSE)
    return min([pause, *(max(wait.end - now, 0.0) for wait in left if wait.end is not None)])


def _settle(future: Future[Outcome], outcome: Outcome | Exception) -> None:
    # It may be cancelled by who waits, at any time before this.
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
