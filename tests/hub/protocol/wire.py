"""Byte exchanges with a server: the same bytes to Redis and to the hub must give the same bytes.

An exchange is a list of steps; a step sends bytes on one of its connections and then looks at all
that are open. What has arrived is known without waiting for time to pass: each connection sends its
own mark (PING MARK), and everything before the answer has arrived. A step that ends its connection
is read to the end instead."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from interlock.hub.resp import command

LIMIT_SECONDS = 10.0


@dataclass(frozen=True)
class Step:
    """Bytes for one connection."""

    data: bytes
    on: str = "a"
    ends: bool = False
    """The server closes the connection."""

    kills: str = ""
    """The other connection that the server closes."""

    mute: bool = False
    """The server does not answer here (CLIENT REPLY OFF, half a command): nothing is asked."""


@dataclass(frozen=True)
class Exchange:
    """Steps of one or more connections, named a, b and so on, opened in that order."""

    name: str
    steps: Sequence[Step]
    masks: Sequence[str] = field(default=())
    """Names in MASKS of what may differ, each with its reason."""


@dataclass(frozen=True)
class Mask:
    """A difference that is allowed between the two servers, and its reason."""

    pattern: bytes
    reason: str


MASKS = {
    "id": Mask(rb"(?<=\$2\r\nid\r\n):\d+", "connections are numbered from the server's start"),
    "int": Mask(rb":\d+\r\n", "a connection's number"),
    "version": Mask(rb"\$\d+\r\n\d+\.\d+\.\d+[^\r]*\r\n", "the server's version is its own"),
}


def say(
    *words: str | bytes | int,
    on: str = "a",
    ends: bool = False,
    kills: str = "",
    mute: bool = False,
) -> Step:
    """A step that sends one command."""
    return Step(command(*words), on, ends, kills, mute)


def raw(data: bytes, on: str = "a", *, ends: bool = False, mute: bool = False) -> Step:
    """A step that sends bytes as they are."""
    return Step(data, on, ends, "", mute)


class Connection:
    """A socket that knows what it was sent and not yet asked for."""

    def __init__(self, port: int, *, stranger: bool = False) -> None:
        self.stranger = stranger
        self.socket = socket.create_connection(("127.0.0.1", port), LIMIT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ended = False
        self.marks = 0

    def send(self, data: bytes, size: int) -> None:
        for at in range(0, len(data), size):
            try:
                self.socket.sendall(data[at : at + size])
            except (BrokenPipeError, ConnectionResetError):
                return  # it was closed before the end; what it said is read all the same

    def until_mark(self) -> bytes:
        """All that arrived up to the answer of PING, that answer included; of an unknown command
        for a stranger, who may not call PING."""
        self.marks += 1
        mark = b"mark-%04d" % self.marks
        # As a string, or within the array that RESP2 gives a subscriber.
        words: tuple[str | bytes, ...] = ("PING", mark)
        answer = b"$%d\r\n%s\r\n" % (len(mark), mark)
        if self.stranger:
            words = (mark, b"")
            answer = b"-ERR unknown command '%s', with args beginning with: '' \r\n" % mark
        self.socket.sendall(command(*words))
        found = b""
        while not found.endswith(answer):
            found += self._some(found)
        return found

    def until_end(self) -> bytes:
        """All that arrives until the server closes."""
        found = b""
        while True:
            try:
                data = self._some(found)
            except EOFError:
                self.ended = True
                return found
            found += data

    def _some(self, before: bytes) -> bytes:
        try:
            data = self.socket.recv(1 << 20)
        except TimeoutError:
            raise AssertionError(f"no more came after {before!r}") from None
        except ConnectionResetError:
            data = b""
        if not data:
            raise EOFError(f"closed after {before!r}")
        return data


def play(
    port: int, exchange: Exchange, size: int = 1 << 20, *, stranger: bool = False
) -> list[tuple[str, bytes]]:
    """Run an exchange; answer what arrived where, a step at a time. `size` cuts what is sent;
    `stranger`: the server does not know who it talks to."""
    names = sorted({step.on for step in exchange.steps})
    connections = {name: Connection(port, stranger=stranger) for name in names}
    found: list[tuple[str, bytes]] = []
    try:
        for connection in connections.values():
            connection.until_mark()  # opened in this order
        for step in exchange.steps:
            acting = connections[step.on]
            acting.send(step.data, size)
            if step.mute:
                continue
            found.append((step.on, acting.until_end() if step.ends else acting.until_mark()))
            # Its effect on the others; it comes first, for their answers must follow its own.
            found += [
                (name, other.until_end() if name == step.kills else other.until_mark())
                for name, other in connections.items()
                if other is not acting and not other.ended and listening(exchange, name)
            ]
    finally:
        for connection in connections.values():
            connection.socket.close()
    return found


def listening(exchange: Exchange, name: str) -> bool:
    """Return whether a connection can be asked at any time: it is never muted."""
    return not any(step.mute for step in exchange.steps if step.on == name)


def masked(found: Sequence[tuple[str, bytes]], masks: Sequence[str]) -> list[tuple[str, bytes]]:
    """The same, without what may differ."""
    hidden = []
    for name, data in found:
        for mask in masks:
            data = re.sub(MASKS[mask].pattern, b"<%s>" % mask.encode(), data, flags=re.DOTALL)
        hidden.append((name, data))
    return hidden


def differences(
    exchange: Exchange, redis: list[tuple[str, bytes]], hub: list[tuple[str, bytes]]
) -> Iterator[str]:
    """A line for each place where they differ."""
    one, other = masked(redis, exchange.masks), masked(hub, exchange.masks)
    if len(one) != len(other):
        yield f"{len(one)} answers of Redis, {len(other)} of the hub"
    for at, ((name, expected), (_, given)) in enumerate(zip(one, other, strict=False)):
        if expected != given:
            yield f"answer {at} on {name}:\n  redis {expected!r}\n  hub   {given!r}"
