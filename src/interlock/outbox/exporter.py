"""The metrics of an outbox, read from its database on each scrape."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Any

from interlock.metrics.text import text
from interlock.outbox.postgres import admin
from interlock.outbox.postgres.admin import Status
from interlock.outbox.postgres.driver import connect
from interlock.outbox.postgres.rights import with_grants
from interlock.runtime.queue_figures import Family, Sample

__all__ = ["OUTBOX_FAMILIES", "OutboxExporter"]

_log = logging.getLogger("interlock.exporter")

UP = Family("interlock_outbox_up", "gauge", "1 while the database of the outbox answers, else 0",
            ())  # fmt: skip
ROWS = Family(
    "interlock_outbox_rows", "gauge",
    "rows by state: waiting for the relay, relayed and waiting for a handler, held, dead",
    ("state",),
)  # fmt: skip
OLDEST = Family(
    "interlock_outbox_oldest_seconds", "gauge",
    "seconds since the oldest row was sent that is neither dead nor held; 0 without such a row",
    (),
)  # fmt: skip
GAPS = Family(
    "interlock_outbox_gaps", "gauge",
    "gaps in the order of commits that open transactions may still fill", (),
)  # fmt: skip
RELAY = Family(
    "interlock_outbox_relay", "gauge",
    "1 for the active relay, with its host and process id; 0 with an empty label if there is none",
    ("relay",),
)  # fmt: skip
REPORT = Family(
    "interlock_outbox_report_seconds", "gauge",
    "seconds since a relay reported, which it does at least every 5 seconds; 0 if none ever has",
    (),
)  # fmt: skip
RESULTS = Family(
    "interlock_outbox_results", "gauge",
    "results of handled calls that are kept; beyond 100,000 it is a lower bound", (),
)  # fmt: skip
OUTBOX_FAMILIES = (UP, ROWS, OLDEST, GAPS, RELAY, REPORT, RESULTS)

PATIENCE = 5
"""Seconds for a connection, and for the queries of one scrape."""


class OutboxExporter:
    """The metrics of one outbox, as text."""

    def __init__(self, url: str, schema: str) -> None:
        self._url, self._schema = url, schema
        self._lock = threading.Lock()
        self._connection: Any = None
        self.trouble = ""
        """Reason why the database did not answer the last time; empty if it did."""

    def text(self) -> str:
        """Return the page of metrics. Never raises: a database that is down is reported as such."""
        with self._lock:
            try:
                found = self._status()
            except Exception as error:
                self.close()
                reason = with_grants(error, "monitor", self._schema)
                # Once for each trouble, not for each scrape.
                if not self.trouble:
                    _log.error("the database of the outbox does not answer: %s", reason)
                self.trouble = reason
                return text([(UP, [((), 0)])])
            if self.trouble:
                _log.warning("the database of the outbox answers again")
                self.trouble = ""
        return text(_told(found))

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    def _status(self) -> Status:
        if self._url.startswith("sqlite:"):
            from interlock.outbox.sqlite import admin as of_file
            from interlock.outbox.sqlite.database import connect as opened
            from interlock.outbox.sqlite.database import path_of

            # Opened each time: the path may name another file than before.
            with contextlib.closing(opened(path_of(self._url))) as file:
                file.execute(f"pragma busy_timeout = {PATIENCE * 1000}")
                return of_file.status(file, self._schema)
        if self._connection is None:
            self._connection = connect(self._url, "interlock exporter", connect_timeout=PATIENCE)
        with self._connection.transaction():
            # Not for the session, which a PgBouncer may share.
            self._connection.execute(f"set local statement_timeout = '{PATIENCE}s'")
            return admin.status(self._connection, self._schema)


def _told(found: Status) -> list[tuple[Family, list[Sample]]]:
    states = {"waiting": found.waiting, "relayed": found.relayed, "held": found.held,
              "dead": found.dead}  # fmt: skip
    return [
        (UP, [((), 1)]),
        (ROWS, [((state,), count) for state, count in states.items()]),
        (OLDEST, [((), found.oldest or 0.0)]),
        (GAPS, [((), found.gaps)]),
        (RELAY, [((found.relay or "",), int(found.relay is not None))]),
        (REPORT, [((), found.reported or 0.0)]),
        (RESULTS, [((), found.results)]),
    ]
