"""The engine of a node's log: Redis, to which the node speaks, or another, to which Python does.

For another, threads stand between the node's bridge and its stream. One appends what the node
gives, all that waits at once; the other reads. Neither is in the node's way: it goes on while they
wait for the engine.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from interlock import _core
from interlock.cluster.streams import (
    ChangeStream,
    PositionLost,
    StreamMissing,
    StreamUnavailable,
    StreamUnfit,
    kind_of,
    open_log,
)
from interlock.cluster.streams.protocol import log_name
from interlock.cluster.streams.redis import log_key
from interlock.engine.url import parse, without_password

logger = logging.getLogger("interlock.cluster")

WAIT = 1.0
"""Seconds that a read waits for the next entry; thereafter it looks whether the log is the same."""
MOST = 1000
"""Entries of a read at most."""
PAUSE = (0.05, 0.8)
"""Seconds before what failed is tried again: the first ones, and the most."""


def engine_of(url: str, table: str, dc: str) -> dict[str, object]:
    """Return the settings of a ``LogNode`` about the engine at a URL and the log there.

    Raises:
        ValueError: no engine of that kind keeps logs, or the URL is none of it.
        ImportError: the client that it needs is not installed; the text names the extra.
        OSError: the certificate that the URL names cannot be read.
    """
    if kind_of(url) != "redis":
        # Its threads end with the node.
        return {"bridge": Feed(url, table, dc).bridge}
    target = parse(url)
    if target.kind != "server":
        raise ValueError(f"a node needs one Redis or Valkey, not {target.shown}")
    (address,) = target.addresses
    return {
        "bridge": None,
        "stream": log_key(table, dc),
        "addresses": [address],
        "tls": address.rpartition(":")[0].strip("[]") if target.tls else None,
        "ca": Path(target.ca).read_bytes() if target.ca else None,
        "user": target.user or None,
        "password": target.password,
        "database": target.db,
        "engine_timeout": target.timeout,
    }


def log_shown(url: str, table: str, dc: str) -> str:
    """Return the name of a log on its engine, and the engine."""
    name = log_key(table, dc) if kind_of(url) == "redis" else log_name(table, dc)
    return f"{name} on {without_password(url)}"


class Feed:
    """Feeds the bridge of one node from the log of a table in a data centre, until it is closed.

    Raises:
        ValueError: no engine of that kind keeps logs.
        ImportError: the client that it needs is not installed; the text names the extra.
    """

    def __init__(self, url: str, table: str, dc: str) -> None:
        self.bridge = _core.LogBridge()
        self._appender = open_log(url, table, dc, role="append")
        self._reader = open_log(url, table, dc, role="read")
        for run, name in ((self._append, "node-append"), (self._read, "node-read")):
            threading.Thread(target=run, name=name, daemon=True).start()

    def _append(self) -> None:
        def connected() -> None:
            # That it answers is all that is asked.
            self._appender.ends()
            self.bridge.opened()

        while self._persistently(connected, self.bridge.failed):
            while (task := self.bridge.task(WAIT)) is None or self._done(*task):
                pass
        self._appender.close()

    def _done(self, what: str, given: list[Any]) -> bool:
        """Do what is to be done to the stream; return whether the engine can be asked more."""
        stream, bridge = self._appender, self.bridge
        try:
            match what:
                case "append":
                    bridge.appended(stream.append(given))
                case "begin":
                    bridge.appended(stream.begin(given[0]))
                case "ends":
                    bridge.ends(stream.ends())
                case "trim":
                    bridge.trimmed(*_trimmed(stream, given[0]))
                case "end":
                    return False
        except Exception as error:
            bridge.failed(*_trouble(error))
            return False
        return True

    def _read(self) -> None:
        order: tuple[int, str] | None = None
        was_short = False

        def some() -> None:
            nonlocal order, was_short
            order = order or self.bridge.order(WAIT)
            if order is None:
                return
            number, after = order
            began = time.monotonic()
            try:
                found, at_end = self._reader.entries(after, MOST, WAIT)
            except PositionLost:
                order = None
                self.bridge.lost(number, self._reader.ends())
                return
            is_short = not found and time.monotonic() - began < PAUSE[0]
            if is_short and was_short:
                # It does not wait.
                time.sleep(PAUSE[0])
            was_short = is_short
            order = self.bridge.read(number, found, at_end)

        def unread(kind: str, text: str) -> None:
            nonlocal order
            order = None
            self.bridge.unread(kind, text)

        while self._persistently(some, unread):
            pass
        self._reader.close()

    def _persistently(self, call: Callable[[], None], failed: Callable[[str, str], None]) -> bool:
        """Call until it is done; false if nobody wants it any more."""
        pause = PAUSE[0]
        while not self.bridge.closed:
            try:
                call()
            except Exception as error:
                failed(*_trouble(error))
                time.sleep(pause)
                pause = min(2 * pause, PAUSE[1])
            else:
                return True
        return False


def _trimmed(stream: ChangeStream, before: str) -> tuple[int, str | None]:
    try:
        return stream.trim(before), None
    except StreamUnfit as error:
        return 0, str(error)


def _trouble(error: Exception) -> tuple[str, str]:
    """Return the kind of what happened, and its text."""
    if isinstance(error, StreamMissing):
        return "gone", str(error)
    if isinstance(error, StreamUnfit):
        return "refused", str(error)
    if not isinstance(error, StreamUnavailable):
        logger.exception("the stream of the log failed")
        return "unreachable", f"{type(error).__name__}: {error}"
    return "unreachable", str(error)
