"""Logs of nodes: one small protocol, and the engines that keep them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from interlock.cluster.streams.protocol import (
    TIMEOUT,
    ChangeStream,
    Entry,
    Found,
    PositionLost,
    Role,
    StreamDenied,
    StreamMissing,
    StreamUnavailable,
    StreamUnfit,
)
from interlock.retry import Seconds, seconds

__all__ = [
    "BACKENDS",
    "SCHEMES",
    "Backend",
    "ChangeStream",
    "Entry",
    "Found",
    "PositionLost",
    "Role",
    "StreamDenied",
    "StreamMissing",
    "StreamUnavailable",
    "StreamUnfit",
    "kind_of",
    "open_log",
]


@dataclass(frozen=True, slots=True)
class Backend:
    """An engine that keeps logs; its module in this package has the same name."""

    title: str
    """Name of the product."""
    schemes: tuple[str, ...]
    """Schemes of its URLs; help names the first one."""
    urls: str
    """Forms of its URLs, for errors."""


BACKENDS = {
    "redis": Backend(
        "Redis",
        ("redis", "rediss", "unix", "redis+unix"),
        "redis://HOST:PORT/DB, rediss://HOST:PORT, unix:///PATH",
    ),
    "nats": Backend("NATS", ("nats", "tls"), "nats://HOST:PORT"),
    "kafka": Backend("Kafka", ("kafka",), "kafka://HOST:PORT"),
    "rabbitmq": Backend(
        "RabbitMQ", ("rabbitmq+stream", "rabbitmqs+stream"), "rabbitmq+stream://HOST:PORT"
    ),
}
SCHEMES = ", ".join(f"{backend.schemes[0]}://" for backend in BACKENDS.values())
"""The backends, for help."""
ALLOWED = ", ".join(backend.urls for backend in BACKENDS.values())
_KINDS = {scheme: kind for kind, backend in BACKENDS.items() for scheme in backend.schemes}


def open_log(
    url: str,
    table: str,
    dc: str,
    *,
    role: Role = "read",
    timeout: Seconds = TIMEOUT,
    source: str | None = None,
) -> ChangeStream:
    """Return the log of a table in a data centre, on the engine at a URL.

    It connects when it is first used. Nothing is trimmed but by ``trim``, and nothing is made but
    by ``begin``. Of Redis it is the stream ``il:log:{TABLE.DC}``, elsewhere ``il-log-TABLE__DC``,
    where each byte that is not an ASCII letter, digit or ``-`` is ``_`` and two hex digits.

    Args:
        role: ``"append"`` or ``"read"``. Default ``"read"``.
        timeout: seconds that the engine has for an answer. Default 5.
        source: a data centre; then it has the notes of how far that one has sent its rows there:
            its name begins with ``link`` instead of ``log``, and ends with that of the source.

    Raises:
        ValueError: no engine of that kind keeps logs, or an argument is out of its range.
        ImportError: the client that it needs is not installed; the text names the extra.
    """
    patience = seconds(timeout, "open_log(): timeout")
    if not patience > 0:
        raise ValueError(f"open_log(): timeout is {timeout}; allowed: more than 0")
    opened: ChangeStream = _module(url).log_here(url, table, dc, role, patience, source)
    return opened


def kind_of(url: str) -> str | None:
    """Return the backend of a URL, a name in ``BACKENDS``; None: it keeps no streams."""
    return _KINDS.get(urlsplit(url).scheme)


def _module(url: str) -> Any:
    kind = kind_of(url)
    if kind is None:
        scheme = url.partition(":")[0]
        raise ValueError(f"open_log(): url begins with {scheme!r}; allowed: {ALLOWED}")
    return import_module(f"interlock.cluster.streams.{kind}")
