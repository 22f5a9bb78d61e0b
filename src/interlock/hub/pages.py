"""What a hub shows over HTTP: /metrics for Prometheus, /health and /ready for who supervises it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http import HTTPStatus

from interlock.hub import metrics
from interlock.hub.httpd import Page
from interlock.hub.state import State


class HubPages:
    """The pages of one hub."""

    def __init__(
        self, state: Callable[[], State], info: Callable[[], Mapping[str, object]]
    ) -> None:
        self._state = state
        self._info = info

    def __call__(self, path: str) -> Page | None:
        """The page at a path."""
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
        return Page(metrics.text(self._info(), draining=draining), metrics.CONTENT_TYPE)

    def _health(self) -> Page:
        state, info = self._state(), self._info()
        told = {
            "status": state.value,
            "version": info.get("interlock_version"),
            "uptime_in_seconds": info.get("uptime_in_seconds"),
            "connected_clients": info.get("connected_clients"),
        }
        return Page(json.dumps(told) + "\n", "application/json", self._code())

    def _ready(self) -> Page:
        return Page(f"{self._state().value}\n", status=self._code())

    def _code(self) -> HTTPStatus:
        serving = self._state() is State.SERVING
        return HTTPStatus.OK if serving else HTTPStatus.SERVICE_UNAVAILABLE
