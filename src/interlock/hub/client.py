"""A small client of the hub, or of Redis 6 and later: blocking, RESP3, with a limit on every wait.

The command line is built on it, as are programs that publish and subscribe. It exists in addition
to redis-py, which an engine's client uses, because of the start: `interlock hub info` costs 134 ms
of CPU up to its first call with this client and 284 ms with redis-py (best of 25 on a machine under
load; Python alone: 13), which always imports its clients, asyncio and ssl. A program that has
redis-py already can use that with the hub.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from interlock.hub.resp import INCOMPLETE, ProtocolError, Push, Reader, ReplyError, Word, command
from interlock.hub.url import Address, parse


@dataclass(frozen=True)
class Published:
    """A message as a subscriber gets it."""

    topic: bytes
    payload: bytes
    pattern: bytes | None = None
    """The pattern that the topic matched, for a subscription by pattern."""


class Client:
    """One connection. A call raises ReplyError for an error reply, TimeoutError if the answer does
    not come in `timeout` seconds, and another OSError if the connection is lost. With credentials
    in the address it logs in; `rediss://` is TLS."""

    def __init__(
        self, address: str | Address = "127.0.0.1:6399", *, timeout: float = 5.0, name: str = ""
    ) -> None:
        self.missed = 0
        """Number of messages that the hub reports as dropped, after `CLIENT SLOW drop`."""
        self._timeout = timeout
        self._reader = Reader()
        self._pushes: deque[Push] = deque()
        place = parse(address) if isinstance(address, str) else address
        self._socket = connect(place, timeout)
        credentials = ("AUTH", *place.credentials) if place.credentials else ()
        try:
            self.call("HELLO", 3, *credentials, *(("SETNAME", name) if name else ()))
        except BaseException:
            self._socket.close()
            raise

    def call(self, *words: Word) -> object:
        """Send a command, and return its reply."""
        (reply,) = self.pipeline([words])
        if isinstance(reply, ReplyError):
            raise reply
        return reply

    def pipeline(self, commands: Sequence[Sequence[Word]]) -> list[object]:
        """Send all commands in one batch, and return their replies, with errors among them."""
        deadline = time.monotonic() + self._timeout
        self._send(b"".join(command(*words) for words in commands), deadline)
        replies: list[object] = []
        while len(replies) < len(commands):
            reply = self._read(deadline)
            if isinstance(reply, Push):
                self._pushes.append(reply)
            else:
                replies.append(reply)
        return replies

    def publish(self, topic: str | bytes, message: str | bytes) -> int:
        """Publish a message; return the number of subscribers that got it."""
        count = self.call("PUBLISH", topic, message)
        if not isinstance(count, int):
            raise ProtocolError(f"PUBLISH was answered with {count!r}")
        return count

    def subscribe(self, *topics: str | bytes) -> None:
        """Subscribe, and wait until the server has confirmed each topic."""
        self._confirmed("SUBSCRIBE", topics)

    def psubscribe(self, *patterns: str | bytes) -> None:
        """Subscribe by patterns: `*`, `?`, `[a-z]`, with a backslash before a literal character."""
        self._confirmed("PSUBSCRIBE", patterns)

    def unsubscribe(self, *topics: str | bytes) -> None:
        """End subscriptions; with no topic, all of them."""
        self._confirmed("UNSUBSCRIBE", topics)

    def message(self, timeout: float | None = None) -> Published | None:
        """Return the next message of the subscriptions; None if none came in `timeout` seconds."""
        while True:
            push = self._push(timeout)
            if push is None:
                return None
            published = _published(push)
            if push[:1] == [b"missed"]:
                self.missed += _count(push)
            elif published is not None:
                return published

    def messages(self) -> Iterator[Published]:
        """Yield the messages of the subscriptions, for ever."""
        while (published := self.message()) is not None:
            yield published

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _confirmed(self, word: str, topics: Sequence[str | bytes]) -> None:
        deadline = time.monotonic() + self._timeout
        self._send(command(word, *topics), deadline)
        kind = word.lower().encode()
        # With no topic there is a confirmation for each subscription, at least one; the last one
        # reports that none is left.
        missing = len(topics) or None
        while missing != 0:
            push = _expected(self._read(deadline))
            if push[:1] != [kind]:
                self._pushes.append(push)
            elif missing is not None:
                missing -= 1
            else:
                # A round trip shows the end of an unknown number of confirmations.
                self.call("PING")
                self._pushes = deque(push for push in self._pushes if push[:1] != [kind])
                return

    def _push(self, timeout: float | None) -> Push | None:
        if self._pushes:
            return self._pushes.popleft()
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            return _expected(self._read(deadline))
        except TimeoutError:
            return None

    def _read(self, deadline: float | None) -> object:
        while (reply := self._reader.next()) is INCOMPLETE:
            try:
                self._wait_until(deadline)
                data = self._socket.recv(CHUNK)
            except BlockingIOError:  # raised by a non-blocking socket
                raise TimeoutError(f"no answer in {self._timeout:g} s") from None
            if not data:
                raise ConnectionResetError("the server closed the connection")
            self._reader.feed(data)
        return reply

    def _send(self, data: bytes, deadline: float) -> None:
        self._wait_until(deadline)
        try:
            self._socket.sendall(data)
        except TimeoutError:
            # Half a command may have been sent: the server could not parse anything after it.
            self.close()
            raise
        except BrokenPipeError as error:  # in a command it would mean its standard output
            raise ConnectionResetError(*error.args) from None

    def _wait_until(self, deadline: float | None) -> None:
        if deadline is None:
            self._socket.settimeout(None)
            return
        # Received data is used, even when the time is up.
        self._socket.settimeout(max(deadline - time.monotonic(), 0.0))


def connect(place: Address, timeout: float) -> socket.socket:
    """Return a socket connected to a server, in `timeout` seconds; raise OSError if that fails."""
    if place.path:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(timeout)
            # The name of a socket without a file begins with a zero.
            connection.connect("\0" + place.path[1:] if place.path[0] == "@" else place.path)
        except BaseException:
            connection.close()
            raise
        return connection
    connection = socket.create_connection((place.host, place.port), timeout)
    # A command waits for its reply; Nagle would delay its second half until an ack.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not place.tls:
        return connection
    from interlock.hub import tls  # ssl takes longer to import than all the rest

    try:
        return tls.wrapped(connection, place.host, place.ca)
    except BaseException:
        connection.close()
        raise


def _expected(reply: object) -> Push:
    """Return a reply where only pushes belong."""
    if isinstance(reply, ReplyError):
        raise reply
    if not isinstance(reply, Push):
        raise ProtocolError(f"an unexpected reply: {reply!r}")
    return reply


def _count(push: Push) -> int:
    return push[-1] if isinstance(push[-1], int) else 0


def _published(push: Push) -> Published | None:
    match push:
        case [b"message" | b"smessage", bytes(topic), bytes(payload)]:
            return Published(topic, payload)
        case [b"pmessage", bytes(pattern), bytes(topic), bytes(payload)]:
            return Published(topic, payload, pattern)
    return None


CHUNK = 64 << 10
