"""The pages of a worker and of an exporter: /metrics for Prometheus, /health and /ready for who
supervises it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from interlock.hub.httpd import Page
from interlock.hub.metrics import CONTENT_TYPE

__all__ = ["Pages"]


@dataclass(frozen=True)
class Pages:
    """The pages, by what makes each when it is asked for."""

    metrics: Callable[[], str]
    ready: Callable[[], str]
    """Returns why it is not ready; empty: it is."""
    health: Callable[[], Mapping[str, object]]
    """Returns `status`, which is `ok` or says what is wrong, and whatever else is of interest."""

    def __call__(self, path: str, query: str = "") -> Page | None:
        """Return the page at a path; None if there is none."""
        if path == "/":
            return Page("/metrics\n/health\n/ready\n")
        if path == "/metrics":
            return Page(self.metrics(), CONTENT_TYPE)
        if path == "/ready":
            why = self.ready()
            return Page(f"{why or 'ready'}\n", status=_code(not why))
        if path == "/health":
            told = self.health()
            text = json.dumps(told) + "\n"
            return Page(text, "application/json", _code(told["status"] == "ok"))
        return None


def _code(well: bool) -> HTTPStatus:
    return HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
