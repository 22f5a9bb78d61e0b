"""A flat reply of the wire, read part by part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


class Parts:
    """A flat reply, read from its start."""

    def __init__(self, reply: Sequence[bytes]) -> None:
        self._reply = reply
        self._at = 0

    def take(self) -> bytes:
        """Take the next part."""
        part = self._reply[self._at]
        self._at += 1
        return part

    def number(self) -> int:
        """Take the next part, a number."""
        return int(self.take())

    def maybe(self) -> int | None:
        """Take the next part, a number or nothing."""
        part = self.take()
        return int(part) if part else None

    def seconds(self) -> float | None:
        """Take the next part, a duration or nothing."""
        part = self.maybe()
        return None if part is None else part / 1e6

    def text(self) -> str:
        """Take the next part, words; what is not UTF-8 is escaped."""
        return self.take().decode(errors="backslashreplace")

    def some(self, count: int) -> tuple[bytes, ...]:
        """Take this many parts."""
        return tuple(self.take() for _ in range(count))

    def rest(self) -> Iterator[None]:
        """Yield while parts remain."""
        while self._at < len(self._reply):
            yield
