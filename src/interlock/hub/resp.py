"""The Redis protocol as a client needs it: commands to bytes, bytes to replies. No sockets.

Feed a reader bytes, and it returns whole replies. It reads RESP2 and RESP3. A reply longer or
deeper than its limits is a ProtocolError before memory is allocated for it. redis-py's parser
cannot be imported without the rest of redis-py; `client` gives the cost of that at a command's
start.
"""

from __future__ import annotations

from typing import Final


class ProtocolError(ConnectionError):
    """The bytes that arrived are not the Redis protocol; the connection is no longer usable."""


class ReplyError(Exception):
    """The server answered with an error. `code` is its first word, as `ERR` or `NOAUTH`."""

    @property
    def code(self) -> str:
        """The first word, by which programs distinguish errors."""
        return str(self).partition(" ")[0]


class Push(list[object]):
    """Data that the server sent unasked (RESP3), such as a message to a subscriber."""


class Incomplete:
    """More bytes are needed."""


INCOMPLETE: Final = Incomplete()

# Simple strings are str and bulk strings are bytes; the rest are Python's types.
Word = str | bytes | int | float


def command(*words: Word) -> bytes:
    """Return a command as clients send it."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = encoded(word)
        parts += [b"$%d\r\n" % len(data), data, b"\r\n"]
    return b"".join(parts)


def encoded(word: Word) -> bytes:
    """Return a word of a command as bytes; text as UTF-8, numbers as Python prints them."""
    if isinstance(word, bytes):
        return word
    if isinstance(word, str):
        return word.encode()
    if isinstance(word, bool) or not isinstance(word, int | float):
        raise TypeError(
            f"a word of a command is {type(word).__name__}; allowed: str, bytes, int, float"
        )
    return repr(word).encode()


class Reader:
    """Cuts the stream into replies.

    Parsed parts of a reply are kept: a reply of a million elements arrives in a thousand packets,
    and is not parsed from its beginning at each.
    """

    def __init__(self, longest: int = 512 << 20, deepest: int = 32) -> None:
        self._buffer = bytearray()
        self._at = 0
        # The first incomplete piece is known not to end before this: half of a long string must not
        # be scanned at each packet.
        self._needed = 0
        self._longest = longest
        self._deepest = deepest
        # Incomplete aggregates, each in the one before it.
        self._open: list[_Aggregate] = []
        # Attributes since the last other piece.
        self._attributes = 0

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        self._buffer += data

    def next(self) -> object:
        """Return the next reply, or INCOMPLETE. A server's error is returned, not raised."""
        if len(self._buffer) < self._needed:
            return INCOMPLETE
        self._at = 0
        while True:
            begun = self._at
            try:
                reply = self._placed(self._piece())
            except _NeedMore as more:
                self._needed = more.length - begun
                del self._buffer[:begun]
                return INCOMPLETE
            if reply is not INCOMPLETE:
                self._needed = 0
                del self._buffer[: self._at]
                return reply

    def _placed(self, piece: object) -> object:
        """Put a piece where it belongs; return the completed reply, or INCOMPLETE."""
        if isinstance(piece, _Aggregate):
            self._open.append(piece)
            if len(self._open) + self._attributes > self._deepest:
                raise ProtocolError(f"a reply is nested more than {self._deepest} deep")
        elif not self._open:
            self._attributes = 0
            return piece
        else:
            self._open[-1].elements.append(piece)
        while len(self._open[-1].elements) == self._open[-1].count:
            whole = self._open.pop()
            if whole.kind == b"|":
                # Attributes describe the reply that follows, which answers the command.
                self._attributes += 1
                break
            if not self._open:
                self._attributes = 0
                return whole.value()
            self._open[-1].elements.append(whole.value())
        return INCOMPLETE

    def _piece(self) -> object:
        """Read a reply without elements, or the head of one that has them."""
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind in AGGREGATES:
            return self._aggregate(kind, self._number(rest))
        if kind in (b"$", b"!", b"="):
            return self._string(kind, self._number(rest))
        if kind == b"+":
            return rest.decode(errors="backslashreplace")
        if kind == b"-":
            return ReplyError(rest.decode(errors="backslashreplace"))
        if kind in (b":", b"("):
            return self._number(rest)
        if kind == b"_" and not rest:
            return None
        if kind == b"#" and rest in (b"t", b"f"):
            return rest == b"t"
        if kind == b",":
            try:
                return float(rest)
            except ValueError:
                pass
        raise ProtocolError(f"a reply begins with {line[:40]!r}")

    def _aggregate(self, kind: bytes, count: int) -> object:
        if count == -1 and kind == b"*":
            return None
        # Each element has at least three bytes, so a false count cannot make us wait for ever
        # unseen.
        if not 0 <= count <= self._longest:
            raise ProtocolError(f"a reply has {count} elements")
        return _Aggregate(kind, count * 2 if kind in (b"%", b"|") else count)

    def _string(self, kind: bytes, length: int) -> object:
        if length == -1 and kind == b"$":
            return None
        if not 0 <= length <= self._longest:
            raise ProtocolError(f"a reply has a string of {length} bytes")
        end = self._at + length
        if len(self._buffer) < end + 2:
            raise _NeedMore(end + 2)
        if self._buffer[end : end + 2] != b"\r\n":
            raise ProtocolError("a string of a reply is longer than it says")
        data = bytes(self._buffer[self._at : end])
        self._at = end + 2
        if kind == b"!":
            return ReplyError(data.decode(errors="backslashreplace"))
        # A verbatim string has its format in front: `txt:`.
        return data[4:] if kind == b"=" else data

    def _line(self) -> bytes:
        end = self._buffer.find(b"\r\n", self._at)
        if end < 0:
            if len(self._buffer) - self._at > LONGEST_LINE:
                raise ProtocolError(f"a line of a reply is longer than {LONGEST_LINE} bytes")
            raise _NeedMore(len(self._buffer) + 1)
        line = bytes(self._buffer[self._at : end])
        self._at = end + 2
        return line

    def _number(self, text: bytes) -> int:
        if not text.removeprefix(b"-").isdigit() or len(text) > LONGEST_NUMBER:
            raise ProtocolError(f"a reply has {text[:40]!r} where a number belongs")
        return int(text)


class _Aggregate:
    """A reply with elements, some of which may not have arrived yet."""

    __slots__ = ("count", "elements", "kind")

    def __init__(self, kind: bytes, count: int) -> None:
        self.kind = kind
        self.count = count
        self.elements: list[object] = []

    def value(self) -> object:
        """Return its value, once it has all its elements."""
        if self.kind == b"%":
            keys, values = self.elements[::2], self.elements[1::2]
            keys = [key if isinstance(key, HASHABLE) else repr(key) for key in keys]
            return dict(zip(keys, values, strict=True))
        return Push(self.elements) if self.kind == b">" else self.elements


class _NeedMore(Exception):
    """Length that the buffer must reach before another try."""

    def __init__(self, length: int) -> None:
        self.length = length


AGGREGATES = frozenset({b"*", b"%", b"~", b">", b"|"})
HASHABLE = (bytes, str, int, float, bool, type(None))
# Redis cuts its echoes in an error; no simple string of a server is longer.
LONGEST_LINE = 64 << 10
LONGEST_NUMBER = 400
