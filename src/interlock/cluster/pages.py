"""Pages of a node over HTTP: load balancers ask whether to send it clients."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from interlock.hub.serve.http_server import Page


@dataclass(frozen=True)
class Standing:
    """State of a node at a moment."""

    id: str
    dc: str
    role: str
    """``serving``, ``joining``, ``stuck`` or ``read-only``."""
    address: str
    """``HOST:PORT`` of its hub."""
    position: int = 0
    lag_ms: float = 0.0
    lag_entries: int = 0
    fresh: bool = True
    """It answers reads: it has read its log to the end within `--max-staleness`."""
    draining: bool = False
    fault: str = ""
    """Reason why it cannot continue; empty if it can."""
    trouble: tuple[str, ...] = ()
    """Texts of its current troubles."""

    def told(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


class NodePages:
    """The pages of a node, in front of those of its hub.

    ``/ready`` answers 200 if the node serves and, with ``?max_lag=MS``, is at most that many
    milliseconds behind its log. ``/health`` and ``/metrics`` are the hub's with the node added.
    ``/primary`` and ``/replica`` answer 410: every node takes reads and writes.
    """

    def __init__(
        self, standing: Callable[[], Standing], metrics: Callable[[], Iterable[str]]
    ) -> None:
        self._standing = standing
        self._metrics = metrics

    def __call__(self, path: str, query: str, of_hub: Callable[[str], Page | None]) -> Page | None:
        """Return the page at a path; None for an unknown path."""
        if path in ("/primary", "/replica"):
            return Page(f"{EVERY}\n", status=HTTPStatus.GONE)
        page = of_hub(path)
        if page is None:
            return None
        if path == "/metrics":
            return Page(page.body + "\n".join([*self._metrics(), ""]), page.content_type)
        if path == "/health":
            return _health(page, self._standing())
        return self._ready(page, query) if path == "/ready" else page

    def _ready(self, page: Page, query: str) -> Page:
        longest = _most_lag("/ready", query)
        if isinstance(longest, Page):
            return longest
        standing = self._standing()
        why = standing.fault or ("draining" if standing.draining else "")
        if not why and standing.role != "serving":
            why = ": ".join([standing.role, *standing.trouble[:1]])
        if not why and not standing.fresh:
            why = "it has not read its log to the end for longer than --max-staleness"
        if not why and standing.lag_ms > longest:
            why = f"it is {standing.lag_ms:.0f} ms behind"
        if page.status is not HTTPStatus.OK or not why:
            return page
        return Page(f"{why}\n", status=HTTPStatus.SERVICE_UNAVAILABLE)


EVERY = "every node takes reads and writes; use /ready?max_lag=MS"


def _most_lag(path: str, query: str) -> float | Page:
    """Return `max_lag` in milliseconds, or a page with the error."""
    given = parse_qs(query, keep_blank_values=True)
    most = given.pop("max_lag", ["inf"])[-1]
    try:
        longest = float(most)
    except ValueError:
        longest = -1.0
    if not given and longest >= 0:
        return longest
    wrong = f"unknown {min(given)!r}" if given else f"max_lag is {most!r}"
    text = f"{path}: {wrong}; allowed: max_lag=MS, a number of milliseconds\n"
    return Page(text, status=HTTPStatus.BAD_REQUEST)


def _health(page: Page, standing: Standing) -> Page:
    told = {**json.loads(page.body), "node": standing.told()}
    status = HTTPStatus.SERVICE_UNAVAILABLE if standing.fault else page.status
    return Page(json.dumps(told) + "\n", page.content_type, status)
