"""Change streams: one small protocol, and the engines that keep them."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from interlock.cluster.streams.protocol import (
    KEEP,
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
from interlock.retry import Seconds, seconds, whole

__all__ = [
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
    "open_stream",
]

_KINDS = {
    "redis": "redis",
    "rediss": "redis",
    "unix": "redis",
    "redis+unix": "redis",
    "nats": "nats",
    "tls": "nats",
    "kafka": "kafka",
    "rabbitmq+stream": "rabbitmq",
    "rabbitmqs+stream": "rabbitmq",
}
ALLOWED = (
    "redis://HOST:PORT/DB, rediss://HOST:PORT, unix:///PATH, nats://HOST:PORT, kafka://HOST:PORT, "
    "rabbitmq+stream://HOST:PORT"
)


def open_stream(
    url: str,
    name: str,
    *,
    keep: int = KEEP,
    keep_age: Seconds | None = None,
    role: Role = "read",
    timeout: Seconds = TIMEOUT,
) -> ChangeStream:
    """Return a stream of the engine at a URL; it connects when it is first used.

    Args:
        name: the stream's name: letters, digits, ``-`` and ``_``, up to 100 of them.
        keep: entries that are kept at least; the oldest beyond are trimmed. Default 1,000,000.
        keep_age: seconds for which an entry is kept at most, roughly. Default: by number alone.
        role: ``"append"`` or ``"read"``. Default ``"read"``.
        timeout: seconds that the engine has for an answer. Default 5.

    Raises:
        ValueError: no engine of that kind keeps streams, or an argument is out of its range.
        ImportError: the client that it needs is not installed; the text names the extra.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,100}", name):
        raise ValueError(
            f"open_stream(): name is {name[:100]!r}; allowed: 1 to 100 letters, digits, - and _"
        )
    if role not in ("append", "read"):
        raise ValueError(f"open_stream(): role is {role!r}; allowed: 'append', 'read'")
    if whole(keep, "open_stream(): keep") < 1:
        raise ValueError(f"open_stream(): keep is {keep}; allowed: 1 or more")
    age = None if keep_age is None else seconds(keep_age, "open_stream(): keep_age")
    patience = seconds(timeout, "open_stream(): timeout")
    if not patience > 0:
        raise ValueError(f"open_stream(): timeout is {timeout}; allowed: more than 0")
    opened: ChangeStream = _module("open_stream()", url).open_here(
        url, name, keep, age, role, patience
    )
    return opened


def open_log(
    url: str,
    table: str,
    dc: str,
    *,
    role: Role = "read",
    timeout: Seconds = TIMEOUT,
    source: str | None = None,
) -> ChangeStream:
    """Return the log of a table in a data centre, on the engine at a URL; as ``open_stream``.

    With ``source`` it has the notes of how far that data centre has sent its rows there: its name
    begins with ``link`` instead, and ends with that of the source.

    Nothing is trimmed but by ``trim``, and nothing is made but by ``begin``. Of Redis it is the
    stream ``il:log:{TABLE.DC}``, elsewhere ``il-log-TABLE__DC``, where what is no ASCII letter,
    digit or ``-`` is ``_`` and the two hexadecimal digits of each byte.
    """
    patience = seconds(timeout, "open_log(): timeout")
    if not patience > 0:
        raise ValueError(f"open_log(): timeout is {timeout}; allowed: more than 0")
    opened: ChangeStream = _module("open_log()", url).log_here(
        url, table, dc, role, patience, source
    )
    return opened


def kind_of(url: str) -> str | None:
    """Return the engine of a URL: redis, nats, kafka or rabbitmq; None: it keeps no streams."""
    return _KINDS.get(urlsplit(url).scheme)


def _module(call: str, url: str) -> Any:
    kind = kind_of(url)
    if kind is None:
        scheme = url.partition(":")[0]
        raise ValueError(f"{call}: url begins with {scheme!r}; allowed: {ALLOWED}")
    return import_module(f"interlock.cluster.streams.{kind}")
