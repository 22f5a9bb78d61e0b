"""The engine of a node's log: Redis, to which the node speaks, or another, to which Python does.

For another, threads stand between the node's bridge and its stream. One appends what the node
gives, all that waits at once; the second reads; the third looks for entries and trims. None
blocks the node or another thread while it waits for the engine.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from interlock import _core
from interlock.client.url import parse, without_password
from interlock.cluster.streams import (
    PositionLost,
    StreamDenied,
    StreamMissing,
    StreamUnavailable,
    StreamUnfit,
    kind_of,
    open_log,
)
from interlock.cluster.streams.protocol import log_name
from interlock.cluster.streams.redis import log_key

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
        self._keeper = open_log(url, table, dc, role="read")
        self._largest = 0, ""
        for run in (self._append, self._read, self._keep):
            threading.Thread(target=run, name=f"node{run.__name__}", daemon=True).start()

    def _append(self) -> None:
        def connected() -> None:
            self._largest = self._appender.largest()
            self.bridge.opened(self._largest, self._appender.untrimmed or None)

        while self._persistently(connected, self.bridge.failed):
            while (task := self.bridge.task(WAIT)) is None or self._done(*task):
                pass
        self._appender.close()

    def _done(self, what: str, entries: list[bytes]) -> bool:
        """Append entries to the stream; return whether the engine can be asked more."""
        stream, bridge = self._appender, self.bridge
        try:
            self._check(entries)
            match what:
                case "append":
                    bridge.appended(stream.append(entries))
                case "begin":
                    bridge.appended(stream.begin(entries[0]))
                case "end":
                    return False
        except Exception as error:
            bridge.failed(*_trouble(error))
            return False
        return True

    def _check(self, entries: list[bytes]) -> None:
        most, setting = self._largest
        for entry in entries:
            if len(entry) > most:
                raise StreamUnfit(
                    f"the log lacks an entry of {len(entry)} bytes, which its engine once "
                    f"accepted; it now allows {most}: raise {setting}"
                )

    def _keep(self) -> None:
        stream, bridge = self._keeper, self.bridge
        while not bridge.closed:
            chore, positions = bridge.chore(WAIT) or ("", [])
            try:
                match chore:
                    case "look":
                        bridge.looked(stream.look(positions))
                    case "trim":
                        bridge.trimmed(stream.trim(positions), None)
                    case "ends":
                        bridge.ends(stream.ends())
            except (StreamDenied, StreamUnfit) as error:
                bridge.trimmed(0, f"{error}; the log is not trimmed")
            except Exception as error:
                # The other threads report an engine that does not answer.
                _trouble(error)
                bridge.skipped()
                time.sleep(PAUSE[1])
        stream.close()

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
        """Call until it succeeds; return False if the bridge is closed first."""
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


def _trouble(error: Exception) -> tuple[str, str]:
    """Return the kind of what happened, and its text."""
    if isinstance(error, StreamMissing):
        return "gone", str(error)
    if isinstance(error, (StreamUnfit, StreamDenied)):
        return "refused", str(error)
    if not isinstance(error, StreamUnavailable):
        logger.exception("the stream of the log failed")
        return "unreachable", f"{type(error).__name__}: {error}"
    return "unreachable", str(error)
