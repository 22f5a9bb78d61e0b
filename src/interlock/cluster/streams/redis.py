"""A log in a stream of Redis or Valkey.

An entry is one field of one entry there. A position is the entry's id with a mark of its bytes: a
promoted replica that lost its tail may give an id again, to other bytes. With each read
the server is asked whether it still has the entry that the reader comes from, which shows in one go
that nothing behind it was trimmed, and that it is the same log still.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Sequence
from typing import Any

from interlock import _core
from interlock.client import url as urls
from interlock.client.connection import refusals
from interlock.client.request import Refused
from interlock.client.transport import redis_connection as transport
from interlock.cluster.streams.protocol import (
    LEAST,
    Entry,
    Found,
    PositionLost,
    Role,
    StreamDenied,
    StreamMissing,
    StreamUnavailable,
    StreamUnfit,
)

FIELD = b"e"
_READ = 8 << 20
"""Bytes that one read asks for, by the mean of the last."""
_FIRST = 128
"""Entries that a read asks for before their size is known."""
Command = tuple[bytes, ...]


def log_here(
    url: str, table: str, dc: str, role: Role, timeout: float, source: str | None
) -> RedisStream:
    """See ``open_log``. Nodes read and append themselves: this is for another data centre's log."""
    try:
        target = urls.parse(url)
    except ValueError as error:
        raise ValueError(str(error).replace("connect()", "open_log()", 1)) from None
    if target.kind != "server":
        raise ValueError(f"open_log(): a log needs one Redis or Valkey, not {target.shown}")
    key = log_key(table, dc) if source is None else f"il:link:{{{table}.{dc}}}:{source}"
    return RedisStream(target, key, timeout)


def log_key(table: str, dc: str) -> str:
    """Return the key of the stream with a table's log."""
    return f"il:log:{{{table}.{dc}}}"


