"""A hub's pages over HTTP: /metrics for Prometheus, /health and /ready for supervisors."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from threading import Lock

from interlock.hub.serve import metrics
from interlock.hub.serve.http_server import Page
from interlock.hub.serve.journal_faults import Trouble
from interlock.hub.serve.state import State
from interlock.runtime.queue_figures import QueueFigures

LOOKED_AT = 10_000
"""Maximum number of queues that one scrape reads."""
Queues = Callable[[int], tuple[Mapping[str, Mapping[str, int]], int]]
"""Figures of at most this many queues, by their names, and the number of all queues."""

MorePages = Callable[[str, str, Callable[[str], Page | None]], Page | None]
"""Pages in front of a hub's: given a path, a query, and the hub's own page at a path."""


class HubPages:
    """The pages of one hub."""

    def __init__(
        self,
        state: Callable[[], State],
        info: Callable[[], Mapping[str, object]],
        tables: Callable[[], Mapping[str, Mapping[str, int]]] = dict,
        stores: Callable[[], Mapping[str, Mapping[str, int]]] = dict,
        more: MorePages | None = None,
        queues: Queues = lambda _: ({}, 0),
    ) -> None:
        self._state = state
        self._info = info
        self._tables = tables
        self._stores = stores
        self._more = more
        self._queues = queues
        self._figures = QueueFigures()
        self._telling = Lock()

    def __call__(self, path: str, query: str = "") -> Page | None:
        """Return the page at a path; None if it does not exist."""
        if self._more is not None:
            return self._more(path, query, self._own)
        return self._own(path)

    def _own(self, path: str) -> Page | None:
        make = {
            "/": self._index,
            "/metrics": self._metrics,
            "/health": self._health,
            "/ready": self._ready,
        }.get(path)
        return None if make is None else make()

    def _index(self) -> Page:
        return Page("/metrics\n/health\n/ready\n")

    def _metrics(self) -> Page:
        draining = self._state() is State.DRAINING
        found, count = self._queues(LOOKED_AT)
        info = self._info()
        # The clock may have been set since the queues' time began.
        now = time.time() + float(str(info.get("journal_clock_ahead_seconds", 0)))
        with self._telling:
            queues = list(self._figures.told(found, now, count - len(found)))
        return Page(
            metrics.text(info, self._tables(), self._stores(), queues, draining=draining),
            metrics.CONTENT_TYPE,
        )

    def _health(self) -> Page:
        info = self._info()
        ends = self._ends() or Trouble.of(info).ends
        told = {
            "status": self._status(info),
            "version": info.get("interlock_version"),
            "uptime_in_seconds": info.get("uptime_in_seconds"),
            "connected_clients": info.get("connected_clients"),
            "journal": Trouble.of(info).told(),
        }
        return Page(json.dumps(told) + "\n", "application/json", _code(not ends))

    def _ready(self) -> Page:
        info = self._info()
        trouble = Trouble.of(info)
        text = str(trouble) if trouble and not self._ends() else self._state().value
        return Page(f"{text}\n", status=_code(not self._ends() and not trouble))

    def _ends(self) -> bool:
        return self._state() is not State.SERVING

    def _status(self, info: Mapping[str, object]) -> str:
        trouble = Trouble.of(info)
        return f"journal {trouble.state}" if trouble and not self._ends() else self._state().value


def _code(well: bool) -> HTTPStatus:
    return HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
