"""The pages of a worker and of an exporter: /metrics for Prometheus, /health and /ready for
supervisors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from interlock.hub.serve.http_server import Page
from interlock.hub.serve.metrics import CONTENT_TYPE

__all__ = ["Pages"]


@dataclass(frozen=True)
class Pages:
    """The pages, with the function that makes each."""

    metrics: Callable[[], str]
    ready: Callable[[], str]
    """Returns the reason if it is not ready; empty if it is."""
    health: Callable[[], Mapping[str, object]]
    """Returns `status`, which is `ok` or names the fault, and further details."""

    def __call__(self, path: str, query: str = "") -> Page | None:
        """Return the page at a path; None if it does not exist."""
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