class RedisStream:
    """See ``ChangeStream``."""

    untrimmed = ""

    def __init__(self, target: urls.Target, key: str, timeout: float) -> None:
        self._target = target
        self._key = key.encode()
        self._timeout = timeout
        self._made: Any = None
        self._closed = False
        self._using = threading.Lock()
        self._from: str | None = None
        """The position up to which this connection is known to have read."""
        self._count = _FIRST

    # -- Appending ----------------------------------------------------------------------------

    def append(self, entries: Sequence[bytes]) -> list[str] | None:
        """See ``ChangeStream``: all of them are written, or none."""
        if not entries:
            return []
        return self._added([(b"XADD", self._key, b"NOMKSTREAM", b"*", FIELD, e) for e in entries])

    def begin(self, entry: bytes) -> list[str] | None:
        """See ``ChangeStream``."""
        return self._added([(b"XADD", self._key, b"*", FIELD, entry)])

    def _added(self, commands: list[Command]) -> list[str]:
        """Run commands of which the last one appends; return their replies."""
        # As one transaction: a server that refuses one in the middle would write those behind it.
        is_one = len(commands) == 1
        if not is_one:
            commands = [(b"MULTI",), *commands, (b"EXEC",)]
        done = self._asked(commands, self._timeout)
        if not is_one:
            done = done[-1]
        if not isinstance(done, list):
            raise self._failed(f"it answered {done!r:.100} to EXEC")
        for one in done:
            if isinstance(one, Exception):
                raise self._failed(str(one))
        if done[-1] is None:
            raise StreamMissing(self._text("there is no such stream"))
        return [one.decode() if isinstance(one, bytes) else str(one) for one in done]

    # -- Reading ------------------------------------------------------------------------------

    def entries(self, after: str, most: int, wait: float) -> Found:
        """See ``ChangeStream``."""
        ident, _, mark = after.partition(".")
        if self._made is None or after != self._from:
            # Before it waits, perhaps for ever, behind what is not there.
            self._from = None
            if mark:
                self._look(after, self._asked([self._found(ident)], self._timeout)[0])
        most = max(1, min(most, self._count))
        block = (b"BLOCK", b"%d" % max(1, round(wait * 1000))) if wait > 0 else ()
        start = ident.encode() or b"0-0"
        ask = (b"XREAD", b"COUNT", b"%d" % most, *block, b"STREAMS", self._key, start)
        asked = [ask, self._found(ident)] if mark else [ask]
        # The look comes behind the read: what is there then was there before.
        replies = self._asked(asked, self._timeout + max(wait, 0))
        if mark:
            self._look(after, replies[1])
        self._from = after
        found = replies[0]
        if not found:
            return Found([], True)
        entries = [_entry(one) for one in found[0][1]]
        self._from = self._position(entries[-1])
        mean = sum(len(one.data) for one in entries) // len(entries) + 1
        self._count = max(1, _READ // mean)
        return Found(entries, len(entries) < most)

    def _found(self, ident: str) -> Command:
        return (b"XRANGE", self._key, ident.encode(), ident.encode())

    def _look(self, after: str, reply: Any) -> None:
        """Raise PositionLost if this is not how the server answers that it has a position."""
        if not reply or self._position(_entry(reply[0])) != after:
            raise self._lost(after)

    def _lost(self, after: str) -> PositionLost:
        first, last = self._end(first=True), self._end(first=False)
        return PositionLost(after, self._position(first), self._position(last))

    def last(self) -> str:
        """See ``ChangeStream``."""
        return self._position(self._end(first=False))

    def ends(self) -> tuple[Entry, Entry] | None:
        """See ``ChangeStream``."""
        first, last = self._end(first=True), self._end(first=False)
        return None if first is None or last is None else (first, last)

    def _end(self, first: bool) -> Entry | None:
        name, start, end = (b"XRANGE", b"-", b"+") if first else (b"XREVRANGE", b"+", b"-")
        command = (name, self._key, start, end, b"COUNT", b"1")
        found = self._asked([command], self._timeout)[0]
        return _entry(found[0]) if found else None

    def _position(self, entry: Entry | None) -> str:
        return f"{entry.id}.{_core.LogBridge.mark(entry.data)}" if entry else ""

    def largest(self) -> tuple[int, str]:
        """See ``ChangeStream``."""
        setting = "proto-max-bulk-len"
        self._asked([(b"PING",)], self._timeout)
        found = self._told(b"CONFIG", b"GET", setting.encode())
        # Without the right to ask, assume the default.
        bytes_ = int(found[1]) if isinstance(found, list) and len(found) == 2 else 512 << 20
        if bytes_ < LEAST:
            raise StreamUnfit(self._text(f"its {setting} is {bytes_}; a log needs {LEAST}"))
        return bytes_, setting

    def look(self, positions: Sequence[str]) -> list[bool]:
        """See ``ChangeStream``."""
        ids = [one.partition(".")[0].encode() for one in positions]
        asked: list[Command] = [(b"XRANGE", self._key, id, id) for id in ids]
        found = self._asked(asked, self._timeout) if asked else []
        return [
            bool(reply) and (position.endswith(".") or self._position(_entry(reply[0])) == position)
            for position, reply in zip(positions, found, strict=True)
        ]

    def trim(self, positions: Sequence[str]) -> int:
        """See ``ChangeStream``."""
        if not all(self.look(positions)):
            return 0
        before = positions[-1].partition(".")[0].encode()
        return int(self._asked([(b"XTRIM", self._key, b"MINID", before)], self._timeout)[0])

    # -- The connection -----------------------------------------------------------------------

    def close(self) -> None:
        """See ``ChangeStream``."""
        # First: who is about to connect looks at it afterwards.
        self._closed = True
        made = self._made
        opened = None if made is None else made._sock
        if opened is not None:
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
        if self._using.acquire(blocking=False):
            # Otherwise the call under way does it.
            self._drop()
            self._using.release()

    def _asked(self, commands: list[Command], timeout: float) -> list[Any]:
        """Send commands in one go, and return their replies; errors among them are raised."""
        with self._using:
            try:
                made = self._made or self._opened()
                if self._closed:
                    raise ConnectionAbortedError
                made._sock.settimeout(timeout)
                made.send_packed_command(_packed(commands), check_health=False)
                return [made.read_response(disable_decoding=True) for _ in commands]
            except BaseException as error:
                # Replies to earlier commands may still be on their way.
                self._drop()
                raise self._meant(error) from None
            finally:
                if self._closed:
                    self._drop()

    def _opened(self) -> Any:
        from redis import connection

        if self._closed:
            raise ConnectionAbortedError
        made = transport.make(connection, self._target, self._target.addresses[0], self._timeout)
        made.socket_timeout = self._timeout
        self._made = made
        made.connect()
        made._sock.settimeout(self._timeout)
        return made

    def _told(self, *command: Any) -> Any:
        """Return the reply to a command that a user may have no right to, None if so."""
        from redis.exceptions import ResponseError

        try:
            self._made.send_command(*command, check_health=False)
            return self._made.read_response(disable_decoding=True)
        except ResponseError:
            return None

    def _drop(self) -> None:
        made, self._made, self._from = self._made, None, None
        if made is not None:
            made.disconnect()

    def _meant(self, error: BaseException) -> BaseException:
        from redis.exceptions import RedisError

        if self._closed and isinstance(error, Exception):
            return StreamUnavailable(self._text("closed"))
        if isinstance(error, RedisError):
            refused = transport.refusal(error)
            # EXEC says why it was not done, behind a code of its own.
            if refused is not None and "NOPERM" in str(refused):
                right = refusals.missing_right(str(refused))
                advice = f"give it {right} with ACL SETUSER"
                return StreamDenied(self._text(f"its user lacks a right: {refused}; {advice}"))
            if refused is not None and refused.code in ("WRONGPASS", "NOAUTH"):
                advice = "check the user and the password in the URL"
                return StreamDenied(self._text(f"{refused}; {advice}"))
            if refused is not None:
                return StreamUnavailable(self._text(f"it answered {refused}"))
        if isinstance(error, (RedisError, OSError, Refused, *transport.UNREADABLE)):
            return StreamUnavailable(self._text(str(error) or type(error).__name__))
        return error

    def _failed(self, why: str) -> StreamUnavailable:
        self._drop()
        return StreamUnavailable(self._text(why))

    def _text(self, why: str) -> str:
        return f"stream {self._key.decode()} at {self._target.shown}: {why}"


def _packed(commands: list[Command]) -> list[bytes]:
    """Return commands as they go out; all their words are bytes, which no client need look at."""
    parts: list[bytes] = []
    for command in commands:
        parts.append(b"*%d\r\n" % len(command))
        for word in command:
            parts.append(b"$%d\r\n%b\r\n" % (len(word), word))
    return [b"".join(parts)]


def _entry(found: Any) -> Entry:
    """Return an entry as the server gave it."""
    ident, fields = found
    return Entry(ident.decode(), int(ident.partition(b"-")[0]), fields[1])
